"""Policies of managed groups at a broker: saved on disk, set and queried (90201 to 90203), and enforced
before handlers.

A policy is saved before it is acknowledged and in force when the answer is sent; it is loaded before the
first request. Requests of other groups cost one lookup in a dictionary that is usually empty.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sparrowmq.broker.base.offsets import answer, refusal
from sparrowmq.broker.members.fence import GROUPS_MAX, ManagedGroup, highest_gone, judge
from sparrowmq.core.errors import StoreCorruptError
from sparrowmq.protocol.bodies import (
    AssignmentRequest,
    Assignments,
    ConsumerList,
    LockBatchRequestBody,
    LockBatchResponseBody,
    wire_queues,
)
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers import ConsumerSendMsgBackRequest, UpdateConsumerOffsetRequest, from_ext
from sparrowmq.protocol.managed import GroupPolicies, GroupPolicy, GroupPolicyRequest
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.broker.base.internal_store import InnerStore
    from sparrowmq.broker.members.locks import LockTable
    from sparrowmq.broker.tables.clients import ClientTable
    from sparrowmq.core.clock import Clock
    from sparrowmq.protocol.frame import Command
    from sparrowmq.store.tables.config_file import ConfigFile
    from sparrowmq.transport.connection import Connection

log = logging.getLogger("sparrowmq.broker")
Handler = Callable[["Connection", "Command"], Any]
FENCED: Final = ResponseCode.GENERATION_FENCED


class Fence:
    """The managed groups of one broker. Raises `StoreCorruptError` when its file cannot be parsed.

    `groups` is never replaced, so frequent callers may keep a reference. `changed` is called with the name of
    each group whose policy changed, once the new policy is in force.
    """

    def __init__(
        self,
        file: ConfigFile,
        broker_name: str,
        clients: ClientTable,
        locks: LockTable,
        clock: Clock,
        *,
        pool: Executor | None = None,
        changed: Callable[[str], None] = lambda group: None,
    ) -> None:
        self._file = file
        self._broker = broker_name
        self._clients = clients
        self._locks = locks
        self._clock = clock
        self._pool = pool
        self._saving = asyncio.Lock()
        self._changing: set[asyncio.Task[Command]] = set()
        self._occasional = OccasionalLog(log)
        self._changed = changed
        self.refused = 0
        """Requests refused since the start."""
        try:
            found = msgspec.convert(file.load(), GroupPolicies, strict=False)
        except msgspec.ValidationError as error:
            raise StoreCorruptError(
                f"{file.path} is not a table of group policies ({error}); restore it: without it members "
                "that lost their queues could still consume from them",
                what="table",
                value=file.path,
            ) from error
        self.groups = {one.group: ManagedGroup(one, broker_name) for one in found.policies}
        self._retired = dict(found.retired)

    # Called by the pull path

    def refusal(self, group: str, topic: str, queue_id: int, generation: int | None) -> str:
        """Why a request about a queue is refused; empty when accepted. Refusals are counted and logged."""
        managed = self.groups.get(group)
        text = "" if managed is None else managed.refusal(topic, queue_id, generation)
        if text:
            self.refused += 1
            self._occasional.write(logging.WARNING, f"fence {group}", f"refused: {text}")
        return text

    def is_paused(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a group's queue is paused now."""
        managed = self.groups.get(group)
        return managed is not None and (
            managed.paused_until(topic, queue_id, self._clock.now_ms()) is not None
        )

    # Before other handlers

    def guard(self, handlers: dict[int, Any], inner: InnerStore) -> dict[int, Any]:
        """The handlers, with this fence before those that change a group's state or control its members."""
        return {
            **handlers,
            Code.UPDATE_CONSUMER_OFFSET: self._commits(handlers[Code.UPDATE_CONSUMER_OFFSET]),
            Code.CONSUMER_SEND_MSG_BACK: self._returns(handlers[Code.CONSUMER_SEND_MSG_BACK], inner),
            Code.LOCK_BATCH_MQ: self._locking(handlers[Code.LOCK_BATCH_MQ]),
            Code.GET_CONSUMER_LIST_BY_GROUP: self._members(handlers[Code.GET_CONSUMER_LIST_BY_GROUP]),
            Code.QUERY_ASSIGNMENT: self._assigning(handlers[Code.QUERY_ASSIGNMENT]),
            Code.PUT_GROUP_POLICY: self.put,
            Code.DELETE_GROUP_POLICY: self.delete,
            Code.GET_GROUP_POLICIES: self.list,
            Code.JOIN_MANAGED_GROUP: self.judged,
            Code.REPORT_MANAGED_MEMBER: self.judged,
        }

    def judged(self, connection: Connection, command: Command) -> Command:
        """90211, 90212: a member's message to its coordinator, which queries whether the member may consume.
        It may if the request passed access control; nothing else is done.
        """
        return answer(command)

    def _commits(self, handler: Handler) -> Handler:
        def commit(connection: Connection, command: Command) -> Any:
            if self.groups and command.ext.get("consumerGroup") in self.groups:
                request = from_ext(UpdateConsumerOffsetRequest, command.ext)
                text = self.refusal(
                    request.consumer_group, request.topic, request.queue_id, request.generation
                )
                if text:
                    return refusal(command, FENCED, text)
            return handler(connection, command)

        return commit

    def _returns(self, handler: Handler, inner: InnerStore) -> Handler:
        def send_back(connection: Connection, command: Command) -> Any:
            if self.groups and command.ext.get("group") in self.groups:
                request = from_ext(ConsumerSendMsgBackRequest, command.ext)
                record = inner.read(request.offset)
                if record is not None:
                    text = self.refusal(request.group, record.topic, record.queue_id, request.generation)
                    if text:
                        return refusal(command, FENCED, text)
            return handler(connection, command)

        return send_back

    def _locking(self, handler: Handler) -> Handler:
        """Only members that may read a queue get its lock; an error code tells a member that it owns none of
        the queues.
        """

        def lock(connection: Connection, command: Command) -> Any:
            if not self.groups:
                return handler(connection, command)
            request = LockBatchRequestBody.decode_request(command.body)
            if request.consumer_group not in self.groups:
                return handler(connection, command)
            asked = request.queues
            given = request.generations or []
            generations: list[int | None] = [*given, *[None] * (len(asked) - len(given))]
            allowed, texts = [], []
            for queue, generation in zip(asked, generations, strict=False):
                text = self.refusal(request.consumer_group, queue.topic, queue.queue_id, generation)
                if text:
                    texts.append(text)
                else:
                    allowed.append(queue)
            if texts and not allowed:
                return refusal(command, FENCED, texts[0])
            granted = self._locks.claim(request.consumer_group, request.client_id, allowed, connection.id)
            return answer(command, body=LockBatchResponseBody(wire_queues(granted)).encode())

        return lock

    def _members(self, handler: Handler) -> Handler:
        """38: the member list, which controls members that assign queues themselves."""

        def members(connection: Connection, command: Command) -> Any:
            name = command.ext.get("consumerGroup", "")
            online = self._clients.consumers.get(name)
            if name not in self.groups or online is None:
                return handler(connection, command)
            found = self.groups[name].listed(online.client_ids)
            return answer(command, body=ConsumerList(consumer_id_list=found).encode())

        return members

    def _assigning(self, handler: Handler) -> Handler:
        """400: the queues of a member of a managed group, as far as its policy divides them."""

        def assignment(connection: Connection, command: Command) -> Any:
            if not self.groups:
                return handler(connection, command)
            request = AssignmentRequest.decode_request(command.body)
            managed = self.groups.get(request.consumer_group)
            if managed is None:
                return handler(connection, command)
            found = managed.assigned(request.topic, request.client_id)
            if found is None:
                text = (
                    f"no policy assigns the queues of {request.topic} in group {request.consumer_group}; "
                    "its members do"
                )
                return refusal(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text)
            return answer(command, body=Assignments.of(found).encode())

        return assignment

    # Policies

    async def put(self, connection: Connection, command: Command) -> Command:
        """90201: set a group's policy; answered when it is on disk and in force. May be repeated."""
        return await self._whole(self._put(command, GroupPolicy.decode_request(command.body)))

    async def _whole(self, change: Coroutine[Any, Any, Command]) -> Command:
        """Complete a change and return its answer even if the caller stops waiting: otherwise another change
        could be saved before it, and this one would be lost from disk.
        """
        changing = asyncio.get_running_loop().create_task(change)
        self._changing.add(changing)
        changing.add_done_callback(self._ended)
        return await asyncio.shield(changing)

    def _ended(self, changing: asyncio.Task[Command]) -> None:
        self._changing.discard(changing)
        if not changing.cancelled():
            changing.exception()  # the caller has the exception, if it still waits

    async def _put(self, command: Command, new: GroupPolicy) -> Command:
        async with self._saving:
            before = self.groups.get(new.group)
            old = None if before is None else before.policy
            wrong = judge(new, old, self._retired.get(new.group, 0), self._broker)
            if wrong is not None:
                return refusal(command, wrong.code, wrong.text)
            if old == new:
                return answer(command)
            if new.group not in self.groups.keys() | self._retired.keys() and (
                len(self.groups.keys() | self._retired.keys()) >= GROUPS_MAX
            ):
                text = (
                    f"{GROUPS_MAX} groups are or were managed at this broker, which is the limit; stop the "
                    f"broker and remove those that no longer exist from `retired` in {self._file.path}"
                )
                return refusal(command, ResponseCode.INVALID_PARAMETER, text)
            policies = {name: one.policy for name, one in self.groups.items()} | {new.group: new}
            await asyncio.sleep(0)  # with ten thousand queues, each of these takes some time
            retired = self._with_retired(old, new)
            await self._save(policies, retired)
            managed = ManagedGroup(new, self._broker)
            self.groups[new.group] = managed
            self._retired = retired
        self._locks.drop(new.group, managed.moved(before))
        self._changed(new.group)
        return answer(command)

    async def delete(self, connection: Connection, command: Command) -> Command:
        """90202: stop managing a group. Its highest generation stays recorded in case it is managed again."""
        return await self._whole(self._delete(command, from_ext(GroupPolicyRequest, command.ext).group))

    async def _delete(self, command: Command, group: str) -> Command:
        async with self._saving:
            before = self.groups.get(group)
            if before is None:
                return answer(command)
            policies = {name: one.policy for name, one in self.groups.items() if name != group}
            retired = self._with_retired(before.policy, None)
            await self._save(policies, retired)
            del self.groups[group]
            self._retired = retired
        log.warning("group %s is no longer managed: its members assign its queues themselves", group)
        self._changed(group)
        return answer(command)

    def list(self, connection: Connection, command: Command) -> Command:
        """90203: the policy of one group, or all."""
        wanted = from_ext(GroupPolicyRequest, command.ext).group
        names = sorted(name for name in self.groups if wanted in ("", name))
        retired = {name: number for name, number in self._retired.items() if wanted in ("", name)}
        found = GroupPolicies([self.groups[name].policy for name in names], retired)
        return answer(command, body=found.encode())

    def _with_retired(self, old: GroupPolicy | None, new: GroupPolicy | None) -> dict[str, int]:
        if old is None:
            return self._retired
        number = max(highest_gone(old, new), self._retired.get(old.group, 0))
        return self._retired | {old.group: number} if number else self._retired

    async def _save(self, policies: dict[str, GroupPolicy], retired: dict[str, int]) -> None:
        """Save a table to disk. Raises `StoreError` and leaves everything unchanged."""
        table = GroupPolicies(list(policies.values()), retired)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._pool, self._write, table)

    def _write(self, table: GroupPolicies) -> None:
        self._file.write(msgspec.json.format(table.encode(), indent=1))
