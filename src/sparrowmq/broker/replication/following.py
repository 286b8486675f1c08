"""A slave's part of replication, as its settings say: it copies its master's log and tables."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.replication.master_calls import MasterCalls
from sparrowmq.broker.replication.metadata import CopiedTables, MetadataCopy
from sparrowmq.broker.replication.slave import Addresses, LogFollower, Wake
from sparrowmq.store.log.commit_log import NOT_TOLD

if TYPE_CHECKING:
    from sparrowmq.broker.base.flushing import Flusher
    from sparrowmq.broker.base.periodic import Background
    from sparrowmq.broker.replication.reign import Reign
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.protocol.bodies.replicas import ReplicaState
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.transport.client import RemotingClient


ASKED_MAX: Final = 10_000
"""Maximum number of unknown topics that are remembered because the master was asked for their settings."""


@dataclass(frozen=True, slots=True)
class ToMaster:
    """What a slave needs to reach its master: a client for requests, and where the master is."""

    client: RemotingClient
    addresses: Addresses


class Following:
    """The copies of one slave. `wake` is called with the queues that got messages. `announce` registers this
    broker; the answer names the master."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        flusher: Flusher,
        background: Background,
        to_master: ToMaster,
        tables: CopiedTables,
        reign: Reign,
        *,
        wake: Wake,
        announce: Callable[[], None],
    ) -> None:
        calls = MasterCalls(to_master.client, settings, store.raw_log)
        self._wake = wake
        self._log = store.raw_log
        if reign.record.is_managed:
            self._log.confirm(NOT_TOLD)
        self._topics = tables.topics
        self._asked: set[str] = set()
        self.tables = MetadataCopy(
            to_master.addresses,
            calls,
            tables,
            background,
            position=lambda: store.copy.position,
            topics_changed=announce,
            told_state=self._confirm,
        )
        self.follower = LogFollower(
            settings,
            to_master.addresses,
            store.copy,
            flusher,
            calls,
            background,
            reign,
            wake=self._arrived,
            ask=announce,
            copy_tables=self.tables.copy_all,
        )

    def _arrived(self, queues: set[ConsumeQueue]) -> None:
        """Messages were copied. The settings of topics that are new here are copied at once."""
        self._wake(queues)
        unknown = {queue.topic for queue in queues} - self._topics.configs.keys() - self._asked
        if unknown:
            if len(self._asked) > ASKED_MAX:
                self._asked.clear()
            self._asked |= unknown
            self.tables.copy_soon()

    def _confirm(self, state: ReplicaState) -> None:
        """Let consumers of a managed group read here what they may read at the master."""
        if not state.is_managed:
            self._log.confirm(None)
        elif state.readable_offset != NOT_TOLD:
            self._log.confirm(max(state.readable_offset, self._log.confirmed or 0))

    def start(self) -> list[asyncio.Task[None]]:
        """Start following; call on the loop. The caller owns the tasks."""
        return [asyncio.create_task(self.follower.run()), *self.tables.start()]
