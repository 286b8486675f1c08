"""Translation of namespaces between a client and its servers (client:B.23).

Inside a client, topics and groups have the names that the user gives. On the wire they are
`<namespace>%<name>`. This module translates requests and responses: header fields, and bodies with topics and
groups.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from sparrowmq.client.base.hooks import RpcHook
from sparrowmq.client.base.settings import ClientSettings
from sparrowmq.core.message import ReceivedMessage
from sparrowmq.core.names import (
    INNER_PRODUCER_GROUP,
    namespace_of_endpoint,
    with_namespace,
    without_namespace,
)
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.java_json import dumps, loads
from sparrowmq.transport.dispatch import Answer, Handler

_NAMES: Final = frozenset(
    {
        *("topic", "originTopic", "consumerGroup", "producerGroup", "group", "groupName"),
        *("srcGroup", "destGroup", "compareGroup", "topics"),
    }
)
"""Fields of headers and bodies that hold topics or groups."""
_BODIES: Final = frozenset(
    {
        *(Code.HEART_BEAT, Code.CHECK_CLIENT_CONFIG, Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ),
        *(Code.QUERY_ASSIGNMENT, Code.SET_MESSAGE_REQUEST_MODE, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP),
        *(Code.JOIN_MANAGED_GROUP, Code.REPORT_MANAGED_MEMBER, Code.LEAVE_MANAGED_GROUP),
        Code.PUT_GROUP_POLICY,
    }
)
"""Requests with topics or groups in the body."""
_SENDS: Final = frozenset({Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE})
_REPLIES: Final = frozenset({Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2})
"""Requests whose topic belongs to the cluster itself."""
_QUEUES_INSIDE: Final = frozenset(
    {
        *(Code.GET_TOPIC_STATS_INFO, Code.GET_CONSUME_STATS, Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ),
        *(Code.REPORT_MANAGED_MEMBER, Code.QUERY_ASSIGNMENT),
        *(Code.INVOKE_BROKER_TO_RESET_OFFSET, Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS),
    }
)
"""Requests whose responses have message queues in the body."""
_QUEUES_ASKED: Final = frozenset({Code.RESET_CONSUMER_CLIENT_OFFSET, Code.GET_CONSUMER_STATUS_FROM_CLIENT})
"""The same for requests from brokers and their responses."""


@dataclass(frozen=True)
class Namespaced(RpcHook):
    """Adds `namespace` to the names of every request, and removes it from responses."""

    namespace: str

    def before_request(self, address: str, command: Command) -> None:
        """Add the namespace to the names in a request."""
        code, wrap = command.code, self._wrap
        if code in _REPLIES:
            return
        ext = {name: wrap(text) if name in _NAMES else text for name, text in command.ext.items()}
        if code in _SENDS:
            ext["a"], ext["b"] = wrap(ext["a"]), wrap(ext["b"])
            ext["i"] = self._properties(ext.get("i", ""))
        elif code == Code.SEND_MESSAGE:
            ext["properties"] = self._properties(ext.get("properties", ""))
        command.ext = ext
        if command.body and code in _BODIES:
            command.body = dumps(_renamed(loads(command.body), wrap))

    def after_response(self, address: str, command: Command, answer: Command) -> None:
        """Remove the namespace from message queues."""
        if command.code in _QUEUES_INSIDE and answer.body:
            answer.body = _rename_queues(answer.body, f"{self.namespace}%", "")
        elif command.code == Code.GET_GROUP_POLICIES and answer.body:
            unwrap = partial(without_namespace, self.namespace)
            policies = _renamed(loads(answer.body), unwrap)
            policies["retired"] = {unwrap(group): last for group, last in policies.get("retired", {}).items()}
            answer.body = dumps(policies)

    def _wrap(self, name: str) -> str:
        return name if name == INNER_PRODUCER_GROUP else with_namespace(self.namespace, name)

    def _properties(self, text: str) -> str:
        """A message's property string: the producer group with its namespace, and the namespace itself
        (client:B.9).
        """
        parts = [part for part in text.split("\x02") if part]
        for index, part in enumerate(parts):
            name, _, value = part.partition("\x01")
            if name == "PGROUP":
                parts[index] = f"PGROUP\x01{self._wrap(value)}"
        return "".join(f"{part}\x02" for part in [*parts, f"INSTANCE_ID\x01{self.namespace}"])


class NamespacedHandlers(Mapping[int, Handler[str]]):
    """The handlers of requests from brokers, with names as the user writes them."""

    def __init__(self, handlers: Mapping[int, Handler[str]], namespace: str) -> None:
        self._handlers = handlers
        self._namespace = namespace

    def __getitem__(self, code: int) -> Handler[str]:
        handler = self._handlers[code]

        def handle(address: str, request: Command) -> Answer | Awaitable[Answer]:
            self._unwrap(request)
            result = handler(address, request)
            if code not in _QUEUES_ASKED or result is None:
                return result
            return self._wrapped(result)

        return handle

    def __iter__(self) -> Iterator[int]:
        return iter(self._handlers)

    def __len__(self) -> int:
        return len(self._handlers)

    def _unwrap(self, request: Command) -> None:
        space = self._namespace
        request.ext = {
            name: without_namespace(space, text) if name in _NAMES else text
            for name, text in request.ext.items()
        }
        if request.code in _QUEUES_ASKED and request.body:
            request.body = _rename_queues(request.body, f"{space}%", "")

    def _wrapped(self, result: Command | Awaitable[Answer]) -> Answer | Awaitable[Answer]:
        if isinstance(result, Command):
            result.body = _rename_queues(result.body, "", f"{self._namespace}%")
            return result
        return self._wrapped_later(result)

    async def _wrapped_later(self, result: Awaitable[Answer]) -> Answer:
        answer = await result
        if answer is not None:
            answer.body = _rename_queues(answer.body, "", f"{self._namespace}%")
        return answer


def namespace_in(settings: ClientSettings) -> str | None:
    """The namespace of a client: from its settings, or else from its name server's address."""
    return settings.namespace or (namespace_of_endpoint(settings.namesrv) if settings.namesrv else None)


def unwrap_messages(namespace: str | None, messages: Iterable[ReceivedMessage]) -> None:
    """Show the topic and the queue of messages as the user writes them (client:B-124)."""
    if namespace:
        for message in messages:
            message.topic = without_namespace(namespace, message.topic)
            queue = message.queue
            if (topic := without_namespace(namespace, queue.topic)) != queue.topic:
                message.queue = replace(queue, topic=topic)


def _rename_queues(body: bytes, old: str, new: str) -> bytes:
    """The body with `old` replaced by `new` at the start of the names in `"topic":"…"` members.

    Prefixes of retry and dead letter topics stay in front.
    """
    pattern = rb'"topic":"(%RETRY%|%DLQ%|)' + re.escape(old.encode())
    return re.sub(pattern, rb'"topic":"\g<1>' + new.encode(), body)


def _renamed(value: Any, rename: Callable[[str], str], *, is_name: bool = False) -> Any:
    """Decoded JSON with its topics and groups renamed."""
    if isinstance(value, str):
        return rename(value) if is_name else value
    if isinstance(value, list):
        return [_renamed(one, rename, is_name=is_name) for one in value]
    if isinstance(value, dict):
        return {name: _renamed(inner, rename, is_name=name in _NAMES) for name, inner in value.items()}
    return value
