"""Every part of one broker, made in the order in which they need each other. No socket is opened here.

The server puts a listener in front of `BrokerParts.handler`; tests call the handlers without one. Both get
the same parts, wired in the same way. What tests replace (clock, threads, name servers) are arguments.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from sparrowmq.broker.access import rights
from sparrowmq.broker.access.by_position import PlacedRequests
from sparrowmq.broker.access.callers import ClientOwners
from sparrowmq.broker.access.gate import GuardedHandler
from sparrowmq.broker.admin.admin import GroupRequests, TopicRequests
from sparrowmq.broker.admin.deletions import Deletions, finish_deletions
from sparrowmq.broker.admin.producer_ends import ProducerEnds
from sparrowmq.broker.admin.progress import ConsumerProgress
from sparrowmq.broker.admin.shrinking import Shrinking
from sparrowmq.broker.base.arrivals import ConfirmedArrivals
from sparrowmq.broker.base.durability import Durability
from sparrowmq.broker.base.flushing import Flusher
from sparrowmq.broker.base.internal_store import InnerStore
from sparrowmq.broker.base.offset_saving import OffsetSaving
from sparrowmq.broker.base.offsets import OffsetRequests
from sparrowmq.broker.base.periodic import Work, repeat
from sparrowmq.broker.base.retry_offsets import restore_retry_offsets
from sparrowmq.broker.base.routes import OwnQueues
from sparrowmq.broker.chunk import ChunkHandler
from sparrowmq.broker.delay.delayed_messages import DelayedMessages
from sparrowmq.broker.exchange import Exchange
from sparrowmq.broker.members.fence_calls import Fence
from sparrowmq.broker.members.filters import ConsumerFilters
from sparrowmq.broker.members.locks import LockTable
from sparrowmq.broker.members.membership import Membership
from sparrowmq.broker.members.proxies import ProxyRequests
from sparrowmq.broker.pop.assignments import AssignmentRequests
from sparrowmq.broker.pop.pop_service import PopService
from sparrowmq.broker.pop.request_modes import RequestModes
from sparrowmq.broker.pop.wakes import WaitingRequests
from sparrowmq.broker.pull.pull_path import PullPath
from sparrowmq.broker.replication.following import Following
from sparrowmq.broker.replication.metadata import CopiedTables
from sparrowmq.broker.replication.recent_groups import restore_recent_groups
from sparrowmq.broker.replication.recent_topics import restore_recent_topics
from sparrowmq.broker.replication.replica_requests import ReplicaRequests
from sparrowmq.broker.replication.replication import make_master
from sparrowmq.broker.replication.rivals import Rivals
from sparrowmq.broker.replication.tables_for_slaves import ReplicationRequests
from sparrowmq.broker.request_table import request_handlers
from sparrowmq.broker.send.send_path import SendPath
from sparrowmq.broker.tables.clients import ClientTable
from sparrowmq.broker.tables.groups import GroupTable
from sparrowmq.broker.tables.proxied import ProxiedClients
from sparrowmq.broker.tables.shared_tables import SharedTables
from sparrowmq.broker.tables.topics import READ_WRITE, TopicTable
from sparrowmq.broker.upkeep import Upkeep
from sparrowmq.core.errors import InvalidStateError, StoreError
from sparrowmq.protocol.bloom import BloomFilter
from sparrowmq.protocol.bodies import RegisterBrokerBody, TopicConfigTable
from sparrowmq.store.tables.config_file import ConfigFile
from sparrowmq.store.tables.consumer_offsets import ConsumerOffsets
from sparrowmq.transport.dispatch import CommandHandler, check_rows
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.request_watch import RequestWatch

if TYPE_CHECKING:
    from sparrowmq.broker.access.gate import AccessGate
    from sparrowmq.broker.base.periodic import Background
    from sparrowmq.broker.base.registration import Announcements
    from sparrowmq.broker.base.routes import ReadableQueues
    from sparrowmq.broker.replication.following import ToMaster
    from sparrowmq.broker.replication.reign import Reign
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.transport.connection import Connection, ServerHandler

log = logging.getLogger("sparrowmq.broker")
HOUSEKEEPING_SECONDS: Final = 1.0
MEMBER_CHECK_SECONDS: Final = 10.0
FILTER_SECONDS: Final = 10.0


def _no_levels(levels: str) -> None:
    """Used by brokers in a program that sets up its own logging."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the process around a broker's parts offers them.

    `figures` returns the runtime information about the loop and the bounds. `requests` records how long
    requests take. `log_levels` is called with `logLevel` when an operator changes it.
    """

    figures: Callable[[], dict[str, str]] = dict
    requests: RequestWatch = field(default_factory=RequestWatch)
    log_levels: Callable[[str], None] = _no_levels


class BrokerParts:
    """One broker without its listener. `handler` receives requests.

    `registration` creates the object that informs name servers, from a function that returns the topics to
    register. `reign` is the broker's role; its address is that for clients. `gate` authorizes requests; None
    allows everything. A slave needs `to_master`. `routes` knows the queues of other brokers; None: there are
    none.

    May be made in any thread. Raises the `StoreError` family for unusable tables on disk.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        *,
        background: Background,
        registration: Callable[[Callable[[], bytes]], Announcements],
        reign: Reign,
        gate: AccessGate | None = None,
        to_master: ToMaster | None = None,
        routes: ReadableQueues | None = None,
        around: Surroundings | None = None,
    ) -> None:
        self.settings = settings
        self._around = around or Surroundings()
        self.requests = self._around.requests
        self.store = store
        self._background = background
        self.clock = background.clock
        self.pool = background.pool
        self._sleep = background.sleep
        self.address = reign.address
        self.gate = gate
        self._to_master = to_master
        self.reign = reign
        self._routes = routes
        self._owners = None if gate is None else ClientOwners(gate.caller)
        self._occasional = OccasionalLog(log)
        self._tasks: list[asyncio.Task[None]] = []
        self._members_checked = self.clock.monotonic()
        self._make_tables()
        self.registration = registration(self._registered_topics)
        self._make_paths()
        self._make_services()
        self._make_assignments()
        self._make_replication()
        self._make_requests()
        self.handlers = request_handlers(self)
        check_rows(self.handlers, rights.RIGHTS, rights.__name__, guarded=gate is not None)
        self.general = CommandHandler(self._guarded(self.handlers), requests=self.requests)
        self.handler = self._front()

    def _make_tables(self) -> None:
        """The tables: topics, groups, offsets and filters, which have files; clients and locks."""
        settings, store, clock, pool = self.settings, self.store, self.clock, self.pool
        config = settings.store_path_root_dir / "config"
        self.topics = TopicTable(
            settings, store, ConfigFile(config / "topics.json"), clock, pool=pool, sleep=self._sleep
        )
        self.groups = GroupTable(
            ConfigFile(config / "subscriptionGroup.json"),
            clock,
            auto_create=settings.auto_create_subscription_group,
            groups_max=settings.groups_max,
            pool=pool,
            sleep=self._sleep,
        )
        self.offsets = ConsumerOffsets.load(
            ConfigFile(config / "consumerOffset.json"),
            clock,
            entries_max=settings.consumer_offsets_max,
            # A slave's table follows from another part of the log than its own end.
            position=None if settings.is_slave else lambda: store.position,
        )
        finish_deletions(store, self.topics, self.offsets)
        if self.reign.replaced_master:
            restore_recent_topics(store, self.topics)
        for warning in self.offsets.clamp(store):
            log.warning("%s", warning)
        self.filters = ConsumerFilters(
            ConfigFile(config / "consumerFilter.json"),
            clock,
            BloomFilter(settings.max_error_rate_of_bloom_filter, settings.expect_consumer_num_use_filter),
            keep_ms=settings.filter_data_clean_time_span,
        )
        self.clients = ClientTable(settings.members_max)
        self.proxied = ProxiedClients()
        self.tables = SharedTables(self.topics, self.groups, self.clients, self.offsets, self.proxied)
        self.locks = LockTable(clock)
        self.fence = Fence(
            ConfigFile(config / "groupPolicies.json"),
            settings.broker_name,
            self.clients,
            self.locks,
            clock,
            pool=pool,
            changed=self._policy_changed,
        )

    def _make_paths(self) -> None:
        """The message paths: to disk, to consumers, from producers and from the broker itself."""
        settings, store, clock = self.settings, self.store, self.clock
        topic_made = self.registration.changed_soon
        self._make_durability()
        self.pulling = PullPath(
            settings,
            store,
            self.tables,
            self.filters,
            self.fence,
            clock,
            is_master_there=self._follows if settings.is_slave else None,
            master_from=self.reign.master_from if self.reign.master_from <= store.position else 0,
        )
        self.waiting_pops = WaitingRequests(clock)
        self.arrivals = ConfirmedArrivals(store.raw_log, wake=self._arrived, answer_all=self._answer_all)
        self.inner = InnerStore(
            store,
            self.topics,
            self.flusher,
            self.durability,
            clock,
            wake=self.arrivals.stored,
            topic_made=topic_made,
        )
        self.delayed = DelayedMessages(
            self._current,
            store,
            self.inner,
            self.tables,
            self._background,
            topic_made=topic_made,
            is_locked=self.locks.is_ordered,
        )
        if self.reign.replaced_master and not settings.auto_create_subscription_group:
            restore_recent_groups(store, self.inner, self.groups, settings, self.reign.start)
        self.pop = self._make_pop()
        if not settings.is_slave:
            restore_retry_offsets(store, self.tables)
        self.progress = ConsumerProgress(self.store, self.offsets, self.clients, self.pop, self.clock)
        self.exchange = self._make_exchange()
        self.sending = SendPath(
            settings,
            store,
            self.topics,
            self.durability,
            clock,
            wake=self.arrivals.stored,
            registration=self.registration,
            retries=self.delayed.retries,
            is_full=self.exchange.transactions.is_full,
            requests=self.requests,
        )

    def _make_pop(self) -> PopService:
        return PopService(
            self.settings,
            self.store,
            self.inner,
            self.tables,
            self.waiting_pops,
            self.delayed.timer,
            self._background,
            took=self.pulling.took,
            is_managed=self.fence.groups.__contains__,
        )

    def _make_durability(self) -> None:
        """Make the flusher, a master's replicas, and what sends wait for."""
        settings, store, clock = self.settings, self.store, self.clock
        self.flusher = Flusher(
            store,
            self.pool,
            sync=settings.flush_disk_type == "SYNC_FLUSH",
            interval=settings.flush_interval_commit_log / 1000,
            timeout=settings.sync_flush_timeout / 1000,
            queue_interval=settings.flush_interval_consume_queue / 1000,
            sleep=self._sleep,
        )
        self.slaves = (
            None if settings.is_slave else make_master(settings, store, clock, self.reign, sleep=self._sleep)
        )
        is_sync = settings.broker_role == "SYNC_MASTER"
        self.durability = Durability(self.flusher, self.slaves if is_sync else None)

    def _make_exchange(self) -> Exchange:
        return Exchange(
            self._current,
            self.store,
            self.inner,
            self.tables,
            self.pulling,
            self._background,
            self.progress,
            address=self.address,
            locks=self.locks,
            may_check=self._may_check,
        )

    def _make_services(self) -> None:
        """Background services: saving offsets, deletions, upkeep, group members."""
        self.offset_saving = OffsetSaving(self.offsets, self.store, self.pool)
        self.producer_ends = ProducerEnds(self.store, self.inner, self.topics, self.clock)
        self.deletions = Deletions(
            self.store,
            self.topics,
            self.offsets,
            self._release,
            self._forget,
            self.offset_saving.join,
        )
        self.upkeep = Upkeep(
            self.settings,
            self.store,
            self.tables,
            self.pulling,
            self.deletions,
            self.producer_ends,
            self._background,
            filters=self.filters,
            waiting=self._runtime,
            changed=self._apply,
        )
        self.membership = Membership(
            self.tables,
            self.filters,
            self.clock,
            topic_made=self.registration.changed_soon,
            at_once=self.settings.real_time_notify_consumer_change,
        )
        self.proxy_requests = ProxyRequests(
            self.proxied, self.groups, self.topics, topic_made=self.registration.changed_soon
        )

    def _make_replication(self) -> None:
        """Make the parts that copy a master's log and tables, and those that serve slaves."""
        settings, to_master = self.settings, self._to_master
        self.following: Following | None = None
        if settings.is_slave:
            if to_master is None:
                raise InvalidStateError("a slave needs a client for its master")
            self.following = Following(
                settings,
                self.store,
                self.flusher,
                self._background,
                to_master,
                CopiedTables(
                    self.topics,
                    self.groups,
                    self.offsets,
                    self.delayed.offsets,
                    settings.store_path_root_dir / "config" / "timercheck",
                    self.request_modes.follow,
                ),
                self.reign,
                wake=self.arrivals.stored,
                announce=self.registration.changed_soon,
            )
        self.replication_requests = ReplicationRequests(
            self.delayed.offsets,
            self.delayed.timers,
            self.store.raw_log,
            master=self.slaves,
            follower=None if self.following is None else self.following.follower,
            gap_max=settings.ha_max_gap_not_in_sync,
        )
        self.rivals = None
        if to_master is not None and not settings.is_slave:
            self.rivals = Rivals(to_master.client, settings, self.reign)
        self.replica_requests = ReplicaRequests(
            settings,
            self.store,
            self.reign,
            master=self.slaves,
            follower=None if self.following is None else self.following.follower,
            tables=self._table_versions,
        )

    def _table_versions(self) -> str:
        """Another text after each change of the tables that slaves copy."""
        tables = (self.topics.version, self.groups.version)
        counts = [f"{one.timestamp}.{one.counter}" for one in tables]
        return "/".join([*counts, str(self.request_modes.changes)])

    def _follows(self) -> bool:
        """Whether this slave's master is connected."""
        return self.following is not None and self.following.follower.is_following

    def _make_requests(self) -> None:
        """Handlers of requests about offsets, topics and groups."""
        self.offset_requests = OffsetRequests(
            self.store, self.tables, cached_ratio=self.settings.access_message_in_memory_max_ratio
        )
        self.topic_requests = TopicRequests(
            self.settings,
            self.store,
            self.topics,
            self.deletions,
            self.registration,
            self.upkeep.stats,
            Shrinking(self.store, self.tables, self.progress),
        )
        self.group_requests = GroupRequests(
            self.settings,
            self.tables,
            self.deletions,
            self.registration,
            self.upkeep.stats,
            self.progress,
        )

    def _make_assignments(self) -> None:
        """Who reads which queues, for groups that let the broker divide them."""
        config = self.settings.store_path_root_dir / "config"
        self.request_modes = RequestModes(
            self.settings, ConfigFile(config / "messageRequestMode.json"), self.topics, self.groups, self.pool
        )
        routes = self._routes or OwnQueues(self.settings.broker_name, self.topics)
        self.assignments = AssignmentRequests(self.topics, self.clients, self.request_modes, routes)

    def _guarded(self, handlers: dict[int, Any]) -> dict[int, Any]:
        """The handlers, with access control before those of requests that name a message by its position."""
        if self.gate is None or self._owners is None:
            return handlers
        return self._owners.guard(PlacedRequests(self.gate, self.inner.read).guard(handlers))

    def _front(self) -> ServerHandler:
        chunks = ChunkHandler(
            self.sending,
            self.pulling,
            self.general,
            # With a gate, the position of each end is checked first, see `PlacedRequests`.
            # A slave refuses them all, in the table of requests.
            ends=None if self.gate is not None or self.settings.is_slave else self.exchange.transactions.ends,
            connection_gone=self._connection_gone,
        )
        return chunks if self.gate is None else GuardedHandler(chunks, self.gate, self.requests)

    def _current(self) -> BrokerSettings:
        """The settings with the changes that operators made since the start."""
        return self.settings

    # Notifications between the parts

    def _arrived(self, queues: set[ConsumeQueue]) -> None:
        """Messages can be read in `queues`: answer the pulls and POPs that wait for them."""
        self.pulling.wake(queues)
        self.waiting_pops.arrived(queues)

    def _answer_all(self) -> None:
        """Answer the pulls and POPs that wait, with what they may read now."""
        self.pulling.release()
        self.waiting_pops.release()

    def _may_check(self, producer: Connection, topic: str) -> bool:
        """Whether a producer may see a topic's half messages: it must have the right to send (see
        `callers`)."""
        if self.gate is None or self._owners is None:
            return True
        caller = self._owners.caller(producer)
        return caller is not None and self.gate.may_send(caller, producer.peer[0], topic)

    def _release(self, topic: str) -> None:
        """A topic is being deleted: answer the requests that wait for its messages."""
        self.pulling.release(topic)
        self.waiting_pops.release(topic)

    def _forget(self, topic: str) -> None:
        """A topic is being deleted: its producers and its messages at consumers no longer count."""
        self.producer_ends.forget_topic(topic)
        self.pop.forget_topic(topic)

    def _connection_gone(self, connection: Connection) -> None:
        self.waiting_pops.drop_connection(connection)
        self.membership.connection_gone(connection)
        self.proxy_requests.connection_gone(connection)
        if self._owners is not None:
            self._owners.connection_lost(connection)

    def _policy_changed(self, group: str) -> None:
        """A group's policy changed: inform its held pulls and its members."""
        self.pulling.recheck(group)
        self.membership.tell(group)

    def _runtime(self) -> dict[str, str]:
        """Runtime information about delayed messages, the loop and the bounds."""
        return {**self.delayed.runtime(), **self._around.figures()}

    def _apply(self, settings: BrokerSettings) -> None:
        """An operator changed settings."""
        permission, levels = self.settings.broker_permission, self.settings.log_level
        self.settings = settings
        self.requests.limit(settings.slow_request_time)
        if settings.log_level != levels:
            self._around.log_levels(settings.log_level)
        self.pulling.apply(settings)
        self.pop.apply(settings)
        if settings.broker_permission != permission:
            self.topics.offered_anew()
            self.registration.changed_soon()

    def _registered_topics(self) -> bytes:
        topics, permitted = self.topics.configs, self.settings.broker_permission
        if permitted & READ_WRITE != READ_WRITE:
            topics = {name: replace(config, perm=config.perm & permitted) for name, config in topics.items()}
        # A name server keeps the master with the higher epoch when two claim one name.
        version = replace(self.topics.version, state_version=max(0, self.reign.epoch))
        table = TopicConfigTable(data_version=version, topic_config_table=topics)
        return RegisterBrokerBody(topic_config_serialize_wrapper=table).encode()

    # Running

    def start(self) -> None:
        """Start the background tasks: flushing, saving, delivering, cleaning. Call on the loop."""
        self.flusher.start()
        self.upkeep.start()
        saving = self.settings.flush_consumer_offset_interval / 1000

        def periodic(interval: float, work: Work, what: str) -> asyncio.Task[None]:
            return asyncio.create_task(repeat(interval, work, what, self._occasional, sleep=self._sleep))

        self._tasks = [
            periodic(HOUSEKEEPING_SECONDS, self._keep_house, "housekeeping"),
            periodic(HOUSEKEEPING_SECONDS, self._check_disk, "looking at the disk"),
            periodic(saving, self.offset_saving.join, "saving consumer offsets"),
            periodic(FILTER_SECONDS, self._save_filters, "saving consumer filters"),
            asyncio.create_task(self.topics.keep_saving()),
            asyncio.create_task(self.groups.keep_saving()),
            *self.delayed.start(),
            *(() if self.settings.is_slave else self.pop.start()),
            *self.exchange.start(self.membership.tell_changes),
            *(() if self.following is None else self.following.start()),
        ]
        if self.rivals is not None:
            self._tasks.append(periodic(self.rivals.every, self.rivals.look, "looking for another master"))

    def _keep_house(self) -> None:
        self.pulling.expire()
        self.upkeep.tick()
        if self.clock.monotonic() - self._members_checked >= MEMBER_CHECK_SECONDS:
            self._members_checked = self.clock.monotonic()
            self.membership.drop_silent()

    async def _check_disk(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self.pool, self.store.check_disk)

    async def _save_filters(self) -> None:
        unsaved = self.filters.unsaved()
        if unsaved is not None:
            await asyncio.get_running_loop().run_in_executor(self.pool, self.filters.write, unsaved)

    async def stop(self) -> None:
        """Answer the held pulls and end the background tasks."""
        self._answer_all()
        if self.slaves is not None:
            await self.slaves.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.general.close()
        await self.upkeep.close()
        await self.flusher.close()

    def save(self) -> None:
        """Save the tables; call after `stop` and after the pool ended, so that no older write comes last.

        Write errors are logged.
        """
        try:
            self.offsets.save()
        except StoreError as error:
            log.error(
                "recent consumer offsets were not saved; their messages will be delivered again: %s", error
            )
        self.delayed.close()
        self.pop.save()
        try:
            self.filters.save()
        except StoreError as error:
            log.error(
                "recent consumer filter changes were not saved; they return when their groups reconnect: %s",
                error,
            )
        for table in (self.topics, self.groups):
            try:
                table.save()
            except StoreError as error:
                log.error(
                    "recent table changes were not saved; they return when their clients reconnect: %s", error
                )
