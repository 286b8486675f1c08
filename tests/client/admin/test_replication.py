"""The progress of slaves, as masters and slaves of both broker generations report it."""

from __future__ import annotations

import pytest
from tests.client.fake import answer, fake_cluster
from tests.support import about, run

from sparrowmq.client.admin.admin import Admin
from sparrowmq.client.admin.brokers import status_of
from sparrowmq.client.admin.types import ReplicationStatus, SlaveStatus
from sparrowmq.core.errors import BrokerError
from sparrowmq.protocol.bodies import HaStatus
from sparrowmq.protocol.codes import RequestCode, ResponseCode

MASTER = b"""{"haClientRuntimeInfo":{"lastReadTimestamp":0,"lastWriteTimestamp":0,"masterFlushOffset":0,
"maxOffset":0,"transferredByteInSecond":0},"haConnectionInfo":[
{"addr":"10.0.0.2:5","slaveAckOffset":-1,"diff":901,"inSync":false,"transferredByteInSecond":0,
"transferFromWhere":-1},{"addr":"10.0.0.1:5","slaveAckOffset":900,"diff":0,"inSync":true}],
"inSyncSlaveNums":1,"master":true,"masterCommitLogMaxOffset":900}"""
SLAVE = b"""{"haClientRuntimeInfo":{"masterAddr":"10.0.0.9:10912","lastReadTimestamp":5,"maxOffset":700},
"haConnectionInfo":[],"inSyncSlaveNums":0,"master":false,"masterCommitLogMaxOffset":0}"""


def test_master_reports_its_slaves_and_slave_its_master() -> None:
    assert status_of(HaStatus.decode(MASTER)) == ReplicationStatus(
        True, 900, [SlaveStatus("10.0.0.1:5", 900, 0, True), SlaveStatus("10.0.0.2:5", None, 901, False)]
    )
    assert status_of(HaStatus.decode(SLAVE)) == ReplicationStatus(
        False, 700, master="10.0.0.9:10912", heard_ms=5
    )


def test_old_broker_reports_nothing_and_other_errors_are_raised() -> None:
    async def main() -> None:
        async with fake_cluster("T", queues=1) as cluster, Admin(cluster.namesrv) as admin:
            code, on = int(RequestCode.GET_BROKER_HA_STATUS), cluster.broker.on
            on[code] = lambda conn, c: answer(0, body=MASTER)
            found = await admin.brokers.replication("broker-a")
            assert found is not None and len(found.slaves) == 2
            on[code] = lambda conn, c: answer(int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
            assert await admin.brokers.replication("broker-a") is None
            on[code] = lambda conn, c: answer(1, remark="no")
            with pytest.raises(BrokerError, check=about(code=1, remark="no")):
                await admin.brokers.replication("broker-a")

    run(main())
