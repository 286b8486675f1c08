"""Consumer groups: creation, deletion, members, progress, offset resets (client:F)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

from msgspec.structs import replace

from sparrowmq.client.admin.calls import (
    OFFSETS_INLINE_BYTES,
    AdminPart,
    all_apart,
    apart,
    at_each,
    masters_of,
)
from sparrowmq.client.admin.types import GroupConnections, GroupMemberInfo, MemberStatus, QueueProgress
from sparrowmq.client.base.settings import ConsumeFrom, check_range
from sparrowmq.core.clock import epoch_ms
from sparrowmq.core.errors import BrokerError, ClientError, SettingsError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import check_group, check_topic, dlq_topic, is_system_group, retry_topic
from sparrowmq.core.settings.text import parse_properties
from sparrowmq.protocol import bodies, call_headers, headers
from sparrowmq.protocol.bodies.clients import POP_MODE, PULL_MODE
from sparrowmq.protocol.codes import RequestCode, ResponseCode, request_name
from sparrowmq.protocol.pop.records import RequestMode

_CALL_SECONDS: Final = 15.0
"""Seconds for requests that a broker forwards to a client, which has 10 s."""
_MEMBERS_SECONDS: Final = 60.0
_MEMBERS_AT_ONCE: Final = 32
_OLD_WAY: Final = frozenset({ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.REQUEST_CODE_NOT_SUPPORTED})
"""Response codes after which offsets are set one by one: no member is online, or the broker cannot do it."""
_SERVER_SIDE: Final = "useServerSideResetOffset"
_Move = Callable[[str, str, MessageQueue, int], Awaitable[None]]
"""Moves a group's offset in one queue of the broker at an address."""


INFO_INLINE_BYTES: Final = 4 * 1024
"""Larger running infos are decoded in a thread: only the slow parser reads their keys, which are objects."""


def _running_info(body: bytes) -> bodies.ConsumerRunningInfo:
    return bodies.ConsumerRunningInfo.decode(body)


def _group_rate(answers: Iterable[bytes]) -> float:
    """The rates in bodies of code 208, together."""
    return sum(bodies.ConsumeStats.decode(answer).consume_tps for answer in answers)


