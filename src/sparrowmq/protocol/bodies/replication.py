"""How far copies of a broker's log are (907), as masters and slaves tell it."""

from __future__ import annotations

from msgspec import field

from sparrowmq.protocol.bodies.base import Body, Int64


class SlaveConnection(Body, frozen=True):
    """A slave at its master: the position it confirmed, in bytes of the log (-1: none yet), and how far that
    is behind the master's end.
    """

    addr: str = ""
    slave_ack_offset: Int64 = 0
    diff: Int64 = 0
    in_sync: bool = False


class SlaveRuntime(Body, frozen=True):
    """A slave about itself: its master, the end of its log, when it last read from and wrote to its master;
    0 while it is not connected.
    """

    master_addr: str = ""
    max_offset: Int64 = 0
    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0


class HaStatus(Body, frozen=True):
    """A master with its slaves, or a slave with its master."""

    master: bool = False
    master_commit_log_max_offset: Int64 = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[SlaveConnection] = field(default_factory=list)
    ha_client_runtime_info: SlaveRuntime = SlaveRuntime()
