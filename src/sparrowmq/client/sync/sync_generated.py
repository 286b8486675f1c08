"""The synchronous classes. Made by scripts/generate_sync.py: do not edit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Unpack

from sparrowmq.client.admin import queries
from sparrowmq.client.admin.access import UserAdmin as _UserAdmin
from sparrowmq.client.admin.admin import Admin as _Admin
from sparrowmq.client.admin.brokers import BrokerAdmin as _BrokerAdmin
from sparrowmq.client.admin.dead_letters import DeadLetterAdmin as _DeadLetterAdmin
from sparrowmq.client.admin.groups import _MEMBERS_SECONDS
from sparrowmq.client.admin.groups import GroupAdmin as _GroupAdmin
from sparrowmq.client.admin.holds import HOURS
from sparrowmq.client.admin.holds import HoldAdmin as _HoldAdmin
from sparrowmq.client.admin.messages import MessageAdmin as _MessageAdmin
from sparrowmq.client.admin.name_servers import NameServerAdmin as _NameServerAdmin
from sparrowmq.client.admin.policies import PolicyAdmin as _PolicyAdmin
from sparrowmq.client.admin.producers import ProducerAdmin as _ProducerAdmin
from sparrowmq.client.admin.promotion import PromotionPlan
from sparrowmq.client.admin.replicas import REPLICA_SECONDS
from sparrowmq.client.admin.replicas import ReplicaAdmin as _ReplicaAdmin
from sparrowmq.client.admin.topics import TopicAdmin as _TopicAdmin
from sparrowmq.client.admin.types import (
    AccessGrant,
    AccessUser,
    BrokerClients,
    BrokerStatus,
    BrokerTopics,
    DeadLetterStatus,
    GroupConnections,
    GroupMemberInfo,
    HoldStatus,
    ListedEntry,
    MemberStatus,
    NameServerStatus,
    ProducerState,
    QueueProgress,
    QueueStatus,
    Rates,
    ReplicationStatus,
    ResentLetter,
)
from sparrowmq.client.base.options import ClientOptions, ConsumerOptions, ProducerOptions, PullOptions
from sparrowmq.client.base.settings import (
    ClientSettings,
    ConsumeFrom,
    ConsumerSettings,
    ProducerSettings,
    QueueListener,
)
from sparrowmq.client.cluster.pop_calls import PoppedMessage
from sparrowmq.client.consumer.queue_reader import MESSAGES_MAX
from sparrowmq.client.producer.producer import Producer as _Producer
from sparrowmq.client.producer.transaction import TransactionListener, TransactionResult
from sparrowmq.client.pull.pull_consumer import PullConsumer as _PullConsumer
from sparrowmq.client.pull.pull_schedule import PullCallback
from sparrowmq.client.pull.pull_schedule import PullSchedule as _PullSchedule
from sparrowmq.client.pull.topic_watch import TopicListener
from sparrowmq.client.push.consumer import Consumer as _Consumer
from sparrowmq.client.push.push_consumer import PushConsumer as _PushConsumer
from sparrowmq.client.push.values import Decode
from sparrowmq.client.push.workers import Handler
from sparrowmq.client.send.queue_selection import QueueSelector
from sparrowmq.client.simple.simple_consumer import USUAL_MESSAGES
from sparrowmq.client.simple.simple_consumer import SimpleConsumer as _SimpleConsumer
from sparrowmq.client.sync.sync_base import (
    AdminFacade,
    AdminPartFacade,
    ConsumerFacade,
    ProducerFacade,
    PullConsumerFacade,
    PullScheduleFacade,
    PushConsumerFacade,
    SimpleConsumerFacade,
)
from sparrowmq.core.errors import ClientError
from sparrowmq.core.message import Message, MessageQueue, ReceivedMessage
from sparrowmq.core.names import TRACE_TOPIC
from sparrowmq.core.results import PullResult, RawBatch, ReadFrom, SendResult
from sparrowmq.core.route import TopicRoute
from sparrowmq.core.subscription import Expression
from sparrowmq.protocol import bodies
from sparrowmq.protocol.bodies import ConsumerRunningInfo
from sparrowmq.protocol.bodies.replicas import ReplicaOrders, ReplicaState
from sparrowmq.protocol.headers import BULK_BYTES_MAX
from sparrowmq.protocol.managed import GroupPolicies, GroupPolicy
from sparrowmq.protocol.trace import Trace

__all__ = ["Admin", "Consumer", "Producer", "PullConsumer", "PullSchedule", "PushConsumer", "SimpleConsumer"]


class TopicAdmin(AdminPartFacade[_TopicAdmin]):
    """The topics. `broker` is a name or `host:port`."""

    def route(self, topic: str) -> TopicRoute:
        """Queues and brokers of `topic`, fresh from a name server. Raises `NoRouteError`."""
        return self._run(self._inner.route, topic)

    def status(self, topic: str) -> list[QueueStatus]:
        """Offsets and last update of every queue, sorted; asks every master of the topic."""
        return self._run(self._inner.status, topic)

    def groups(self, topic: str) -> list[str]:
        """Groups with offsets or members on `topic`, sorted."""
        return self._run(self._inner.groups, topic)

    def config(self, broker: str, topic: str) -> bodies.TopicConfig | None:
        """One topic's configuration on a broker (code 351); None if it does not exist there."""
        return self._run(self._inner.config, broker, topic)

    def entries(self, queue: MessageQueue, offset: int, count: int = 10) -> list[ListedEntry]:
        """Entries of a consume queue from an offset on (code 321), at most 1000.

        Raises `BrokerError` for a queue that has never had a message.
        """
        return self._run(self._inner.entries, queue, offset, count)

    def search_offset(
        self, queue: MessageQueue, timestamp: datetime | int | None = None, *, timestamp_ms: int | None = None
    ) -> int:
        """The offset of the first message stored at or after `timestamp`, an aware datetime or epoch
        milliseconds; if there is none, the next offset. Raises `SettingsError` for other times.
        `timestamp_ms` is a former name of `timestamp`.
        """
        return self._run(self._inner.search_offset, queue, timestamp, timestamp_ms=timestamp_ms)

    def create(
        self,
        name: str,
        queues: int | None = None,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
        cluster: str | None = None,
        attributes: Mapping[str, str | None] | None = None,
        force: bool = False,
    ) -> TopicRoute:
        """Create or change a topic on every master of `cluster` (all clusters by default); returns its route.

        Returns when the name server knows the topic on these brokers. Omitted settings keep each broker's
        value; a new topic gets 8 queues to read and write. `queues` is per broker, and takes no queue away:
        `ClientError` if the topic has more. `read_queues` and `write_queues` set the two numbers apart, also
        to fewer. More queues to write than to read are refused (`ClientError`), and SparrowMQ's brokers
        refuse fewer queues to read while the others have unread messages (`BrokerError` with their number).
        `force` permits all three. What one broker refuses may be done at another: the error says at which.
        `perm` bits are 2 write and 4 read.
        `attributes` (RocketMQ 5) sets the named attributes, and None removes one; brokers
        refuse unknown attributes. Raises `InvalidNameError` for illegal and reserved names.
        """
        return self._run(
            self._inner.create,
            name,
            queues,
            read_queues=read_queues,
            write_queues=write_queues,
            perm=perm,
            cluster=cluster,
            attributes=attributes,
            force=force,
        )

    def set_config(self, broker: str, config: bodies.TopicConfig, *, force: bool = False) -> None:
        """Create or change a topic on one broker (code 17). Other attributes of the topic on the broker stay.
        With `force` also if messages become unreadable.

        Raises `ClientError` for RocketMQ's system topics.
        """
        self._run(self._inner.set_config, broker, config, force=force)

    def set_queues(
        self,
        topic: str,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        force: bool = False,
    ) -> dict[str, bodies.TopicConfig]:
        """Change a topic's numbers of queues at each of its brokers; what is omitted stays. Returns the new
        settings by broker name.

        Raises `NoRouteError`, and `ClientError` before any change for more queues to write than to read,
        unless `force`; `BrokerError` as `create`.
        """
        return self._run(
            self._inner.set_queues, topic, read_queues=read_queues, write_queues=write_queues, force=force
        )

    def set_perm(self, topic: str, perm: int, *, broker_name: str | None = None) -> list[str]:
        """Change the permissions of a topic, on one broker or on all that have it: 2 write, 4 read, 6 both, 0
        none.

        Returns the names of the brokers. Raises `NoRouteError`, or `ClientError` for a broker without the
        topic.
        """
        return self._run(self._inner.set_perm, topic, perm, broker_name=broker_name)

    def delete(self, name: str) -> None:
        """Delete a topic and its messages from every broker, then from every name server.

        Raises `InvalidNameError` for reserved names and `NoRouteError` for unknown ones.
        """
        self._run(self._inner.delete, name)

    def list(self, *, system: bool = False) -> list[str]:
        """Names of all topics, sorted; `system` includes retry, dead letter and RocketMQ's system topics."""
        return self._run(self._inner.list, system=system)