class GroupAdmin(AdminPart):
    """The consumer groups."""

    async def create(
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
        check_group(group)
        if retries is not None:
            check_range("retries", retries, 0, 2**31 - 1)
        fields = {
            "retry_max_times": retries,
            "consume_enable": enabled,
            "consume_broadcast_enable": broadcast,
            "consume_message_orderly": ordered,
        }
        given: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
        masters = await self._calls.cluster_masters(cluster)
        known = await self._group_configs(group, masters)
        code, ask = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, self._calls.running().brokers.ask
        new = bodies.SubscriptionGroupConfig(group_name=group)
        changed = {name: replace(known.get(name, new), **given).encode() for name in masters}
        await at_each(
            {
                name: ask(masters[name], code, body=body, timeout=_CALL_SECONDS)
                for name, body in changed.items()
            }
        )

    async def set_request_mode(
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
        check_group(group)
        if mode not in (PULL_MODE, POP_MODE):
            raise SettingsError(f"mode={mode!r} is unknown; give {PULL_MODE!r} or {POP_MODE!r}", "mode", mode)
        check_range("shared_queues", shared_queues, 0, 2**31 - 1)
        asked = RequestMode(consumer_group=group, mode=mode, pop_share_queue_num=shared_queues, topic=topic)
        code, body = RequestCode.SET_MESSAGE_REQUEST_MODE, asked.encode()
        ask = self._calls.running().brokers.ask
        brokers = set(masters_of(await self._calls.route(topic)).values())
        masters = set((await self._calls.cluster_masters(cluster)).values()) & brokers
        await at_each({at: ask(at, code, body=body, timeout=_CALL_SECONDS) for at in sorted(masters)})

    async def delete(self, group: str, *, offsets: bool = True, cluster: str | None = None) -> None:
        """Delete a group with its retry and dead letter topics, and by default its offsets.

        Raises `ClientError` for RocketMQ's system groups.
        """
        check_group(group)
        if is_system_group(group):
            text = f"the group {group!r} is RocketMQ's own and cannot be deleted"
            raise ClientError(text, what="group", value=group)
        masters = list((await self._calls.cluster_masters(cluster)).values())
        header = headers.DeleteSubscriptionGroupRequest(
            group_name=group, clean_offset=offsets, remove_offset=offsets
        )
        code = RequestCode.DELETE_SUBSCRIPTIONGROUP
        await at_each({at: self._calls.ask(at, code, header) for at in masters})
        for topic in (retry_topic(group), dlq_topic(group)):
            gone = headers.DeleteTopicRequest(topic=topic)
            code = RequestCode.DELETE_TOPIC_IN_BROKER
            await at_each({at: self._calls.ask(at, code, gone) for at in masters})
            forgotten = headers.DeleteTopicFromNamesrvRequest(topic=topic)
            for address in await self._calls.running().name_servers.known():
                await self._calls.ask(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, forgotten)

    async def config(self, group: str) -> dict[str, bodies.SubscriptionGroupConfig]:
        """The group's settings by broker name; empty when no broker knows it."""
        check_group(group)
        return await self._group_configs(group, await self._calls.cluster_masters(None))

    async def rate(self, group: str) -> float:
        """Messages per second that the group consumes, as measured by all brokers."""
        check_group(group)
        header = headers.GetConsumeStatsRequest(consumer_group=group)
        code = RequestCode.GET_CONSUME_STATS
        masters = await self._calls.group_masters(group)
        answers = await asyncio.gather(*(self._calls.ask(address, code, header) for address in masters))
        return await all_apart(_group_rate, answers, OFFSETS_INLINE_BYTES)

    async def status(
        self, group: str, *, stacks: bool = False, seconds: float = _MEMBERS_SECONDS
    ) -> list[MemberStatus]:
        """Running info of each online member: settings, queues, rates.

        `stacks` includes a thread dump. A member that does not answer has an `error` instead, and so have
        members not reached within `seconds` (60); 32 are asked at a time. Empty when no member is online.
        """
        check_group(group)
        for address in await self._calls.group_masters(group):
            members = await self._client_ids(address, group)
            if members:
                return await self._statuses(address, group, members, stacks, seconds)
        return []

    async def member(self, group: str, client_id: str, *, stacks: bool = False) -> MemberStatus | None:
        """Running info of one member, as in `status`; None when it is not online."""
        check_group(group)
        for address in await self._calls.group_masters(group):
            if client_id in await self._client_ids(address, group):
                return await self._status(address, group, client_id, stacks)
        return None

    async def member_offsets(
        self, group: str, topic: str, client_id: str | None = None
    ) -> dict[str, dict[MessageQueue, int]]:
        """Offsets that members have in memory, by client id; only those of `client_id` if given.

        Raises `BrokerError` when no member is online or a member's version does not support this.
        """
        check_group(group)
        check_topic(topic)
        header = call_headers.GetConsumerStatusRequest(topic=topic, group=group, client_addr=client_id)
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        ask = self._calls.running().brokers.ask
        masters = masters_of(await self._calls.route(topic)).values()
        answers = await asyncio.gather(*(ask(at, code, header, timeout=_CALL_SECONDS) for at in masters))
        found: dict[str, dict[MessageQueue, int]] = {}
        for answer in answers:
            status = await apart(bodies.ConsumerStatusBody.decode, answer.body, OFFSETS_INLINE_BYTES)
            for name, offsets in status.clients.items():
                found.setdefault(name, {}).update(offsets)
        return found

    async def progress(self, group: str, topic: str | None = None) -> list[QueueProgress]:
        """The group's progress in every queue for which it has offsets, sorted; only of `topic` when given.

        Raises `BrokerError` when no broker knows the group.
        """
        check_group(group)
        masters = await self._calls.group_masters(group)
        header = headers.GetConsumeStatsRequest(consumer_group=group, topic=topic)
        answers = await asyncio.gather(
            *(self._calls.ask(address, RequestCode.GET_CONSUME_STATS, header) for address in masters)
        )
        return await all_apart(_progress, answers, OFFSETS_INLINE_BYTES)

    async def connections(self, group: str) -> GroupConnections | None:
        """Members and subscriptions of the group; None when no member is online."""
        check_group(group)
        header = headers.GetConsumerConnectionListRequest(consumer_group=group)
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        for address in await self._calls.group_masters(group):
            try:
                found = await apart(
                    bodies.ConsumerConnection.decode, await self._calls.ask(address, code, header)
                )
            except BrokerError as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
                continue
            return GroupConnections(
                [
                    GroupMemberInfo(c.client_id, c.client_addr, c.language, c.version)
                    for c in found.connections
                ],
                dict(found.subscriptions),
                found.consume_type.value,
                found.message_model.value,
                found.consume_from_where.value,
            )
        return None

    async def members(self, group: str) -> dict[str, list[GroupMemberInfo]]:
        """The members connected to each master that knows the group, by the master's address; the list may be
        empty.

        Each member should be connected to all of them.
        """
        check_group(group)
        masters = await self._calls.group_masters(group)
        return dict(
            zip(
                masters,
                await asyncio.gather(*(self._calls.members_at(one, group) for one in masters)),
                strict=True,
            )
        )

    async def committed(self, group: str, queue: MessageQueue, *, stored_only: bool = False) -> int | None:
        """The group's committed offset in a queue, or None.

        Where none is stored and the queue's first message is there and young, brokers answer 0, because new
        members begin there; with `stored_only` it is None (brokers of 4.9 answer 0 even then).
        """
        check_group(group)
        address = await self._calls.master_of(queue)
        return await self._calls.running().brokers.query_offset(
            address, group, queue, stored_only=stored_only
        )

    async def commit(
        self, group: str, queue: MessageQueue, offset: int, *, generation: int | None = None
    ) -> None:
        """Set the next offset the group will read. A member that is online keeps its current position.

        In a managed group `generation` must be that of the queue; its broker refuses others with code 90011.
        """
        check_group(group)
        check_range("offset", offset, 0, 2**63 - 1)
        await self._calls.running().brokers.update_offset(
            await self._calls.master_of(queue), group, queue, offset, oneway=False, generation=generation
        )

    # Moving

    async def reset(
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
        check_group(group)
        timestamp = _timestamp(to)
        route = await self._calls.route(topic)
        if dry_run and not await self.config(group):
            raise _missing(f"Group {group} does not exist")
        move = self._would_reset_at if dry_run else self._reset_at
        moved = await asyncio.gather(
            *(move(address, group, topic, timestamp, force) for address in masters_of(route).values())
        )
        return dict(sorted((queue, offset) for table in moved for queue, offset in table.items()))

    async def reset_queue(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Move the group's offset in one queue to `offset`.

        Only brokers with server-side reset (5.x with `useServerSideResetOffset`) can move online members in
        one queue. Other brokers only store the offset; online members keep their current position.
        """
        check_group(group)
        check_range("offset", offset, 0, 2**63 - 1)
        address = await self._calls.master_of(queue)
        if await self._resets_itself(address):
            await self._reset_one(address, group, queue, offset)
        else:
            await self._calls.running().brokers.update_offset(address, group, queue, offset, oneway=False)

    async def clone_offsets(
        self, source: str, target: str, topic: str | None = None
    ) -> dict[MessageQueue, int]:
        """Copy the stored offsets of `source` to `target`, for all topics or one. Returns the offsets that
        were set.

        The group `target` is created at brokers that do not know it. The retry topic is skipped. Raises
        `ClientError` when `source` has no offsets, and when members of `target` are online, because they
        would overwrite the new offsets.
        """
        for group in (source, target):
            check_group(group)
        if source == target:
            text = f"source and target are the same group, {source!r}; give another target"
            raise ClientError(text, what="target", value=target)
        header = headers.GetConsumeStatsRequest(consumer_group=source, topic=topic)
        moved: dict[MessageQueue, int] = {}
        for address in await self._calls.group_masters(source):
            body = await self._calls.ask(address, RequestCode.GET_CONSUME_STATS, header)
            found = await apart(bodies.ConsumeStats.decode, body, OFFSETS_INLINE_BYTES)
            for queue in found.offset_table:
                if queue.topic == retry_topic(source):
                    continue
                offset = await self._calls.running().brokers.query_offset(address, source, queue)
                if offset is not None:
                    moved[queue] = offset
        if not moved:
            of = "" if topic is None else f" in topic {topic!r}"
            text = f"the group {source!r} has no offsets{of}; see `sparrow group list`"
            raise ClientError(text, what="offsets", value=source)
        await self._need_nobody(target)
        for queue, offset in moved.items():
            await self._give_offset(await self._calls.master_of(queue), target, queue, offset)
        return dict(sorted(moved.items()))

    # Inside

    async def _group_configs(
        self, group: str, masters: Mapping[str, str]
    ) -> dict[str, bodies.SubscriptionGroupConfig]:
        """The group's settings by broker name, at these masters."""
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        answers = await asyncio.gather(*(self._calls.ask(address, code) for address in masters.values()))
        found = {}
        for name, answer in zip(masters, answers, strict=True):
            table = await apart(bodies.SubscriptionGroupTable.decode, answer)
            config = table.subscription_group_table.get(group)
            if config is not None:
                found[name] = config
        return found

    async def _need_nobody(self, group: str) -> None:
        for address in await self._calls.group_masters(group):
            if members := await self._client_ids(address, group):
                raise ClientError(
                    f"group {group!r} has {len(members)} members online, {members[0]} first: they would "
                    f"continue at their current offsets; stop them before you set the offsets",
                    what="members",
                    value=members,
                )

    async def _give_offset(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        """Store an offset for a group that may be unknown to the broker (broker:5.5)."""
        brokers = self._calls.running().brokers
        try:
            await brokers.update_offset(address, group, queue, offset, oneway=False)
        except BrokerError as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            code, config = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, bodies.SubscriptionGroupConfig
            await brokers.ask(address, code, body=config(group_name=group).encode(), timeout=_CALL_SECONDS)
            await brokers.update_offset(address, group, queue, offset, oneway=False)

    async def _client_ids(self, address: str, group: str) -> Sequence[str]:
        return sorted({one.client_id for one in await self._calls.members_at(address, group)})

    async def _statuses(
        self, address: str, group: str, members: Sequence[str], stacks: bool, seconds: float
    ) -> list[MemberStatus]:
        found: dict[str, MemberStatus] = {}
        waiting = iter(members)

        async def work() -> None:
            for client_id in waiting:
                found[client_id] = await self._status(address, group, client_id, stacks)

        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(work() for _ in range(min(_MEMBERS_AT_ONCE, len(members)))))
        error = f"it did not answer, or was not asked, within the {seconds:g} s for {len(members)} members"
        return [found.get(one) or MemberStatus(one, error=error) for one in members]

    async def _status(self, address: str, group: str, client_id: str, stacks: bool) -> MemberStatus:
        header = call_headers.GetConsumerRunningInfoRequest(
            consumer_group=group, client_id=client_id, jstack_enable=stacks
        )
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        try:
            answer = await self._calls.running().brokers.ask(address, code, header, timeout=_CALL_SECONDS)
            info = await apart(_running_info, answer.body, INFO_INLINE_BYTES)
            return MemberStatus(client_id, info)
        except SparrowError as error:
            return MemberStatus(client_id, error=str(error))

    async def _resets_itself(self, address: str) -> bool:
        """Whether a broker has server-side reset, which accepts single queues and ignores `force`.

        Other brokers send the timestamp to the members and would move the whole topic (client:F-06).
        """
        try:
            body = await self._calls.ask(address, RequestCode.GET_BROKER_CONFIG)
        except BrokerError:
            return False
        return parse_properties(body.decode("utf-8", "replace")).get(_SERVER_SIDE) == "true"

    async def _reset_at(
        self, address: str, group: str, topic: str, timestamp: int, force: bool
    ) -> dict[MessageQueue, int]:
        if not force and await self._resets_itself(address):
            return await self._one_by_one(address, group, topic, timestamp, force, self._reset_one)
        header = call_headers.ResetOffsetRequest(
            topic=topic, group=group, timestamp=timestamp, is_force=force
        )
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        try:
            answer = await self._calls.running().brokers.ask(address, code, header, timeout=_CALL_SECONDS)
        except BrokerError as error:
            if error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise _missing(error.remark, address) from error
            if error.code not in _OLD_WAY:
                raise
            return await self._one_by_one(address, group, topic, timestamp, force, self._store_one)
        if not answer.body:
            return {}
        return (await apart(bodies.ResetOffsetBody.decode, answer.body, OFFSETS_INLINE_BYTES)).offset_table

    async def _would_reset_at(
        self, address: str, group: str, topic: str, timestamp: int, force: bool
    ) -> dict[MessageQueue, int]:
        return await self._one_by_one(address, group, topic, timestamp, force, _leave_one)

    async def _reset_one(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        header = call_headers.ResetOffsetRequest(
            topic=queue.topic,
            group=group,
            timestamp=-1,
            is_force=True,
            queue_id=queue.queue_id,
            offset=offset,
        )
        await self._calls.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)

    async def _store_one(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        await self._calls.running().brokers.update_offset(address, group, queue, offset, oneway=False)

    async def _one_by_one(
        self, address: str, group: str, topic: str, timestamp: int, force: bool, move: _Move
    ) -> dict[MessageQueue, int]:
        """Look up each queue's offset at that time and move the queue there, as old tools do."""
        brokers = self._calls.running().brokers
        header = headers.GetConsumeStatsRequest(consumer_group=group, topic=topic)
        body = await self._calls.ask(address, RequestCode.GET_CONSUME_STATS, header)
        moved = {}
        found = await apart(bodies.ConsumeStats.decode, body, OFFSETS_INLINE_BYTES)
        for queue, place in found.offset_table.items():
            if timestamp < 0:
                offset = await brokers.max_offset(address, queue)
            else:
                offset = await brokers.search_offset(address, queue, timestamp)
            if force or offset <= place.consumer_offset:
                await move(address, group, queue, offset)
                moved[queue] = offset
        return moved

    async def list(self, *, system: bool = False) -> list[str]:
        """Names of all consumer groups of all brokers, sorted; `system` includes RocketMQ's system groups."""
        masters = await self._calls.cluster_masters(None)
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        answers = await asyncio.gather(*(self._calls.ask(address, code) for address in masters.values()))
        names = await all_apart(_group_names, answers)
        return sorted(name for name in names if system or not is_system_group(name))


def _missing(remark: str, address: str = "") -> BrokerError:
    return BrokerError(
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        f"{remark}; see the names with `sparrow group list`",
        address=address,
        request=request_name(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET),
    )


async def _leave_one(address: str, group: str, queue: MessageQueue, offset: int) -> None:
    """A move that moves nothing."""


def _timestamp(to: ConsumeFrom) -> int:
    """The position as requests encode it: epoch milliseconds, -1 for the end.

    Raises `ClientError` for another word, `SettingsError` for a time out of range or without a time zone.
    """
    if to == "last":
        return -1
    if to == "first":
        return 0
    if isinstance(to, str):
        raise ClientError(f"to={to!r} is unknown; give 'first', 'last' or a datetime")
    return epoch_ms("to", to)


def _group_names(answers: Iterable[bytes]) -> set[str]:
    """The groups in bodies of code 201."""
    tables = map(bodies.SubscriptionGroupTable.decode, answers)
    return {name for table in tables for name in table.subscription_group_table}


def _progress(answers: Iterable[bytes]) -> list[QueueProgress]:
    """The offsets in bodies of code 208, sorted."""
    return sorted_progress(map(bodies.ConsumeStats.decode, answers))


def sorted_progress(tables: Iterable[bodies.ConsumeStats]) -> list[QueueProgress]:
    """The offsets in these tables, by queue."""
    found = [
        QueueProgress(queue, one.broker_offset, one.consumer_offset, one.last_timestamp, one.pull_offset)
        for table in tables
        for queue, one in table.offset_table.items()
    ]
    return sorted(found, key=lambda progress: progress.queue)
