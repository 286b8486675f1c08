"""Requests about a broker's role: its state (90401), orders (90402), introductions of slaves (90403), and the
reigns of its log (1007).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.broker.base.offsets import answer, refusal
from sparrowmq.broker.replication.authority import OrdersRefusedError
from sparrowmq.broker.replication.frames import FROM_FIRST_FILE
from sparrowmq.core.errors import ProtocolError, StoreError
from sparrowmq.protocol.bodies.replicas import (
    CHANGING,
    FENCED,
    FOLLOWING,
    MASTER,
    SERVING,
    SLAVE,
    WAITING,
    EpochCache,
    EpochSpan,
    EpochStart,
    FollowAnswer,
    FollowRequest,
    ReplicaOrders,
    ReplicaState,
    SlaveState,
)
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.broker.replication.master import Master
    from sparrowmq.broker.replication.reign import Reign
    from sparrowmq.broker.replication.slave import LogFollower
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.transport.connection import Connection

log = logging.getLogger("sparrowmq.broker")
_LONG_MAX: Final = 2**63 - 1
SLAVE_NAME_CHARS_MAX: Final = 255
"""The address and the store of a slave that introduces itself: a master remembers them."""


class ReplicaRequests:
    """The handlers. `master` is None at a slave, `follower` at a master."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        reign: Reign,
        *,
        master: Master | None,
        follower: LogFollower | None,
        tables: Callable[[], str],
    ) -> None:
        """`tables` tells another text after each change of topics, groups or request modes."""
        self._settings = settings
        self._store = store
        self._reign = reign
        self._master = master
        self._follower = follower
        self._tables = tables
        self._occasional = OccasionalLog(log)

    def handlers(self) -> dict[int, Any]:
        """Handlers by request code."""
        return {
            Code.GET_REPLICA_STATE: self.tell_state,
            Code.SET_REPLICA_ROLE: self.set_role,
            Code.FOLLOW_MASTER: self.follow,
            Code.GET_BROKER_EPOCH_CACHE: self.epoch_cache,
        }

    def tell_state(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """90401: this broker's role, its log, its slaves and its lease."""
        return self._once_kept(command, lambda: answer(command, body=self.state().encode()))

    def set_role(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """90402: obey orders about the role, or renew it. A change continues after the answer."""
        try:
            self._reign.obey(ReplicaOrders.decode_request(command.body))
        except OrdersRefusedError as error:
            return self._once_kept(command, partial(self._disobeyed, command, error.code, error.remark))
        except ProtocolError as error:
            return refusal(command, ResponseCode.SYSTEM_ERROR, str(error))
        return self._once_kept(command, lambda: self._obeyed(command))

    def _obeyed(self, command: Command) -> Command:
        reign = self._reign
        if self._master is not None and not reign.is_changing:
            if reign.record.is_managed:
                self._master.ordered(reign.record.in_sync, reign.record.number)
            else:
                self._master.unmanaged()
        return answer(command, body=self.state().encode())

    def _disobeyed(self, command: Command, code: int, remark: str | None) -> Command:
        return Command(code, command.opaque, FLAG_RESPONSE, body=self.state().encode(), remark=remark)

    def _once_kept(self, command: Command, made: Callable[[], Command]) -> Command | Awaitable[Command]:
        """The answer when the role is on disk: mostly at once, so that no limit delays a lease's renewal."""
        return made() if self._reign.is_kept else self._kept(command, made)

    async def _kept(self, command: Command, made: Callable[[], Command]) -> Command:
        try:
            await self._reign.keep()
        except StoreError as error:
            return refusal(command, ResponseCode.SYSTEM_ERROR, str(error))
        return made()

    def follow(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """90403: a slave introduces itself."""
        reign, settings, master = self._reign, self._settings, self._master
        try:
            wish = FollowRequest.decode_request(command.body)
        except ProtocolError as error:
            return refusal(command, ResponseCode.SYSTEM_ERROR, str(error))
        why = self._why_not_followed(wish)
        if master is None or why:
            return refusal(command, ResponseCode.SYSTEM_ERROR, why)
        if wish.epoch > reign.epoch:
            text = f"the slave obeys epoch {wish.epoch}, this broker epoch {reign.epoch}: its term is over"
            return refusal(command, ResponseCode.EPOCH_OUTDATED, text)
        damage = self._damage(wish)
        if damage:
            return self._once_kept(command, lambda: refusal(command, ResponseCode.LOG_DAMAGED, damage))
        store = self._store
        told = FollowAnswer(
            cluster_name=settings.broker_cluster_name,
            broker_name=settings.broker_name,
            broker_role=settings.broker_role,
            epochs=self._epochs(),
            epoch=reign.epoch,
            ha_address=reign.ha_address(),
            file_bytes=settings.mapped_file_size_commit_log,
            min_offset=store.min_position,
            max_offset=store.position,
            key=master.introduce(wish.address, wish.position, wish.store),
        )
        return answer(command, body=told.encode())

    def _damage(self, wish: FollowRequest) -> str:
        """Why this broker's log cannot continue a slave's; empty if it can. What is found is remembered."""
        raw_log = self._store.raw_log
        firsts = {FROM_FIRST_FILE: raw_log.start, 0: raw_log.last_file}
        position = firsts.get(wish.position, wish.position)
        place = raw_log.file(position)
        if place is None or not raw_log.is_damaged(position, wish.last_record):
            return ""
        self._reign.note_damage(position)
        text = (
            f"the log of {self._reign.address} is damaged at {position}, in the file {place.path}: slaves "
            "cannot copy what is behind it. If a slave has that, make it the master (sparrow broker promote, "
            "sparrow replicas elect); this broker then copies its log. Otherwise its messages are lost: see "
            "sparrow store verify, and sparrow store copy --topic for a log without it"
        )
        self._occasional.write(logging.ERROR, "damage", text)
        return text

    def _why_not_followed(self, wish: FollowRequest) -> str:
        settings, reign = self._settings, self._reign
        if self._master is None or reign.is_slave:
            return "it is a slave itself; follow its master"
        if reign.is_changing:
            return "its role is changing; ask again"
        if (wish.cluster_name, wish.broker_name) != (settings.broker_cluster_name, settings.broker_name):
            return (
                f"the slave is {wish.broker_name} of cluster {wish.cluster_name}, this broker is "
                f"{settings.broker_name} of {settings.broker_cluster_name}"
            )
        longest = max(len(wish.address), len(wish.store))
        if longest > SLAVE_NAME_CHARS_MAX:
            return (
                f"the slave's address or store has {longest} characters, the limit is {SLAVE_NAME_CHARS_MAX}"
            )
        if not wish.address or wish.address == reign.address:
            return (
                f"the slave says that its address is {wish.address!r}, this broker's is {reign.address}: "
                "give each broker its own brokerIP1 or listenPort"
            )
        return ""

    def epoch_cache(self, connection: Connection, command: Command) -> Command:
        """1007: the reigns of the log, as RocketMQ's tools read them."""
        settings, starts = self._settings, self._reign.epochs.starts
        if not starts:
            text = "this broker's role never changed: its log has no epochs"
            return refusal(command, ResponseCode.SYSTEM_ERROR, text)
        ends = [start for _, start in starts[1:]] + [_LONG_MAX]
        found = EpochCache(
            cluster_name=settings.broker_cluster_name,
            broker_name=settings.broker_name,
            broker_id=settings.broker_id,
            epoch_list=[
                EpochSpan(epoch, start, end) for (epoch, start), end in zip(starts, ends, strict=True)
            ],
            max_offset=self._store.position,
        )
        return answer(command, body=found.encode())

    def state(self) -> ReplicaState:
        """The answer to 90401; the role must be kept."""
        reign, settings, store = self._reign, self._settings, self._store
        record, master = reign.record, self._master
        is_slave = master is None
        end = store.position
        # Proposals before a change belong to the previous reign.
        group = None if master is None or reign.is_changing else master.replicas.members
        return ReplicaState(
            cluster_name=settings.broker_cluster_name,
            broker_name=settings.broker_name,
            broker_id=settings.broker_id,
            address=reign.address,
            ha_address=reign.ha_address(),
            role=SLAVE if is_slave else MASTER,
            state=self._standing(),
            trouble="" if self._follower is None else self._follower.trouble,
            is_sync=reign.would_be_sync,
            is_managed=record.is_managed,
            epoch=record.epoch,
            epochs=self._epochs(),
            min_offset=store.min_position,
            max_offset=end,
            flushed_offset=store.flushed_position,
            confirmed_offset=end if master is None else self._confirmed(master, end),
            readable_offset=self._readable(),
            master_address=record.master if self._follower is None else self._follower.master or "",
            in_sync=list(record.in_sync),
            in_sync_number=record.number,
            wanted=None if group is None else list(group.wanted),
            slaves=self._slaves(end),
            damaged_offset=record.damaged,
            tables=self._tables(),
            lease_left_ms=reign.authority.lease_left(reign.now_ms()),
            paused_left_ms=reign.authority.paused_left(reign.now_ms()),
            store=record.store,
            run=reign.authority.run,
            stamp=reign.now_ms(),
        )

    def _standing(self) -> str:
        if self._reign.is_changing:
            return CHANGING
        if self._follower is not None:
            return FOLLOWING if self._follower.is_following else WAITING
        return FENCED if self._reign.is_fenced else SERVING

    def _confirmed(self, master: Master, end: int) -> int:
        replicas = master.replicas
        if replicas.members is None or not replicas.members.waited_for:
            return end
        return replicas.confirmed

    def _readable(self) -> int:
        store = self._store
        end = store.flushed_position if self._settings.flush_disk_type == "SYNC_FLUSH" else store.position
        confirmed = store.raw_log.confirmed
        return end if confirmed is None else min(confirmed, end)

    def _slaves(self, end: int) -> list[SlaveState]:
        links = () if self._master is None else self._master.links
        return [
            SlaveState(
                link.replica.name, link.replica.position, end - link.replica.position, link.replica.store
            )
            for link in links
            if link.replica.position >= 0
        ]

    def _epochs(self) -> list[EpochStart]:
        return [EpochStart(epoch, start) for epoch, start in self._reign.epochs.starts]
