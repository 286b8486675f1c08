"""One broker: store, tables, handlers, listener and registration, wired together and run on one loop."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from msgspec import convert
from msgspec.structs import replace

from sparrowmq.broker.access import GuardedHandler, gate_handlers, make_gate
from sparrowmq.broker.admin import GroupAdmin, TopicAdmin
from sparrowmq.broker.chunk import ChunkHandler
from sparrowmq.broker.clients import ClientTable
from sparrowmq.broker.delayed import DelayedMessages
from sparrowmq.broker.exchange import Exchange
from sparrowmq.broker.fence_calls import Fence
from sparrowmq.broker.filters import ConsumerFilters, FilterCheck
from sparrowmq.broker.flushing import Flusher
from sparrowmq.broker.groups import GroupTable
from sparrowmq.broker.inner import InnerStore
from sparrowmq.broker.locks import QueueLocks
from sparrowmq.broker.membership import Membership
from sparrowmq.broker.periodic import repeat
from sparrowmq.broker.placed import PlacedRequests
from sparrowmq.broker.progress import Progress
from sparrowmq.broker.pulling import PullPath
from sparrowmq.broker.registration import Registration
from sparrowmq.broker.sending import SendPath
from sparrowmq.broker.topics import READ_WRITE, TopicTable
from sparrowmq.broker.upkeep import Upkeep
from sparrowmq.core.clock import Clock, SystemClock
from sparrowmq.core.errors import SettingsError, StoreError
from sparrowmq.core.ids import pack_host
from sparrowmq.core.settings import BrokerSettings, split_addresses
from sparrowmq.core.tls_settings import TlsSettings
from sparrowmq.protocol.bloom import BloomFilter
from sparrowmq.protocol.bodies import RegisterBrokerBody, TopicConfigTable
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import PullMessageRequest, RegisterBrokerRequest, from_ext
from sparrowmq.protocol.hot import PullFields, PullFrame
from sparrowmq.store.config_file import ConfigFile
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.offsets import ConsumerOffsets
from sparrowmq.store.settings import StoreSettings
from sparrowmq.transport.client import RemotingClient
from sparrowmq.transport.dispatch import CommandHandler
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.server import Server
from sparrowmq.transport.tls import FollowedContext, outgoing_tls, read_tls_settings, server_tls

if TYPE_CHECKING:
    from sparrowmq.transport.connection import Connection, ServerHandler

log = logging.getLogger("sparrowmq.broker")
HOUSEKEEPING_SECONDS: Final = 1.0
MEMBER_CHECK_SECONDS: Final = 10.0
FILTER_SECONDS: Final = 10.0
DISK_THREADS: Final = 3
"""For what may block at the same time: flushes of the log, flushes of the queues, writing offsets."""


def store_settings(settings: BrokerSettings) -> StoreSettings:
    """The store's share of the broker's settings."""
    return StoreSettings(
        root=settings.store_path_root_dir,
        commit_log_path=settings.store_path_commit_log,
        mapped_file_size_commit_log=settings.mapped_file_size_commit_log,
        mapped_file_size_consume_queue=settings.mapped_file_size_consume_queue,
        flush_disk_type=settings.flush_disk_type,
        max_message_size=settings.max_message_size,
        max_filter_message_size=settings.max_filter_message_size,
        disk_space_warning_level_ratio=settings.disk_space_warning_level_ratio,
        message_index_enable=settings.message_index_enable,
        max_hash_slot_num=settings.max_hash_slot_num,
        max_index_num=settings.max_index_num,
        delay_levels=settings.delay_levels,
        producers_max=settings.max_producer_states,
        producer_expire_hours=settings.producer_state_expire_hours,
    )


class Broker:
    """A RocketMQ broker. `start` opens the store, listens and registers; `close` undoes it in order."""

    def __init__(self, settings: BrokerSettings, *, clock: Clock | None = None) -> None:
        self.settings = settings
        self._clock = clock or SystemClock()
        self._tasks: list[asyncio.Task[None]] = []
        self._server: Server | None = None
        self._store: MessageStore | None = None
        self._occasional = OccasionalLog(log)
        self._members_checked = time.monotonic()

    def __repr__(self) -> str:
        state = "closed" if self._server is None else f"listening on {self.address}"
        return f"<Broker {self.settings.broker_name} {state}>"

    @property
    def port(self) -> int:
        """The port it listens on; 0 while it does not."""
        return 0 if self._server is None else self._server.port

    @property
    def address(self) -> str:
        """`host:port` that clients are told."""
        return f"{self.settings.broker_ip1}:{self.port}"

    async def start(self) -> None:
        """Open the store, take the port, register at the name servers.

        Raises the `StoreError` family for a directory that cannot be used, the `TransportError` family for a
        port that cannot be taken, `SettingsError` for a name without an address; nothing is left behind then.
        """
        settings = self.settings
        self._pool = ThreadPoolExecutor(DISK_THREADS, thread_name_prefix="sparrow-disk")
        handler = _HandlerSlot()
        self._server = Server(
            handler,
            host=settings.bind_address,
            port=settings.listen_port,
            frame_bytes_max=settings.frame_bytes_max,
            connections_max=settings.connections_max,
            idle_seconds=settings.server_channel_max_idle_time_seconds,
            tls=server_tls(settings.tls_config_file, settings.tls_server_mode),
        )
        try:
            await self._server.start()
            store_host = pack_host(await _numeric(settings.broker_ip1), self._server.port)
            self._store = MessageStore.open(store_settings(settings), self._clock, store_host=store_host)
            handler.target = self._wire(self._store, store_host)
        except BaseException:
            await self._server.close()
            self._server = None
            if self._store is not None:
                self._store.close()
            self._pool.shutdown()
            raise
        self._flusher.start()
        self._upkeep.start()
        saving = settings.flush_consumer_offset_interval / 1000
        self._tasks = [
            asyncio.create_task(
                repeat(HOUSEKEEPING_SECONDS, self._keep_house, "housekeeping", self._occasional)
            ),
            asyncio.create_task(
                repeat(saving, self._save_offsets, "saving consumer offsets", self._occasional)
            ),
            asyncio.create_task(self._topics.keep_saving()),
            asyncio.create_task(self._groups.keep_saving()),
            *self._delayed.start(),
            *self._exchange.start(self._membership.tell_changes),
            asyncio.create_task(
                repeat(FILTER_SECONDS, self._save_filters, "saving consumer filters", self._occasional)
            ),
        ]
        try:
            await self._registration.start()
        except BaseException:
            await self.close()
            raise

    def _wire(self, store: MessageStore, store_host: bytes) -> ServerHandler:
        """Make every part, those that others need first, and give what is to take requests."""
        self._gate, signing = make_gate(self.settings, self._clock)
        self._client = RemotingClient(tls=self._outgoing_tls(), hooks=() if signing is None else (signing,))
        self._make_tables(store)
        self._registration = self._make_registration()
        self._make_paths(store, store_host)
        self._make_services(store, store_host)
        handlers = self._handlers(store)
        if self._gate is not None:
            handlers = PlacedRequests(self._gate, self._inner.read).guard(handlers)
        self._general = CommandHandler(handlers)
        chunks = ChunkHandler(
            self._sending,
            self._pulling,
            self._general,
            # A gate asks about the place of each end first, see `PlacedRequests`.
            ends=self._exchange.transactions.ends if self._gate is None else None,
            connection_gone=self._membership.connection_gone,
        )
        return chunks if self._gate is None else GuardedHandler(chunks, self._gate)

    def _make_tables(self, store: MessageStore) -> None:
        """What the broker knows: topics, groups, offsets and filters, which have files, clients and locks."""
        settings, clock = self.settings, self._clock
        config = settings.store_path_root_dir / "config"
        self._topics = TopicTable(settings, store, ConfigFile(config / "topics.json"), clock, pool=self._pool)
        self._groups = GroupTable(
            ConfigFile(config / "subscriptionGroup.json"),
            clock,
            auto_create=settings.auto_create_subscription_group,
            pool=self._pool,
        )
        self._offsets = ConsumerOffsets.load(ConfigFile(config / "consumerOffset.json"), clock)
        for warning in self._offsets.clamp(store):
            log.warning("%s", warning)
        self._filters = ConsumerFilters(
            ConfigFile(config / "consumerFilter.json"),
            clock,
            BloomFilter(settings.max_error_rate_of_bloom_filter, settings.expect_consumer_num_use_filter),
            keep_ms=settings.filter_data_clean_time_span,
        )
        self._clients = ClientTable()
        self._locks = QueueLocks(clock)
        self._fence = Fence(
            ConfigFile(config / "groupPolicies.json"),
            settings.broker_name,
            self._clients,
            self._locks,
            clock,
            pool=self._pool,
        )

    def _make_registration(self) -> Registration:
        settings = self.settings
        return Registration(
            self._client,
            split_addresses(settings.namesrv_addr),
            identity=RegisterBrokerRequest(
                broker_name=settings.broker_name,
                broker_addr=self.address,
                cluster_name=settings.broker_cluster_name,
                ha_server_addr=f"{settings.broker_ip1}:{self.port + 1}",
                broker_id=settings.broker_id,
            ),
            body=self._register_body,
            period=settings.register_name_server_period / 1000,
            timeout=settings.register_broker_timeout_mills / 1000,
        )

    def _make_paths(self, store: MessageStore, store_host: bytes) -> None:
        """The ways of messages: to disk, out to consumers, in from producers and from the broker itself."""
        settings, clock, topic_made = self.settings, self._clock, self._registration.changed_soon
        self._flusher = Flusher(
            store,
            self._pool,
            sync=settings.flush_disk_type == "SYNC_FLUSH",
            interval=settings.flush_interval_commit_log / 1000,
            timeout=settings.sync_flush_timeout / 1000,
            queue_interval=settings.flush_interval_consume_queue / 1000,
        )
        self._pulling = PullPath(
            settings,
            store,
            self._topics,
            self._groups,
            self._clients,
            self._offsets,
            self._filters,
            self._fence,
        )
        self._inner = InnerStore(
            store, self._topics, self._flusher, clock, wake=self._pulling.wake, topic_made=topic_made
        )
        self._delayed = DelayedMessages(
            settings,
            store,
            self._inner,
            self._topics,
            self._groups,
            clock,
            self._pool,
            topic_made=topic_made,
            is_locked=self._locks.is_ordered,
        )
        self._sending = SendPath(
            settings,
            store,
            self._topics,
            self._flusher,
            clock,
            store_host=store_host,
            wake=self._pulling.wake,
            registration=self._registration,
            retries=self._delayed.retries,
        )

    def _make_services(self, store: MessageStore, store_host: bytes) -> None:
        """What goes on beside messages: upkeep, groups' members, transactions, replies, locks, queries."""
        self._upkeep = Upkeep(
            self.settings,
            store,
            self._topics,
            self._offsets,
            self._pulling,
            pool=self._pool,
            clock=self._clock,
            waiting=self._delayed.runtime,
            changed=self._apply,
            occasional=self._occasional,
            holds=ConfigFile(self.settings.store_path_root_dir / "config" / "retentionHolds.json"),
        )
        self._membership = Membership(
            self._clients,
            self._groups,
            self._topics,
            self._filters,
            topic_made=self._registration.changed_soon,
            at_once=self.settings.real_time_notify_consumer_change,
        )
        self._fence.changed = self._policy_changed
        self._exchange = Exchange(
            self.settings,
            store,
            self._inner,
            self._topics,
            self._groups,
            self._clients,
            self._offsets,
            self._pulling,
            self._clock,
            store_host=store_host,
            address=self.address,
            locks=self._locks,
        )

    def _outgoing_tls(self) -> FollowedContext | None:
        """How name servers are spoken to: `useTLS`, with what `tls.client.…` says."""
        settings = self.settings
        if not settings.use_tls:
            return None
        path = settings.tls_config_file
        return outgoing_tls(TlsSettings() if path is None else read_tls_settings(path))

    def _handlers(self, store: MessageStore) -> dict[int, Any]:
        settings = self.settings
        progress = Progress(
            store,
            self._topics,
            self._groups,
            self._offsets,
            cached_ratio=settings.access_message_in_memory_max_ratio,
        )
        counts = self._upkeep.stats
        topics = TopicAdmin(
            settings, store, self._topics, self._offsets, self._pulling, self._registration, counts
        )
        groups = GroupAdmin(
            settings,
            store,
            self._topics,
            self._groups,
            self._clients,
            self._offsets,
            self._registration,
            counts,
        )
        handlers = {
            **gate_handlers(self._gate, settings, self.address),
            Code.SEND_MESSAGE: self._sending.handle,
            Code.SEND_MESSAGE_V2: self._sending.handle,
            Code.SEND_BATCH_MESSAGE: self._sending.handle,
            Code.PULL_MESSAGE: self._pull,
            Code.LITE_PULL_MESSAGE: self._pull,
            Code.QUERY_CONSUMER_OFFSET: progress.query,
            Code.UPDATE_CONSUMER_OFFSET: progress.update,
            Code.SEARCH_OFFSET_BY_TIMESTAMP: progress.search,
            Code.GET_MAX_OFFSET: progress.max_offset,
            Code.GET_MIN_OFFSET: progress.min_offset,
            Code.GET_EARLIEST_MSG_STORETIME: progress.earliest,
            Code.HEART_BEAT: self._membership.heartbeat,
            Code.UNREGISTER_CLIENT: self._membership.unregister,
            Code.CHECK_CLIENT_CONFIG: FilterCheck(enabled=settings.enable_property_filter).check,
            Code.GET_CONSUMER_LIST_BY_GROUP: self._membership.members,
            Code.UPDATE_AND_CREATE_TOPIC: topics.create,
            Code.UPDATE_AND_CREATE_TOPIC_LIST: topics.create_all,
            Code.DELETE_TOPIC_IN_BROKER: topics.delete,
            Code.GET_TOPIC_CONFIG: topics.config,
            Code.GET_ALL_TOPIC_CONFIG: topics.all_configs,
            Code.GET_TOPIC_STATS_INFO: topics.stats,
            Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: topics.system_topics,
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: groups.put,
            Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: groups.all_configs,
            Code.GET_SUBSCRIPTIONGROUP_CONFIG: groups.config,
            Code.DELETE_SUBSCRIPTIONGROUP: groups.delete,
            Code.GET_CONSUMER_CONNECTION_LIST: groups.consumer_connections,
            Code.GET_PRODUCER_CONNECTION_LIST: groups.producer_connections,
            Code.GET_CONSUME_STATS: groups.consume_stats,
            Code.QUERY_TOPIC_CONSUME_BY_WHO: groups.groups_of_topic,
            Code.QUERY_TOPICS_BY_CONSUMER: groups.topics_of_group,
            **self._upkeep.handlers(),
            **self._delayed.handlers(),
            **self._exchange.handlers(),
        }
        return self._fence.guard(handlers, self._inner)

    def _policy_changed(self, group: str) -> None:
        """What a group may do changed: its held pulls and its members learn of it."""
        self._pulling.recheck(group)
        self._membership.tell(group)

    def _pull(self, connection: Connection, command: Command) -> None:
        """A pull whose header is not written as Java writes it; answers by itself."""
        request = from_ext(PullMessageRequest, command.ext)
        fields = convert(request, PullFields, from_attributes=True)
        self._pulling.pull(connection, PullFrame(command.opaque, command.flag, fields))

    def _apply(self, settings: BrokerSettings) -> None:
        """An operator changed settings."""
        permission = self.settings.broker_permission
        self.settings = settings
        self._pulling.apply(settings)
        if settings.broker_permission != permission:
            self._topics.offered_anew()
            self._registration.changed_soon()

    def _register_body(self) -> bytes:
        topics, permitted = self._topics.configs, self.settings.broker_permission
        if permitted & READ_WRITE != READ_WRITE:
            topics = {name: replace(config, perm=config.perm & permitted) for name, config in topics.items()}
        table = TopicConfigTable(data_version=self._topics.version, topic_config_table=topics)
        return RegisterBrokerBody(topic_config_serialize_wrapper=table).encode()

    def _keep_house(self) -> None:
        assert self._store is not None
        if self._gate is not None:
            self._gate.refresh()
        self._pulling.expire()
        self._store.check_disk()
        self._upkeep.tick()
        if time.monotonic() - self._members_checked >= MEMBER_CHECK_SECONDS:
            self._members_checked = time.monotonic()
            self._membership.drop_silent()

    async def _save_offsets(self) -> None:
        """Write the offsets once the log is on disk: a message that was sent back for another try is behind
        its group's offset, and after a power cut it must not be that the offset is there and the retry not.
        """
        unsaved, store = self._offsets.unsaved(), self._store
        if unsaved is None or store is None:
            return

        def work() -> None:
            store.flush()
            self._offsets.write(unsaved)

        await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def _save_filters(self) -> None:
        unsaved = self._filters.unsaved()
        if unsaved is not None:
            await asyncio.get_running_loop().run_in_executor(self._pool, self._filters.write, unsaved)

    async def close(self) -> None:
        """Stop taking requests, release held pulls, leave the name servers, close the store. Idempotent."""
        server, self._server = self._server, None
        if server is None or self._store is None:
            return
        await self._registration.close()
        self._pulling.release()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._general.close()
        await self._upkeep.close()
        await self._flusher.close()
        await server.close()
        await self._client.close()
        self._pool.shutdown()  # an older write of the offsets must not come after the last one
        try:
            self._offsets.save()
        except StoreError as error:
            log.error("the last consumer offsets are lost, their messages will come again: %s", error)
        self._delayed.close()
        try:
            self._filters.save()
        except StoreError as error:
            log.error("changes of consumer filters are lost until their groups come again: %s", error)
        for table in (self._topics, self._groups):
            try:
                table.save()
            except StoreError as error:
                log.error("what came to a table last is lost until its clients come again: %s", error)
        self._store.close()


async def _numeric(name: str) -> str:
    """The address of `brokerIP1`, which may be a host name: records hold addresses. IPv4 is preferred."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SettingsError(
            f"brokerIP1={name}: this name has no address ({error.strerror}); give an address such as 10.0.0.5"
        ) from None
    return str(min(found, key=lambda info: info[0] != socket.AF_INET)[4][0])


class _HandlerSlot:
    """Stands in for the handler until the store is open: the port is taken first, so its number is known."""

    target: ServerHandler | None = None

    def connection_made(self, conn: Connection) -> None:
        if self.target is None:
            conn.close("the broker is starting; connect again")
        else:
            self.target.connection_made(conn)

    def connection_lost(self, conn: Connection) -> None:
        if self.target is not None:
            self.target.connection_lost(conn)

    def frames_received(self, conn: Connection, frames: list[Any]) -> None:
        if self.target is not None:
            self.target.frames_received(conn, frames)