class GroupAdmin(AdminPartFacade[_GroupAdmin]):
    """The consumer groups."""

    def create(
        self,
        group: str,
        *,
        retries: int | None = None,
        enabled: bool | None = None,
        broadcast: bool | None = None,
        ordered: bool | None = None,
        cluster: str | None = None,
    ) -> None:
        """Create or change a group on every master of `cluster` (all clusters by default).

        Omitted settings keep each broker's value; a new group gets RocketMQ's defaults (16 retries,
        enabled, broadcasting permitted, not ordered). `retries` is the maximum number of retries unless a
        consumer sets its own. `enabled` and `broadcast` permit consumption, and consumption by broadcasting.
        With `ordered`, clients of the gRPC API consume in order; they cannot choose this themselves. Raises
        `InvalidNameError`.
        """
        self._run(
            self._inner.create,
            group,
            retries=retries,
            enabled=enabled,
            broadcast=broadcast,
            ordered=ordered,
            cluster=cluster,
        )

    def set_request_mode(
        self,
        group: str,
        topic: str,
        mode: Literal["PULL", "POP"],
        *,
        shared_queues: int = 0,
        cluster: str | None = None,
    ) -> None:
        """Set how members of `group` that let the broker assign queues (`server_assignment`) read `topic`:
        "PULL", or "POP", on every master of `cluster` (all clusters by default) that has the topic.

        With POP, `shared_queues` says from how many further members' queues each member receives; 0: all
        receive from all queues. Needs RocketMQ 5 or SparrowMQ. Raises `BrokerError` with code 17 for an
        unknown topic, with code 26 for an unknown group, and `NoRouteError`.
        """
        self._run(
            self._inner.set_request_mode, group, topic, mode, shared_queues=shared_queues, cluster=cluster
        )

    def delete(self, group: str, *, offsets: bool = True, cluster: str | None = None) -> None:
        """Delete a group with its retry and dead letter topics, and by default its offsets.

        Raises `ClientError` for RocketMQ's system groups.
        """
        self._run(self._inner.delete, group, offsets=offsets, cluster=cluster)

    def config(self, group: str) -> dict[str, bodies.SubscriptionGroupConfig]:
        """The group's settings by broker name; empty when no broker knows it."""
        return self._run(self._inner.config, group)

    def rate(self, group: str) -> float:
        """Messages per second that the group consumes, as measured by all brokers."""
        return self._run(self._inner.rate, group)

    def status(
        self, group: str, *, stacks: bool = False, seconds: float = _MEMBERS_SECONDS
    ) -> list[MemberStatus]:
        """Running info of each online member: settings, queues, rates.

        `stacks` includes a thread dump. A member that does not answer has an `error` instead, and so have
        members not reached within `seconds` (60); 32 are asked at a time. Empty when no member is online.
        """
        return self._run(self._inner.status, group, stacks=stacks, seconds=seconds)

    def member(self, group: str, client_id: str, *, stacks: bool = False) -> MemberStatus | None:
        """Running info of one member, as in `status`; None when it is not online."""
        return self._run(self._inner.member, group, client_id, stacks=stacks)

    def member_offsets(
        self, group: str, topic: str, client_id: str | None = None
    ) -> dict[str, dict[MessageQueue, int]]:
        """Offsets that members have in memory, by client id; only those of `client_id` if given.

        Raises `BrokerError` when no member is online or a member's version does not support this.
        """
        return self._run(self._inner.member_offsets, group, topic, client_id)

    def progress(self, group: str, topic: str | None = None) -> list[QueueProgress]:
        """The group's progress in every queue for which it has offsets, sorted; only of `topic` when given.

        Raises `BrokerError` when no broker knows the group.
        """
        return self._run(self._inner.progress, group, topic)

    def connections(self, group: str) -> GroupConnections | None:
        """Members and subscriptions of the group; None when no member is online."""
        return self._run(self._inner.connections, group)

    def members(self, group: str) -> dict[str, list[GroupMemberInfo]]:
        """The members connected to each master that knows the group, by the master's address; the list may be
        empty.

        Each member should be connected to all of them.
        """
        return self._run(self._inner.members, group)

    def committed(self, group: str, queue: MessageQueue, *, stored_only: bool = False) -> int | None:
        """The group's committed offset in a queue, or None.

        Where none is stored and the queue's first message is there and young, brokers answer 0, because new
        members begin there; with `stored_only` it is None (brokers of 4.9 answer 0 even then).
        """
        return self._run(self._inner.committed, group, queue, stored_only=stored_only)

    def commit(self, group: str, queue: MessageQueue, offset: int, *, generation: int | None = None) -> None:
        """Set the next offset the group will read. A member that is online keeps its current position.

        In a managed group `generation` must be that of the queue; its broker refuses others with code 90011.
        """
        self._run(self._inner.commit, group, queue, offset, generation=generation)

    def reset(
        self, group: str, topic: str, to: ConsumeFrom, *, force: bool = True, dry_run: bool = False
    ) -> dict[MessageQueue, int]:
        """Move the group's offsets in `topic` to "first", to "last", or to a time: an aware datetime or
        epoch milliseconds.

        The broker notifies online members; if there are none, the stored offsets are set. Without `force`
        offsets only move back. Returns the new offset of every queue that was moved; with `dry_run`, of those
        that would be, and moves none. `progress` has the offsets and the lag of now. Broadcasting consumers
        store their own offsets and cannot be moved. Raises `BrokerError`, with code 26 for a group unknown to
        a broker, and `NoRouteError`.
        """
        return self._run(self._inner.reset, group, topic, to, force=force, dry_run=dry_run)

    def reset_queue(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Move the group's offset in one queue to `offset`.

        Only brokers with server-side reset (5.x with `useServerSideResetOffset`) can move online members in
        one queue. Other brokers only store the offset; online members keep their current position.
        """
        self._run(self._inner.reset_queue, group, queue, offset)

    def clone_offsets(self, source: str, target: str, topic: str | None = None) -> dict[MessageQueue, int]:
        """Copy the stored offsets of `source` to `target`, for all topics or one. Returns the offsets that
        were set.

        The group `target` is created at brokers that do not know it. The retry topic is skipped. Raises
        `ClientError` when `source` has no offsets, and when members of `target` are online, because they
        would overwrite the new offsets.
        """
        return self._run(self._inner.clone_offsets, source, target, topic)

    def list(self, *, system: bool = False) -> list[str]:
        """Names of all consumer groups of all brokers, sorted; `system` includes RocketMQ's system groups."""
        return self._run(self._inner.list, system=system)


class BrokerAdmin(AdminPartFacade[_BrokerAdmin]):
    """The brokers. `broker` is a name, meaning its master, or `host:port`."""

    def cluster_info(self) -> bodies.ClusterInfo:
        """Brokers by name, broker names by cluster, as the name server has them."""
        return self._run(self._inner.cluster_info)

    def info(self, broker: str) -> dict[str, str]:
        """Runtime information of a broker (code 28), given by name or `host:port`: rates, offsets, disk, …"""
        return self._run(self._inner.info, broker)

    def stats(self, broker: str, name: str, key: str) -> Rates | None:
        """Rates measured by a broker (code 315), for example `TOPIC_PUT_NUMS` of a topic; None if it has
        none.

        `GROUP_GET_NUMS` takes `topic@group`, `BROKER_PUT_NUMS` the name of the cluster.
        """
        return self._run(self._inner.stats, broker, name, key)

    def settings(self, broker: str) -> dict[str, str]:
        """The current settings of a broker (code 26), by name."""
        return self._run(self._inner.settings, broker)

    def set_settings(self, broker: str, changes: Mapping[str, str]) -> None:
        """Change settings of a running broker (code 25).

        A SparrowMQ broker accepts settings that can change at run time and keeps them until it stops;
        `BrokerError` names the others.
        """
        self._run(self._inner.set_settings, broker, changes)

    def progress(self, broker: str) -> dict[str, list[QueueProgress]]:
        """The offsets of all groups in the queues of one broker (code 317), by group.

        A group is listed with the topics for which it has offsets and which, while online, it subscribes to.
        """
        return self._run(self._inner.progress, broker)

    def topics(self, broker: str) -> BrokerTopics:
        """All topics of a broker and their configurations (code 21)."""
        return self._run(self._inner.topics, broker)

    def groups(self, broker: str) -> dict[str, bodies.SubscriptionGroupConfig]:
        """All consumer groups of a broker and their settings (code 201)."""
        return self._run(self._inner.groups, broker)

    def clients(self, broker: str) -> BrokerClients:
        """The clients that sent this broker a heartbeat (codes 201, 203 for each group, and 328), by address.

        At most `GROUPS_MAX` groups are requested, the others counted; a client without groups is not known.
        `producers_known` is false for brokers that do not report producers (before 4.9.3).
        """
        return self._run(self._inner.clients, broker)

    def producers(self, broker: str) -> dict[str, list[GroupMemberInfo]] | None:
        """The producers that sent this broker a heartbeat, by group (code 328); None when it does not report
        them (before 4.9.3).
        """
        return self._run(self._inner.producers, broker)

    def replication(self, broker: str) -> ReplicationStatus | None:
        """The connected slaves of a master, or the master of a slave (code 907); None when the broker does
        not report them (before 5.0).
        """
        return self._run(self._inner.replication, broker)

    def delete_expired_files(self, broker: str) -> None:
        """Have a broker delete data older than its `fileReservedTime` now (code 329)."""
        self._run(self._inner.delete_expired_files, broker)

    def clean_expired_queues(self, broker: str) -> None:
        """Have a broker delete queues whose messages are all deleted (code 306)."""
        self._run(self._inner.clean_expired_queues, broker)

    def clean_unused_topics(self, broker: str) -> None:
        """Have a broker delete queues of topics that no longer exist (code 316)."""
        self._run(self._inner.clean_unused_topics, broker)

    def list(self) -> list[BrokerStatus]:
        """Every broker of every cluster, with its runtime information."""
        return self._run(self._inner.list)


class MessageAdmin(AdminPartFacade[_MessageAdmin]):
    """The stored messages and their traces."""

    def query(
        self,
        topic: str,
        key: str,
        *,
        count: int = 32,
        begin: datetime | int = 0,
        end: datetime | int = queries.TIME_MAX,
        unique: bool = False,
        decompress: bool = True,
    ) -> list[ReceivedMessage]:
        """Messages of `topic` with the key `key`, oldest first; an empty list if there are none.

        With `unique`, `key` is a unique id: the result has the original message and its copies, such as
        retries. Each broker returns at most the newest `count` messages, and no more than its
        `maxMsgsNumBatch` (64). The search covers store times from `begin` to `end`: aware
        datetimes or epoch milliseconds. Without `decompress`, bodies are as they are stored. Raises
        `NoRouteError`, and `ClientError` for a blank key.
        """
        return self._run(
            self._inner.query,
            topic,
            key,
            count=count,
            begin=begin,
            end=end,
            unique=unique,
            decompress=decompress,
        )

    def get(
        self,
        topic: str,
        message_id: str,
        *,
        begin: datetime | int = 0,
        end: datetime | int = queries.TIME_MAX,
        decompress: bool = True,
    ) -> ReceivedMessage | None:
        """The message of `topic` with that id, or None if it does not exist or was deleted.

        The id is one from a send result: the unique id or the offset id. `decompress` as in
        `query`.
        """
        return self._run(self._inner.get, topic, message_id, begin=begin, end=end, decompress=decompress)

    def get_by_offset_id(self, offset_message_id: str, *, decompress: bool = True) -> ReceivedMessage | None:
        """The message with an offset id, from the broker whose address the id contains; None if it was
        deleted. If that broker cannot be connected, all brokers are asked for it: it may have another address
        now.

        `decompress` as in `query`. Raises `ClientError` for an invalid offset id, `TransportError`
        when the broker cannot be reached and no other has the message.
        """
        return self._run(self._inner.get_by_offset_id, offset_message_id, decompress=decompress)

    def trace(self, message_id: str, *, topic: str = TRACE_TOPIC) -> list[Trace]:
        """The trace of a message, by its unique id or a key, in order of time.

        Empty when no client with tracing handled it, when the records are not written yet (clients collect
        them for some seconds), or when there is no trace topic. The end of a consumption follows its
        beginning.
        """
        return self._run(self._inner.trace, message_id, topic=topic)


class DeadLetterAdmin(AdminPartFacade[_DeadLetterAdmin]):
    """The dead letters of groups."""

    def groups(self) -> list[DeadLetterStatus]:
        """The groups with a dead letter topic, sorted, and their numbers of dead letters; 0 when all were
        deleted.

        Raises `ClientError` when no broker is available.
        """
        return self._run(self._inner.groups)

    def resend_one(self, group: str, message: ReceivedMessage) -> str:
        """Send a dead letter to its group again, with a retry count of 0. Returns the new offset message id.

        It goes to the group's retry topic, so other groups of the topic do not receive it again: to the one
        of POP if the group received it by POP. The dead letter itself is kept. Raises `ClientError` for a
        group without a retry topic.
        """
        return self._run(self._inner.resend_one, group, message)

    def resend(
        self, group: str, message_ids: Iterable[str] | None = None, *, rate: float | None = None
    ) -> list[ResentLetter]:
        """Send dead letters to their group again: all current ones, or the given ids, `rate` per second at
        most. Returns what became of each.

        A message with several dead letters is sent once; different messages with one id are all sent. A
        letter that a broker refuses does not stop the others; when a broker cannot be reached, the
        remaining letters are skipped, and those that cannot be read are in the result only if their ids
        were given. Raises the errors of `list` if no letter could be read, and `ClientError` for a
        group without a retry topic.
        """
        return self._run(self._inner.resend, group, message_ids, rate=rate)

    def list(
        self, group: str, *, count: int = 32, after: ReceivedMessage | None = None, decompress: bool = True
    ) -> list[ReceivedMessage]:
        """Up to `count` dead letters of a group, by broker, oldest first. Reading changes nothing.

        `after` continues behind a dead letter of an earlier call. Returns an empty list at the end, and for a
        group without dead letters. Without `decompress`, bodies are as they are stored. Raises `ClientError`
        for a group that no broker knows.
        """
        return self._run(self._inner.list, group, count=count, after=after, decompress=decompress)


class ProducerAdmin(AdminPartFacade[_ProducerAdmin]):
    """The producers, above all idempotent ones."""

    def end(self, topic: str, family: str, epoch: int = 0, *, note: str = "") -> dict[str, tuple[int, str]]:
        """End the epochs before `epoch` of all producers `<family>-…` in a topic. Returns the result by
        broker.

        The brokers forget the sequence numbers of those epochs and refuse late messages (90004). The ended
        epoch never decreases: the result is the one in force, with its note (up to 200 characters). Epoch 0
        only queries. Apache's brokers, which do not know idempotent producers, are left out. Raises
        `BrokerError`.
        """
        return self._run(self._inner.end, topic, family, epoch, note=note)

    def state(self, queue: MessageQueue, producer: str) -> ProducerState | None:
        """Which numbers of an idempotent producer a queue has, also a queue that its topic no longer has.

        None if the broker knows the producer not, or no idempotent producers. Raises `NoRouteError`,
        `BrokerError`.
        """
        return self._run(self._inner.state, queue, producer)

    def connections(self, group: str, topic: str) -> list[GroupMemberInfo]:
        """Producers of `group` at a broker of `topic`. Raises `BrokerError` when there are none."""
        return self._run(self._inner.connections, group, topic)


class UserAdmin(AdminPartFacade[_UserAdmin]):
    """The users and their grants. Changes are made at every master, or at those of `cluster`.

    The first error is raised after all masters were asked. Lists come from one master.
    """

    def create(
        self, name: str, password: str, *, super_user: bool = False, cluster: str | None = None
    ) -> None:
        """Create a user (3001); a super user may do everything. Raises `BrokerError` if the user exists."""
        self._run(self._inner.create, name, password, super_user=super_user, cluster=cluster)

    def update(
        self,
        name: str,
        *,
        password: str | None = None,
        super_user: bool | None = None,
        enabled: bool | None = None,
        cluster: str | None = None,
    ) -> None:
        """Change the given fields of a user (3002). Raises `BrokerError` if the user does not exist."""
        self._run(
            self._inner.update,
            name,
            password=password,
            super_user=super_user,
            enabled=enabled,
            cluster=cluster,
        )

    def delete(self, name: str, *, cluster: str | None = None) -> None:
        """Delete a user and its policies (3003). Does nothing if the user does not exist."""
        self._run(self._inner.delete, name, cluster=cluster)

    def grant(
        self,
        user: str,
        resources: Sequence[str],
        actions: Sequence[str],
        *,
        sources: Sequence[str] = (),
        allow: bool = True,
        cluster: str | None = None,
    ) -> None:
        """Allow a user to perform `actions` on `resources` (3007), only from `sources` if given.

        Actions are Pub, Sub, Create, Update, Delete, Get, List and All. Resources are like `Topic:Orders`,
        `Group:bill*`, `Cluster:*` and `*`. Sources are addresses and networks. With `allow=False` the actions
        are denied. Earlier entries for the same resource are replaced. Raises `BrokerError` for values that
        the broker rejects.
        """
        self._run(self._inner.grant, user, resources, actions, sources=sources, allow=allow, cluster=cluster)

    def revoke(self, user: str, resource: str | None = None, *, cluster: str | None = None) -> None:
        """Delete a user's entries for one resource, or for all (3008)."""
        self._run(self._inner.revoke, user, resource, cluster=cluster)

    def grants(self, part: str = "", *, cluster: str | None = None) -> list[AccessGrant]:
        """The policies of the users whose names contain `part` (3010), by user."""
        return self._run(self._inner.grants, part, cluster=cluster)

    def list(self, part: str = "", *, cluster: str | None = None) -> list[AccessUser]:
        """The users whose names contain `part` (3005), sorted; without passwords."""
        return self._run(self._inner.list, part, cluster=cluster)


class HoldAdmin(AdminPartFacade[_HoldAdmin]):
    """The holds of messages."""

    def set(self, topic: str, group: str, *, hours: int = HOURS, size_max: int = 0) -> None:
        """Create or change a hold: all masters of `topic` keep its messages until `group` has consumed them.

        A hold takes precedence over `fileReservedTime` and over a full disk. It ends, and the broker logs an
        error, when the oldest message has waited `hours`, or when `size_max` bytes of the log (0: no limit)
        follow it. Raises `ClientError` for Apache's brokers, which do not support holds.
        """
        self._run(self._inner.set, topic, group, hours=hours, size_max=size_max)

    def delete(self, topic: str) -> None:
        """Remove a hold from all masters of `topic`; its messages are then deleted like others."""
        self._run(self._inner.delete, topic)

    def list(self) -> list[HoldStatus]:
        """All holds of all brokers, by topic and broker; Apache's brokers have none."""
        return self._run(self._inner.list)


class PolicyAdmin(AdminPartFacade[_PolicyAdmin]):
    """The policies of managed groups."""

    def set(self, policy: GroupPolicy, *, cluster: str | None = None, broker: str | None = None) -> None:
        """Have every broker, those of one cluster, or one, enforce a policy. It is on disk when this returns.

        Setting the same policy again is allowed, so a caller in doubt can repeat the call. Raises
        `BrokerError` with code 90012 when a later policy is in force or a generation would decrease, and
        `ClientError` for Apache's brokers, which cannot enforce policies. Brokers that accepted the policy
        then keep it.
        """
        self._run(self._inner.set, policy, cluster=cluster, broker=broker)

    def delete(self, group: str, *, cluster: str | None = None) -> None:
        """Remove a group's policy from brokers. Does nothing where there is none."""
        self._run(self._inner.delete, group, cluster=cluster)

    def list(self, group: str | None = None) -> dict[str, GroupPolicies]:
        """The policies of one group or of all, by broker name; Apache's brokers are left out."""
        return self._run(self._inner.list, group)


class NameServerAdmin(AdminPartFacade[_NameServerAdmin]):
    """The name servers and their values. Changes are made on each of them."""

    def status(self, address: str) -> NameServerStatus:
        """What one name server has: topics (code 206), brokers (106), settings (319), runtime data (28).

        Raises `TransportError` if it does not answer. Its settings may be refused (access control).
        """
        return self._run(self._inner.status, address)

    def topics(self) -> dict[str, set[str]]:
        """The names of all topics, by address of the name server that returned them (code 206).

        A name server that does not answer is left out. Raises `TransportError` when none does.
        """
        return self._run(self._inner.topics)

    def set_value(self, namespace: str, key: str, value: str) -> None:
        """Store a value on every name server."""
        self._run(self._inner.set_value, namespace, key, value)

    def value(self, namespace: str, key: str) -> str | None:
        """A value of the name servers, or None."""
        return self._run(self._inner.value, namespace, key)

    def values(self, namespace: str) -> dict[str, str]:
        """All values of a namespace; may be empty."""
        return self._run(self._inner.values, namespace)

    def delete_value(self, namespace: str, key: str) -> None:
        """Delete a value from every name server. Does nothing if there is none."""
        self._run(self._inner.delete_value, namespace, key)

    def order_conf(self, topic: str) -> dict[str, int]:
        """Broker name to number of queues of an ordered topic; empty for other topics."""
        return self._run(self._inner.order_conf, topic)

    def set_order_conf(self, topic: str, queues: Mapping[str, int]) -> None:
        """Make a topic ordered: its routes have exactly these numbers of queues by broker name, whether or
        not the brokers are available. With empty `queues` it becomes an ordinary topic again.
        """
        self._run(self._inner.set_order_conf, topic, queues)

    def wipe_write_perm(self, broker_name: str) -> int:
        """Stop sends to a broker, so that it can be shut down. Returns how many of its topics changed.

        Lasts until `add_write_perm`, or until the broker registers changed topics.
        """
        return self._run(self._inner.wipe_write_perm, broker_name)

    def add_write_perm(self, broker_name: str) -> int:
        """Undo `wipe_write_perm`; how many topics changed."""
        return self._run(self._inner.add_write_perm, broker_name)


class ReplicaAdmin(AdminPartFacade[_ReplicaAdmin]):
    """The roles of brokers."""

    def state(self, broker_address: str, *, timeout: float = REPLICA_SECONDS) -> ReplicaState:
        """A broker's role, its log, its slaves and its lease; waits at most `timeout` seconds.

        Raises `BrokerError` with code 3 from brokers of RocketMQ, `TransportError` when it does not answer.
        """
        return self._run(self._inner.state, broker_address, timeout=timeout)

    def set_role(
        self, broker_address: str, orders: ReplicaOrders, *, timeout: float = REPLICA_SECONDS
    ) -> ReplicaState:
        """Give a broker a role, or renew it; returns its state, in which the change may still be under way.

        Raises `BrokerError`: 90021 for an epoch that is over, 90022 for a lease that is, 1 for orders that
        are not for this broker.
        """
        return self._run(self._inner.set_role, broker_address, orders, timeout=timeout)

    def plan(self, broker_address: str) -> PromotionPlan:
        """The effects of making a slave the master of its name. Changes nothing.

        Raises `BrokerError` with code 3 for a broker of RocketMQ, `TransportError` when the slave or the name
        servers do not answer.
        """
        return self._run(self._inner.plan, broker_address)

    def promote(self, broker_address: str, *, unclean: bool = False) -> PromotionPlan:
        """Make a slave the master of its name; returns what was done. The others become its slaves.

        A master that answers first takes nothing more until the slave has its whole log, so nothing is lost.
        Raises `ClientError` when messages may be lost and this is not accepted by `unclean`, when a
        coordinator manages the broker, or when the master's log does not arrive within 20 s; then nothing has
        changed. Raises `TransportError` and `BrokerError` of the requests.
        """
        return self._run(self._inner.promote, broker_address, unclean=unclean)


class Producer(ProducerFacade):
    """Sends messages of one producer group.

        with Producer("orders", name_server="127.0.0.1:9876") as producer:
            producer.send(Message("TopicTest", b"hello", tags="TagA"))

    Every send has one time budget for all attempts. A send that times out or loses its connection may still
    have been stored: consumers must expect repeats. At most `in_flight_max` sends are in flight; others wait.
    """

    def __init__(
        self,
        group: str,
        *,
        settings: ProducerSettings | None = None,
        transaction_listener: TransactionListener | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """A producer of `group`. `options` are the fields of `ProducerSettings`; they override `settings`.

        `name_server` is `host:port` (several: separated by `;`), by default from the environment.
        `send_timeout` is the time in seconds for one send including retries (3), `retries` the attempts
        after the first (2). With `linger` (seconds; 0.005 is usual) sends that are in flight at the same time
        share requests, which is many times faster, and the order of each `key` is kept.
        `send_in_transaction` needs a `transaction_listener`. Raises `InvalidNameError` or `SettingsError`.

        An `idempotent` producer numbers its messages: a send that is repeated because its response was lost
        is stored once and keeps its order in the queue. It is sent to the same queue until it is answered.
        Sends to one queue leave one at a time, so combine messages (`send_batch`, `linger`). Only normal
        messages are supported. Apache's brokers store such messages at least once, like others.
        """
        super().__init__(
            _Producer(group, settings=settings, transaction_listener=transaction_listener, **options)
        )

    @property
    def client_id(self) -> str:
        """The id of this client at the brokers. Raises `InvalidStateError` before the start."""
        return self._call(lambda: self._inner.client_id)

    @property
    def in_flight(self) -> int:
        """Number of sends in flight."""
        return self._call(lambda: self._inner.in_flight)

    def start(self) -> None:
        """Start. Raises `NoNameServerError`, or `InvalidStateError` when it was started before.

        Raises `ClientError` when a client with the same `instance_name` already has a producer of this group;
        it may then be started later.
        """
        self._run(self._inner.start)

    def close(self) -> None:
        """Wait for sends in flight (at most `close_timeout` seconds), notify the brokers, close. Idempotent.

        Waits for a running start or another close.
        """
        self._run(self._inner.close)

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        argument: Any = None,
        hash_key: object = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send one message and wait until the broker has stored it.

        By default queues are used in turn, and a retry goes to another broker. `queue` names the queue;
        `selector` is called with the topic's queues, the message and `argument`, and returns the queue;
        `hash_key` keeps messages with equal keys in one queue. There is no retry if the caller chose the
        queue. `timeout` in seconds covers all attempts.

        Raises `InvalidMessageError`, `InvalidNameError`, `NoRouteError`, `BrokerError`, `TransportError`, or
        `NoRoomError` when the timeout passed before the send could start. Cancelling does not undo
        the send.
        """
        if queue is None and selector is None and hash_key is None:
            return self._send(message, timeout)
        return self._run(
            self._inner.send,
            message,
            queue=queue,
            selector=selector,
            argument=argument,
            hash_key=hash_key,
            timeout=timeout,
        )

    def send_batch(
        self, messages: Iterable[Message], *, queue: MessageQueue | None = None, timeout: float | None = None
    ) -> SendResult:
        """Send messages of one topic as one request; they get consecutive offsets in one queue.

        The encoded batch must stay within `message_bytes_max`; it is not compressed. The result's
        `message_ids` are those of the messages. Otherwise as `send`.
        """
        return self._run(self._inner.send_batch, messages, queue=queue, timeout=timeout)

    def send_encoded_batch(
        self,
        topic: str,
        body: bytes,
        count: int,
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
        numbered: bool = False,
    ) -> SendResult:
        """Send an already encoded batch body of `count` messages (remoting:5.5).

        Each message has its own `UNIQ_KEY`. For bulk writers; the result's `message_id` is that of the batch.
        `numbered`: the messages have the properties of an idempotent producer that the caller implements
        (docs/protocol.md), and `queue` is their queue. Otherwise as `send_batch`.
        """
        return self._run(
            self._inner.send_encoded_batch,
            topic,
            body,
            count,
            queue=queue,
            timeout=timeout,
            numbered=numbered,
        )

    def flush(self, timeout: float) -> None:
        """Send what waits for a batch (`linger`) now, and wait until no send is in flight.

        Results and errors are those of the sends. Sends that begin meanwhile do not linger, and are waited
        for, too. Raises `RequestTimeoutError` after `timeout` seconds; the sends go on.
        """
        self._run(self._inner.flush, timeout)

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        argument: Any = None,
        hash_key: object = None,
        timeout: float | None = None,
    ) -> None:
        """Send once without waiting for a response: a message that the broker refuses or never receives is
        silently lost.

        Raises only errors that prevent the send: exceeded limits, `NoRouteError`, `ConnectError`.
        """
        self._run(
            self._inner.send_oneway,
            message,
            queue=queue,
            selector=selector,
            argument=argument,
            hash_key=hash_key,
            timeout=timeout,
        )

    def queues(self, topic: str) -> list[MessageQueue]:
        """The writable queues of `topic`. Raises `NoRouteError` when there are none."""
        return self._run(self._inner.queues, topic)

    def request(
        self,
        message: Message,
        timeout: float = 3.0,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        argument: Any = None,
        hash_key: object = None,
    ) -> ReceivedMessage:
        """Send a message and wait for a consumer's reply (client:B.18).

        `timeout` in seconds covers both. The consumer answers with `create_reply_message` or `reply`. Raises
        `ReplyTimeoutError` when it was sent but no reply arrived, `ClientError` with the cause when it could
        not be sent, `NoRoomError` when 65,535 requests are already waiting, and errors in the
        message itself. Late replies are dropped.
        """
        return self._run(
            self._inner.request,
            message,
            timeout,
            queue=queue,
            selector=selector,
            argument=argument,
            hash_key=hash_key,
        )

    def reply(self, request: ReceivedMessage, body: bytes, *, timeout: float | None = None) -> SendResult:
        """Answer a request that a consumer received. Raises `ClientError` for a message that is not a
        request.
        """
        return self._run(self._inner.reply, request, body, timeout=timeout)

    def send_in_transaction(
        self,
        message: Message,
        argument: Any = None,
        *,
        timeout: float | None = None,
        check_after: float | None = None,
    ) -> TransactionResult:
        """Send a message that consumers see only when its transaction is committed (client:B.19).

        The message is stored first, as `send` does with `timeout`; then the listener's `execute` is called
        with it and `argument`, and its result is sent to the broker. If that request is lost, or the state is
        unknown, the broker asks for the listener's `check`, first after `check_after` seconds (None: the
        broker's default, 6). A delay level is ignored. Raises the errors of `send`, and `ClientError` without
        a listener.
        """
        return self._run(
            self._inner.send_in_transaction, message, argument, timeout=timeout, check_after=check_after
        )

    def recall(self, topic: str, handle: str, *, timeout: float | None = None) -> str:
        """Cancel a timed message that is not delivered yet and return its message id (client:B-107).

        `handle` is the `recall_handle` in the result of the send. Brokers refuse, with code 16, unless their
        setting `recallMessageEnable` is true (`sparrow up --set recallMessageEnable=true`; RocketMQ's default
        is false), and when it is too late. Raises `ClientError` for an invalid handle.
        """
        return self._run(self._inner.recall, topic, handle, timeout=timeout)

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of `queue` will get."""
        return self._run(self._inner.max_offset, queue)

    def min_offset(self, queue: MessageQueue) -> int:
        """The smallest stored offset of `queue`."""
        return self._run(self._inner.min_offset, queue)

    def search_offset(
        self, queue: MessageQueue, timestamp: datetime | int | None = None, *, timestamp_ms: int | None = None
    ) -> int:
        """The offset of the first message of `queue` stored at or after `timestamp`, an aware datetime or
        epoch milliseconds. `timestamp_ms` is a former name of `timestamp`.
        """
        return self._run(self._inner.search_offset, queue, timestamp, timestamp_ms=timestamp_ms)

    def earliest_store_time(self, queue: MessageQueue) -> int:
        """Epoch milliseconds of the oldest stored message of `queue`, -1 when there is none."""
        return self._run(self._inner.earliest_store_time, queue)


class Consumer(ConsumerFacade):
    """Consumes topics as one member of `group`; the members share the messages.

        with Consumer("billing", "Orders", name_server="127.0.0.1:9876") as consumer:
            for message in consumer:
                ...

    A message counts as handled when the loop asks for the next one. `message.retry()` in the loop has
    it delivered again later. The message at which the loop is left, by `break` or an error, is delivered
    again.

    Or with handlers, where returning means handled and raising means retry:

        consumer = Consumer("billing", name_server="127.0.0.1:9876")

        @consumer.handler("Orders")
        def bill(message):
            ...

        consumer.run()

    With `decode`, loops and handlers get a value for each message: `decode=ReceivedMessage.json`. A message
    for which it raises goes to retry, and finally becomes a dead letter, as if a handler had raised;
    broadcasting drops it.

    It is a `PushConsumer` that acknowledges for the loop, with the same settings. Delivery is at least once.
    """

    def __init__(
        self,
        group: str,
        topic: str | None = None,
        *,
        tags: Expression = "*",
        decode: Decode | None = None,
        settings: ConsumerSettings | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """A consumer of `group`, for a loop over `topic` if it is given. `tags` is `*`, tags (`TagA || TagB`)
        or a filter over properties (`Sql("a > 1")`). `decode` is a plain function: loops and handlers get
        what it returns for a message. `options` are the fields of `ConsumerSettings`; they override
        `settings`. Raises `InvalidNameError`, `InvalidExpressionError`, `SettingsError`, or TypeError for
        `decode`.
        """
        super().__init__(_Consumer(group, topic, tags=tags, decode=decode, settings=settings, **options))

    @property
    def failure(self) -> ClientError | None:
        """The error that stopped the consumer, if any."""
        return self._call(lambda: self._inner.failure)

    @property
    def client_id(self) -> str:
        """The id of this member at the brokers. Raises `InvalidStateError` before the start."""
        return self._call(lambda: self._inner.client_id)

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues this member reads now, sorted; queue id -1 stands for all queues of a topic at a broker,
        which the members share by POP.
        """
        return self._call(lambda: self._inner.assignment)

    @property
    def lag(self) -> dict[MessageQueue, int]:
        """Unconsumed messages per assigned queue, as of the last pull."""
        return self._call(lambda: self._inner.lag)

    @property
    def last_poll(self) -> float | None:
        """Epoch seconds of the last successful pull; None before the first."""
        return self._call(lambda: self._inner.last_poll)

    @property
    def last_error(self) -> Exception | None:
        """The error of the last pull; None when it succeeded."""
        return self._call(lambda: self._inner.last_error)

    @property
    def late_results(self) -> int:
        """Number of commits and returned messages that brokers refused because the queue had moved to another
        member of a managed group; otherwise 0.
        """
        return self._call(lambda: self._inner.late_results)

    @property
    def skipped_messages(self) -> int:
        """Number of messages that failed and were skipped, because neither a retry nor a dead letter of them
        could be stored.
        """
        return self._call(lambda: self._inner.skipped_messages)

    def subscribe(
        self,
        topic: str,
        expression: Expression = "*",
        handler: Handler | None = None,
        *,
        decode: Decode | None = None,
    ) -> None:
        """Consume `topic`; a second call replaces expression and handler. May be called before the start,
        which then returns when the brokers know the group, or later.

        `expression` is `*`, tags (`TagA || TagB`), or a filter over properties (`Sql("a > 1")`). Without
        `handler`, iterate over the consumer to get the messages. With `decode`, the handler gets what that
        returns for each message; where it raises, the handler counts as failed. All members of a group must
        have the same subscriptions. Raises `InvalidNameError`, `InvalidExpressionError`, which names position
        and token of an SQL error, and TypeError for a handler that is not a function or is a generator.
        """
        self._call(lambda: self._inner.subscribe(topic, expression, handler, decode=decode))

    def unsubscribe(self, topic: str) -> None:
        """Stop consuming `topic`; its queues are given up immediately."""
        self._call(lambda: self._inner.unsubscribe(topic))

    def start(self) -> None:
        """Join the group.

        Raises `NoNameServerError`, `TransportError` when no name server answers, or `InvalidStateError`.
        """
        self._run(self._inner.start)

    def pause(self) -> None:
        """Stop pulling until `resume`; the queues stay assigned, and pulled messages are still consumed
        (client:D-80).
        """
        self._call(lambda: self._inner.pause())

    def resume(self) -> None:
        """Resume pulling after `pause`."""
        self._call(lambda: self._inner.resume())

    @property
    def paused(self) -> bool:
        """Whether pulling is paused, by `pause` or by an offset reset in progress."""
        return self._call(lambda: self._inner.paused)

    def reset(self, to: datetime | int) -> None:
        """Move to the messages stored at or after `to`, an aware datetime or epoch milliseconds, in the
        queues of this member.

        Unfinished messages are dropped; running handlers get up to 10 s to end (client:D-82). Every member
        must do this for its queues. Raises `SparrowError` when a broker cannot be asked.
        """
        self._run(self._inner.reset, to)

    def set_threads(self, threads: int) -> None:
        """Set the maximum number of concurrent handlers (1 to 1000, client:D-93)."""
        self._call(lambda: self._inner.set_threads(threads))

    def running_info(self) -> ConsumerRunningInfo:
        """Information about this member for brokers and tools (client:D-86)."""
        return self._call(lambda: self._inner.running_info())

    def close(self) -> None:
        """Leave the group: finish running handlers, commit offsets, notify the brokers. Idempotent.

        Waits for running handlers, and for messages in the loops of other tasks or threads; messages in the
        caller's loop are returned. Takes at most `close_timeout` seconds; messages unfinished by then are
        delivered again. A second call waits for the first, and for a running start. Raises the error that
        stopped the consumer unless it was raised before.
        """
        self._let_go()
        self._run(self._inner.close)

    def wait(self) -> None:
        """Wait until the consumer is closed. Raises the error of a background task that failed."""
        self._run(self._inner.wait)


class PushConsumer(PushConsumerFacade):
    """Consumes topics as one member of `group`; the members share the queues.

        with PushConsumer("billing", name_server="127.0.0.1:9876") as consumer:
            consumer.subscribe("TopicTest", "TagA || TagB")
            for message in consumer:
                ...
                message.ack()

    Or give `subscribe` a handler: an `async def` runs on the loop, a plain function in one of `threads`
    threads. Returning means success, raising means retry (see `Retry`). Delivery is at least once: a message
    may come again after a crash, a rebalance or a retry.
    """

    def __init__(
        self, group: str, *, settings: ConsumerSettings | None = None, **options: Unpack[ConsumerOptions]
    ) -> None:
        """A consumer of `group`. `options` are the fields of `ConsumerSettings`; they override `settings`.

        `consume_from` says where a group without stored offsets starts: "last" (default), "first" or a
        datetime. `threads` is how many handlers run at once (20), `batch` how many messages a handler gets
        (1); above 1 it gets a list. `model="broadcasting"` gives every member all messages, `ordered=True`
        handles the messages of each queue one at a time. Raises `InvalidNameError` or `SettingsError`.
        """
        super().__init__(_PushConsumer(group, settings=settings, **options))

    @property
    def failure(self) -> ClientError | None:
        """The error that stopped the consumer, if any."""
        return self._call(lambda: self._inner.failure)

    @property
    def client_id(self) -> str:
        """The id of this member at the brokers. Raises `InvalidStateError` before the start."""
        return self._call(lambda: self._inner.client_id)

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues this member reads now, sorted; queue id -1 stands for all queues of a topic at a broker,
        which the members share by POP.
        """
        return self._call(lambda: self._inner.assignment)

    @property
    def lag(self) -> dict[MessageQueue, int]:
        """Unconsumed messages per assigned queue, as of the last pull."""
        return self._call(lambda: self._inner.lag)

    @property
    def last_poll(self) -> float | None:
        """Epoch seconds of the last successful pull; None before the first."""
        return self._call(lambda: self._inner.last_poll)

    @property
    def last_error(self) -> Exception | None:
        """The error of the last pull; None when it succeeded."""
        return self._call(lambda: self._inner.last_error)

    @property
    def late_results(self) -> int:
        """Number of commits and returned messages that brokers refused because the queue had moved to another
        member of a managed group; otherwise 0.
        """
        return self._call(lambda: self._inner.late_results)

    @property
    def skipped_messages(self) -> int:
        """Number of messages that failed and were skipped, because neither a retry nor a dead letter of them
        could be stored.
        """
        return self._call(lambda: self._inner.skipped_messages)

    def subscribe(
        self,
        topic: str,
        expression: Expression = "*",
        handler: Handler | None = None,
        *,
        decode: Decode | None = None,
    ) -> None:
        """Consume `topic`; a second call replaces expression and handler. May be called before the start,
        which then returns when the brokers know the group, or later.

        `expression` is `*`, tags (`TagA || TagB`), or a filter over properties (`Sql("a > 1")`). Without
        `handler`, iterate over the consumer to get the messages. With `decode`, the handler gets what that
        returns for each message; where it raises, the handler counts as failed. All members of a group must
        have the same subscriptions. Raises `InvalidNameError`, `InvalidExpressionError`, which names position
        and token of an SQL error, and TypeError for a handler that is not a function or is a generator.
        """
        self._call(lambda: self._inner.subscribe(topic, expression, handler, decode=decode))

    def unsubscribe(self, topic: str) -> None:
        """Stop consuming `topic`; its queues are given up immediately."""
        self._call(lambda: self._inner.unsubscribe(topic))

    def start(self) -> None:
        """Join the group.

        Raises `NoNameServerError`, `TransportError` when no name server answers, or `InvalidStateError`.
        """
        self._run(self._inner.start)

    def pause(self) -> None:
        """Stop pulling until `resume`; the queues stay assigned, and pulled messages are still consumed
        (client:D-80).
        """
        self._call(lambda: self._inner.pause())

    def resume(self) -> None:
        """Resume pulling after `pause`."""
        self._call(lambda: self._inner.resume())

    @property
    def paused(self) -> bool:
        """Whether pulling is paused, by `pause` or by an offset reset in progress."""
        return self._call(lambda: self._inner.paused)

    def reset(self, to: datetime | int) -> None:
        """Move to the messages stored at or after `to`, an aware datetime or epoch milliseconds, in the
        queues of this member.

        Unfinished messages are dropped; running handlers get up to 10 s to end (client:D-82). Every member
        must do this for its queues. Raises `SparrowError` when a broker cannot be asked.
        """
        self._run(self._inner.reset, to)

    def set_threads(self, threads: int) -> None:
        """Set the maximum number of concurrent handlers (1 to 1000, client:D-93)."""
        self._call(lambda: self._inner.set_threads(threads))

    def running_info(self) -> ConsumerRunningInfo:
        """Information about this member for brokers and tools (client:D-86)."""
        return self._call(lambda: self._inner.running_info())

    def close(self) -> None:
        """Leave the group: finish running handlers, commit offsets, notify the brokers. Idempotent.

        Waits for running handlers, and for messages in the loops of other tasks or threads; messages in the
        caller's loop are returned. Takes at most `close_timeout` seconds; messages unfinished by then are
        delivered again. A second call waits for the first, and for a running start. Raises the error that
        stopped the consumer unless it was raised before.
        """
        self._let_go()
        self._run(self._inner.close)

    def wait(self) -> None:
        """Wait until the consumer is closed. Raises the error of a background task that failed."""
        self._run(self._inner.wait)


class PullConsumer(PullConsumerFacade):
    """Reads messages on request. There are three ways to read; one consumer uses one of them.

    By offset, without a group; here from the beginning of each queue to its present end:

        with PullConsumer(name_server="127.0.0.1:9876") as consumer:
            for queue in consumer.queues("TopicTest"):
                offset, end = consumer.min_offset(queue), consumer.max_offset(queue)
                while offset < end:
                    result = consumer.pull(queue, offset)
                    for message in result.messages:
                        ...
                    offset = result.next_offset

    By `poll`, from the member's share of subscribed topics, or from assigned queues (RocketMQ's lite pull):

        with PullConsumer("audit", name_server="127.0.0.1:9876") as consumer:
            consumer.subscribe("TopicTest", "TagA || TagB")
            for message in consumer:  # or: for message in consumer.poll()
                ...

    Or by offset from the member's share: `register_topic` and `fetch_message_queues_in_balance`.

    Offsets are queue offsets; a committed offset is the next offset to read.
    """

    def __init__(
        self,
        group: str | None = None,
        *,
        settings: ClientSettings | None = None,
        **options: Unpack[PullOptions],
    ) -> None:
        """`options` are the fields of `PullSettings`; they override `settings`. `name_server` is `host:port`
        (several: separated by `;`), by default from the environment.

        Commits, polling and sharing need a `group`. The consumer is a member of it from the start, and the
        other members count it (`PullSettings.announce`). `settings` are `PullSettings`, or `ClientSettings`,
        which leave the other settings at their defaults. Raises `InvalidNameError` or `SettingsError`.
        """
        super().__init__(_PullConsumer(group, settings=settings, **options))

    @property
    def client_id(self) -> str:
        """The id of this client at the brokers. Raises `InvalidStateError` before the start."""
        return self._call(lambda: self._inner.client_id)

    def start(self) -> None:
        """Start. Raises `NoNameServerError`, `InvalidStateError` when it was started before, and
        `ClientError` when its client already has a consumer of this group. With subscriptions it also raises
        `TransportError` when no name server answers, and `BrokerError` or `InvalidExpressionError` when a
        broker refuses a SQL92 filter.
        """
        self._run(self._inner.start)

    def close(self) -> None:
        """Leave the group: commit the polled messages and notify the brokers. Calls in flight fail. What a
        loop has in hand is not committed.

        Takes at most `close_timeout` seconds. Idempotent; waits for a running start or close.
        """
        self._run(self._inner.close)

    @property
    def late_results(self) -> int:
        """Number of commits and returned messages that brokers refused because the queue had moved to another
        member of a managed group; otherwise 0.
        """
        return self._call(lambda: self._inner.late_results)

    def subscribe(
        self, topic: str, expression: Expression = "*", listener: QueueListener | None = None
    ) -> None:
        """Poll the member's share of `topic`; a second call replaces expression and listener.

        `expression` is `*`, tags (`TagA || TagB`), or a filter over properties (`Sql("a > 1")`). All members
        of a group must have the same subscriptions. `listener` is called with (topic, all queues, assigned
        queues) when the share changed; a plain function runs in a thread. May be called before or after the
        start; a broker without SQL92 support makes the start fail. Raises `InvalidNameError`,
        `InvalidExpressionError`, or `InvalidStateError` after `assign` or `register_topic`.
        """
        self._call(lambda: self._inner.subscribe(topic, expression, listener))

    def unsubscribe(self, topic: str) -> None:
        """Stop polling `topic`; its buffered messages are discarded."""
        self._call(lambda: self._inner.unsubscribe(topic))

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Poll exactly these queues, regardless of other members; replaces an earlier assignment.

        Raises `SettingsError` without queues, `InvalidStateError` after `subscribe` or `register_topic`, and
        for a member of a managed group, which reads only the queues that it was granted.
        """
        self._call(lambda: self._inner.assign(queues))

    def filter_assigned(self, topic: str, expression: Expression) -> None:
        """Filter assigned queues of `topic`; only before the start. Raises `InvalidStateError`."""
        self._call(lambda: self._inner.filter_assigned(topic, expression))

    def register_topic(self, topic: str, listener: QueueListener | None = None) -> None:
        """Take a share of the queues of `topic` without reading them: see `fetch_message_queues_in_balance`.

        `listener` replaces the consumer's listener. It is called with (topic, all queues, assigned queues)
        when a share changed. May be called before or after the start. Raises `InvalidNameError`, or
        `InvalidStateError` after `subscribe` or `assign`.
        """
        self._call(lambda: self._inner.register_topic(topic, listener))

    def fetch_message_queues_in_balance(self, topic: str) -> list[MessageQueue]:
        """This member's share of a registered topic now, sorted. Raises `ClientError` when it is not
        registered.
        """
        return self._call(lambda: self._inner.fetch_message_queues_in_balance(topic))

    def finish(self, queue: MessageQueue) -> None:
        """Declare a queue's pulled messages processed and its offset set; in a managed group it may now move.

        The next pull of the queue has the same effect, and so has a request for the queues of its topic.
        """
        self._call(lambda: self._inner.finish(queue))

    def send_back(self, message: ReceivedMessage, delay_level: int = 0) -> None:
        """Have the broker deliver a message again later, to the group's retry topic (client:E-14).

        Level 0 lets the dynamic setting `retry_delay` or the broker choose the delay; -1 makes it a dead
        letter immediately.
        """
        self._run(self._inner.send_back, message, delay_level)

    def fetch_raw(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_bytes: int = BULK_BYTES_MAX,
        max_messages: int = MESSAGES_MAX,
        expression: Expression = "*",
        wait: float = 0.0,
        timeout: float | None = None,
        read_from: ReadFrom | None = None,
    ) -> RawBatch:
        """Stored records from `offset` on, as the broker sent them: the result of one pull.

        At most `max_bytes` (up to 8 MiB; Apache's brokers stop at 256 KiB and 32 messages) and
        `max_messages`, but always one whole record if there is one. `expression` filters at the broker, tags
        only by their hash, so compare them again if they matter. `wait` is how many seconds the broker may
        hold the pull while there are no messages. `timeout` defaults to `wait` and 10 s. In a managed group
        dynamic settings apply: at most `pull_batch` messages, `tags` instead of `expression`, and
        `pull_interval` after the previous pull. Messages younger than `delay`, and paused queues, are not
        returned yet. `read_from` is "master", "slave" (which may be behind; the master if there is none) or
        None, the one that the master suggests.

        An offset that is not stored gives status OFFSET_ILLEGAL with the offset to continue from. Raises
        `NoRouteError`, `BrokerError` or `TransportError`.
        """
        return self._run(
            self._inner.fetch_raw,
            queue,
            offset,
            max_bytes=max_bytes,
            max_messages=max_messages,
            expression=expression,
            wait=wait,
            timeout=timeout,
            read_from=read_from,
        )

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int | None = None,
        expression: Expression = "*",
        wait: float = 0.0,
        timeout: float | None = None,
    ) -> PullResult:
        """Messages from `offset` on, decoded and filtered by the text of tags and by `FilterMessageHook`s.

        At most `max_messages`, by default 32 or the dynamic setting `pull_batch`. `ConsumeHook`s and traces
        treat the returned messages as consumed (client:E-08). Otherwise as `fetch_raw`, which calls no hooks.
        """
        return self._run(
            self._inner.pull,
            queue,
            offset,
            max_messages=max_messages,
            expression=expression,
            wait=wait,
            timeout=timeout,
        )

    def committed(self, queue: MessageQueue) -> int | None:
        """The group's committed offset, or None. For a queue in `assignment`, a commit that is not sent yet
        takes precedence. Needs a `group`.
        """
        return self._run(self._inner.committed, queue)

    def commit(
        self,
        queue: MessageQueue | Mapping[MessageQueue, int] | None = None,
        offset: int | None = None,
        *,
        persist: bool = True,
    ) -> None:
        """Store the next offset the group will read. Needs a `group`.

        `commit()` commits all messages that were polled or iterated, `commit(queue, offset)` one queue,
        `commit({queue: offset})` several; the last form skips queues that are not in `assignment` with a
        warning. With `persist` brokers confirm the commit, and their errors are raised. Without it the commit
        is sent within `persist_interval` seconds if the queue is in `assignment`.
        """
        self._run(self._inner.commit, queue, offset, persist=persist)

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this consumer reads now, sorted."""
        return self._call(lambda: self._inner.assignment)

    def poll(self, timeout: float | None = None) -> list[ReceivedMessage]:
        """The next messages of one queue, at most `pull_batch`; empty when none arrived in time.

        `timeout` in seconds defaults to `poll_timeout` (5). The messages count as handled when the next ones
        are asked for, at `commit`, and when the consumer is closed without an error. Raises
        `InvalidStateError` when nothing is subscribed or assigned, `SettingsError` for a negative timeout.
        """
        return self._run(self._inner.poll, timeout)

    def position(self, queue: MessageQueue) -> int | None:
        """The offset of the next message to handle in `queue`: of the next one polled, or else as committed.
        None if there is none.
        """
        return self._run(self._inner.position, queue)

    @property
    def lag(self) -> dict[MessageQueue, int]:
        """Messages not handled yet per polled queue, as of the last pull."""
        return self._call(lambda: self._inner.lag)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Poll `queue` from `offset` on; its buffered messages are discarded.

        Raises `ClientError` when the queue is not in `assignment`, `SettingsError` when the offset is below
        the smallest stored one or above the next one.
        """
        self._run(self._inner.seek, queue, offset)

    def seek_to_beginning(self, queue: MessageQueue) -> None:
        """Poll `queue` from the oldest stored message on."""
        self._run(self._inner.seek_to_beginning, queue)

    seek_to_begin = seek_to_beginning

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Poll only messages that are stored in `queue` from now on."""
        self._run(self._inner.seek_to_end, queue)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop reading from these queues; buffered messages are still returned by `poll`. Raises
        `ClientError` for a queue that is not in `assignment`.
        """
        self._call(lambda: self._inner.pause(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Resume reading from paused queues. Raises the same errors as `pause`."""
        self._call(lambda: self._inner.resume(queues))

    @property
    def paused(self) -> list[MessageQueue]:
        """The paused queues, sorted."""
        return self._call(lambda: self._inner.paused)

    def store_offset(self, queue: MessageQueue, offset: int) -> None:
        """Set the next offset to consume in memory; it may be smaller than before. It is sent every
        `persist_interval` seconds for queues of the member's share. Other queues need `commit`.
        """
        self._call(lambda: self._inner.store_offset(queue, offset))

    update_consume_offset = store_offset

    def fetch_consume_offset(self, queue: MessageQueue, *, from_store: bool = False) -> int | None:
        """The next offset to consume: the one in memory, or else the broker's. With `from_store` only the
        broker's. None if there is none.
        """
        return self._run(self._inner.fetch_consume_offset, queue, from_store=from_store)

    def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of `topic`, sorted; asks a name server each time. Raises `NoRouteError`."""
        return self._run(self._inner.queues, topic)

    def publish_queues(self, topic: str) -> list[MessageQueue]:
        """The writable queues of `topic`. Otherwise like `queues`."""
        return self._run(self._inner.publish_queues, topic)

    def update_name_servers(self, namesrv: str) -> None:
        """Use these name servers from now on: `host:port`, several separated by `;`."""
        self._call(lambda: self._inner.update_name_servers(namesrv))

    def min_offset(self, queue: MessageQueue) -> int:
        """The smallest stored offset."""
        return self._run(self._inner.min_offset, queue)

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset of the next message."""
        return self._run(self._inner.max_offset, queue)

    def search_offset(
        self, queue: MessageQueue, timestamp: datetime | int | None = None, *, timestamp_ms: int | None = None
    ) -> int:
        """The offset of the first message stored at or after `timestamp`, an aware datetime or epoch
        milliseconds. `timestamp_ms` is a former name of `timestamp`.
        """
        return self._run(self._inner.search_offset, queue, timestamp, timestamp_ms=timestamp_ms)

    def earliest_time(self, queue: MessageQueue) -> int | None:
        """Epoch milliseconds of the oldest stored message; None when there is none."""
        return self._run(self._inner.earliest_time, queue)

    def watch_topic(self, topic: str, listener: TopicListener) -> None:
        """Call `listener` with (topic, queues) when the number of the topic's queues changes.

        The check runs every `topic_check_interval` seconds. May be called before or after the start.
        """
        self._call(lambda: self._inner.watch_topic(topic, listener))


class SimpleConsumer(SimpleConsumerFacade):
    """Receives single messages of subscribed topics, which it then acknowledges one by one.

        with SimpleConsumer("billing", name_server="127.0.0.1:9876") as consumer:
            consumer.subscribe("TopicTest", "TagA || TagB")
            for message in consumer.receive(16, invisible=30.0):
                ...
                consumer.ack(message)

    A received message is hidden from the other members of the group for its invisible time. If it is not
    acknowledged by then, it is delivered again, with `reconsume_times` one higher. There is no rebalance:
    any number of members receive from every queue. Needs brokers of RocketMQ 5 or SparrowMQ. A group uses
    either this consumer or push and pull consumers.
    """

    def __init__(
        self,
        group: str,
        *,
        consume_from_first: bool = True,
        retries: int = -1,
        max_reconsume_times: int | None = None,
        settings: ClientSettings | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """`options` are the fields of `ClientSettings`; they override `settings`. `name_server` is
        `host:port` (several: separated by `;`), by default from the environment.

        A new group begins with the first stored message, or with the last if `consume_from_first` is false.
        A message that was delivered again `retries` times becomes a dead letter the next time. With -1 the
        group's own limit counts (`retryMaxTimes`, by default 16). `max_reconsume_times` is its other name.
        Raises `InvalidNameError` or `SettingsError`.
        """
        super().__init__(
            _SimpleConsumer(
                group,
                consume_from_first=consume_from_first,
                retries=retries,
                max_reconsume_times=max_reconsume_times,
                settings=settings,
                **options,
            )
        )

    def start(self) -> None:
        """Start. Raises `NoNameServerError`, or `InvalidStateError` when it was started before."""
        self._run(self._inner.start)

    def close(self) -> None:
        """Disconnect. Messages that were not acknowledged are delivered to others when their time is over.
        Idempotent.
        """
        self._run(self._inner.close)

    def subscribe(self, topic: str, expression: Expression = "*") -> None:
        """Receive messages of `topic` that match a tag expression or SQL92 filter; replaces an earlier one.

        May be called before or after the start. Raises `InvalidNameError` or `InvalidExpressionError`.
        """
        self._call(lambda: self._inner.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Receive nothing of `topic` any more; does nothing if it is not subscribed."""
        self._call(lambda: self._inner.unsubscribe(topic))

    def receive(
        self, max_messages: int = USUAL_MESSAGES, *, invisible: float = 30.0, wait: float = 15.0
    ) -> list[PoppedMessage]:
        """Up to `max_messages` (1 to 32) messages, each hidden from other members for `invisible` seconds.

        Waits up to `wait` seconds for the first ones; empty if none came. Topics and brokers are asked in
        turn; those that fail are logged and left out. If all fail, it raises `NoRouteError`, `BrokerError`
        (for example 3 from a broker before RocketMQ 5) or `TransportError`. Raises `InvalidStateError`
        without a subscription.
        """
        return self._run(self._inner.receive, max_messages, invisible=invisible, wait=wait)

    def ack(self, message: PoppedMessage) -> None:
        """Acknowledge a processed message: it is not delivered again. Raises `BrokerError` and
        `TransportError`.

        An acknowledgement after the invisible time is accepted without effect: other members may have the
        message.
        """
        self._run(self._inner.ack, message)

    def change_invisible(self, message: PoppedMessage, invisible: float) -> None:
        """Hide the message for `invisible` seconds from now on; 0 delivers it again at once. The message has
        a new receipt then. Raises `BrokerError` and `TransportError`.
        """
        self._run(self._inner.change_invisible, message, invisible)

    def dead_letter(self, message: PoppedMessage) -> None:
        """Move the message to the group's dead letters and acknowledge it. Raises `BrokerError` and
        `TransportError`; the message may then be in both places.
        """
        self._run(self._inner.dead_letter, message)


class PullSchedule(PullScheduleFacade):
    """Calls a callback for each queue of the member's share of a topic, over and over.

        def work(queue: MessageQueue, context: PullContext) -> None:
            offset = context.consumer.fetch_consume_offset(queue) or 0
            result = context.consumer.pull(queue, offset)
            ...
            context.consumer.store_offset(queue, result.next_offset)

        schedule = PullSchedule("audit", name_server="127.0.0.1:9876")
        schedule.register("TopicTest", work)
        with schedule:
            ...

    An `async def` callback runs on the loop, a plain function in one of `threads` threads. One queue's calls
    never overlap. Calls for a queue stop when it leaves the share. A running call does not delay this, except
    in a managed group: there the queue moves when the call has ended, and the dynamic setting `pull_interval`
    delays the next call.
    """

    def __init__(
        self,
        group: str,
        *,
        threads: int = 20,
        settings: ClientSettings | None = None,
        **options: Unpack[PullOptions],
    ) -> None:
        """`settings` and `options` are as for `PullConsumer`. Raises `InvalidNameError`, `SettingsError`."""
        super().__init__(_PullSchedule(group, threads=threads, settings=settings, **options))

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues with active calls, sorted."""
        return self._call(lambda: self._inner.queues)

    def register(self, topic: str, callback: PullCallback) -> None:
        """Call `callback` for this member's queues of `topic`; before the start only.

        Raises `InvalidNameError` or `InvalidStateError`.
        """
        self._call(lambda: self._inner.register(topic, callback))

    def start(self) -> None:
        """Join the group. Raises the same errors as `PullConsumer.start`."""
        self._run(self._inner.start)

    def close(self) -> None:
        """Stop the calls, commit and leave the group. Idempotent. A callback that calls this goes on."""
        self._run(self._inner.close)


class Admin(AdminFacade):
    """Queries and administers clusters.

        with Admin(name_server="127.0.0.1:9876") as admin:
            admin.topics.create("TopicTest", queues=8)
            admin.groups.reset("billing", "TopicTest", "first")

    Its calls are in parts: `topics`, `groups`, `brokers`, `messages`, `dead_letters`, `producers`, `users`,
    `holds`, `policies`, `name_servers` and `replicas`. `list` and nouns ask; `create`, `set`, `delete` and
    RocketMQ's verbs change.

    Errors: `BrokerError` with the server's response code, `TransportError`, `NoRouteError` for unknown
    topics.
    """

    def __init__(
        self,
        name_servers: str | None = None,
        *,
        settings: ClientSettings | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """`name_servers`, or the keyword `name_server`, is `host:port` (several: separated by `;`), by
        default from the environment. `options` are the fields of `ClientSettings`; they override `settings`.
        """
        super().__init__(_Admin(name_servers, settings=settings, **options))
        self.topics = TopicAdmin(self._inner.topics)
        self.groups = GroupAdmin(self._inner.groups)
        self.brokers = BrokerAdmin(self._inner.brokers)
        self.messages = MessageAdmin(self._inner.messages)
        self.dead_letters = DeadLetterAdmin(self._inner.dead_letters)
        self.producers = ProducerAdmin(self._inner.producers)
        self.users = UserAdmin(self._inner.users)
        self.holds = HoldAdmin(self._inner.holds)
        self.policies = PolicyAdmin(self._inner.policies)
        self.name_servers = NameServerAdmin(self._inner.name_servers)
        self.replicas = ReplicaAdmin(self._inner.replicas)

    def start(self) -> None:
        """Start. Raises `NoNameServerError`, or `InvalidStateError` when it was started before."""
        self._run(self._inner.start)

    def close(self) -> None:
        """Close the connections. Idempotent; a second call waits for the first."""
        self._run(self._inner.close)
