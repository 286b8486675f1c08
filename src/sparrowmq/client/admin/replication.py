"""How far the slaves of a broker are, or a slave behind its master."""

from __future__ import annotations

from sparrowmq.client.admin.calls import AdminCalls
from sparrowmq.client.admin.types import ReplicationStatus, SlaveStatus
from sparrowmq.core.errors import BrokerError
from sparrowmq.protocol.bodies import HaStatus
from sparrowmq.protocol.codes import RequestCode, ResponseCode


class ReplicationAdmin(AdminCalls):
    """The part of `Admin` for replication. `broker` is a name, meaning its master, or `host:port`."""

    async def replication_status(self, broker: str) -> ReplicationStatus | None:
        """The connected slaves of a master, or the master of a slave (code 907); None when the broker does
        not report them (before 5.0).
        """
        address = await self._broker_address(broker)
        try:
            body = await self._ask(address, RequestCode.GET_BROKER_HA_STATUS)
        except BrokerError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            return None
        return status_of(HaStatus.decode(body))


def status_of(told: HaStatus) -> ReplicationStatus:
    """Convert a broker's report to the client's types. Pure."""
    if not told.master:
        own = told.ha_client_runtime_info
        return ReplicationStatus(
            False, own.max_offset, master=own.master_addr, heard_ms=own.last_read_timestamp
        )
    slaves = [
        SlaveStatus(
            one.addr,
            one.slave_ack_offset if one.slave_ack_offset >= 0 else None,
            max(0, one.diff),
            one.in_sync,
        )
        for one in told.ha_connection_info
    ]
    slaves.sort(key=lambda one: one.address)
    return ReplicationStatus(True, told.master_commit_log_max_offset, slaves)
