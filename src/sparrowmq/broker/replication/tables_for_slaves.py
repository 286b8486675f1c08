"""Requests of slaves and about them: progress of delay levels and timers (45, 60, 61), 402, 907."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparrowmq.broker.base.offsets import answer, refusal
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.java_json import dumps

if TYPE_CHECKING:
    from sparrowmq.broker.replication.master import Master
    from sparrowmq.broker.replication.slave import LogFollower
    from sparrowmq.protocol.frame import Command
    from sparrowmq.store.log.raw_log import RawLog
    from sparrowmq.store.tables.delay_offsets import DelayOffsets
    from sparrowmq.store.timers.timers import Timers
    from sparrowmq.transport.connection import Connection


class ReplicationRequests:
    """The handlers. `master` is None at a slave, `follower` at a master."""

    def __init__(
        self,
        delays: DelayOffsets,
        timers: Timers | None,
        raw_log: RawLog,
        *,
        master: Master | None,
        follower: LogFollower | None,
        gap_max: int,
    ) -> None:
        self._delays = delays
        self._timers = timers
        self._log = raw_log
        self._master = master
        self._follower = follower
        self._gap_max = gap_max

    def handlers(self) -> dict[int, Any]:
        """Handlers by request code."""
        return {
            Code.GET_ALL_DELAY_OFFSET: self.delay_offsets,
            Code.GET_TIMER_CHECK_POINT: self.timer_check_point,
            Code.GET_TIMER_METRICS: self.timer_metrics,
            Code.GET_BROKER_HA_STATUS: self.status,
        }

    def delay_offsets(self, connection: Connection, command: Command) -> Command:
        """45: the progress of delay levels, as in `delayOffset.json`."""
        return answer(command, body=dumps(self._delays.content()))

    def timer_check_point(self, connection: Connection, command: Command) -> Command:
        """60: how far timers are planned and delivered."""
        if self._timers is None:
            return refusal(command, ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        return answer(command, body=self._timers.check_for_slaves.encode())

    def timer_metrics(self, connection: Connection, command: Command) -> Command:
        """61: waiting timers by topic, which this broker does not count; slaves of 5.x ask for them."""
        if self._timers is None:
            return refusal(command, ResponseCode.SYSTEM_ERROR, "The timer message store is null")
        version = {"counter": 0, "stateVersion": 0, "timestamp": 0}
        return answer(command, body=dumps({"dataVersion": version, "timingCount": {}}))

    def status(self, connection: Connection, command: Command) -> Command:
        """907: the slaves of a master with their lag, or the master of a slave."""
        follower = self._follower
        return answer(
            command, body=dumps(self._as_master() if follower is None else self._as_slave(follower))
        )

    def _as_slave(self, follower: LogFollower) -> dict[str, Any]:
        link = follower.link
        own = {
            "masterAddr": follower.address or "",
            "maxOffset": self._log.end,
            "lastReadTimestamp": 0 if link is None else link.last_read_ms,
            "lastWriteTimestamp": 0 if link is None else link.last_written_ms,
            "transferredByteInSecond": 0,
            "masterFlushOffset": 0,
            "isActivated": link is not None,
        }
        return {
            "master": False,
            "masterCommitLogMaxOffset": 0,
            "inSyncSlaveNums": 0,
            "haConnectionInfo": [],
            "haClientRuntimeInfo": own,
        }

    def _as_master(self) -> dict[str, Any]:
        end = self._log.end
        slaves = []
        for link in () if self._master is None else self._master.links:
            position = link.replica.position
            slaves.append(
                {
                    "addr": link.replica.address,
                    "slaveAckOffset": position,
                    "diff": end - position,
                    "inSync": position >= 0 and end - position <= self._gap_max,
                    "transferredByteInSecond": 0,
                    "transferFromWhere": link.next,
                }
            )
        return {
            "master": True,
            "masterCommitLogMaxOffset": end,
            "inSyncSlaveNums": sum(one["inSync"] for one in slaves),
            "haConnectionInfo": slaves,
            "haClientRuntimeInfo": {},
        }
