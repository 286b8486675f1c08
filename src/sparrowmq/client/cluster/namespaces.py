"""Translation of namespaces between a client and its servers (client:B.23).

Inside a client, topics and groups have the names that the user gives. On the wire they are
`<namespace>%<name>`. This module translates requests and responses: header fields, and bodies with topics and
groups.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
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
        *("srcGroup", "destGroup", "compareGroup"),
    }
)
"""Header fields that hold a topic or a group."""
_SENDS: Final = frozenset({Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE})
_REPLIES: Final = frozenset({Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2})
"""Requests whose topic belongs to the cluster itself."""
_QUEUES_INSIDE: Final = frozenset(
    {
        *(Code.GET_TOPIC_STATS_INFO, Code.GET_CONSUME_STATS, Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ),
        *(Code.REPORT_MANAGED_MEMBER, Code.QUERY_ASSIGNMENT),
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
            command.body = dumps(_BODIES[code](loads(command.body), wrap))

    def after_response(self, address: str, command: Command, answer: Command) -> None:
        """Remove the namespace from message queues."""
        if command.code in _QUEUES_INSIDE and answer.body:
            answer.body = _rename_queues(answer.body, f"{self.namespace}%", "")
        elif command.code == Code.GET_GROUP_POLICIES and answer.body:
            answer.body = dumps(_policies(loads(answer.body), partial(without_namespace, self.namespace)))

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
    """Show the topic of messages as the user writes it (client:B-124)."""
    if namespace:
        for message in messages:
            message.topic = without_namespace(namespace, message.topic)


def _rename_queues(body: bytes, old: str, new: str) -> bytes:
    """The body with `old` replaced by `new` at the start of the names in `"topic":"…"` members.

    Prefixes of retry and dead letter topics stay in front.
    """
    pattern = rb'"topic":"(%RETRY%|%DLQ%|)' + re.escape(old.encode())
    return re.sub(pattern, rb'"topic":"\g<1>' + new.encode(), body)


Wrap = Callable[[str], str]


def _heartbeat(body: Any, wrap: Wrap) -> Any:
    for producer in body.get("producerDataSet") or ():
        producer["groupName"] = wrap(producer["groupName"])
    for consumer in body.get("consumerDataSet") or ():
        consumer["groupName"] = wrap(consumer["groupName"])
        for data in consumer.get("subscriptionDataSet") or ():
            data["topic"] = wrap(data["topic"])
    return body


def _locks(body: Any, wrap: Wrap) -> Any:
    body["consumerGroup"] = wrap(body["consumerGroup"])
    for queue in body.get("mqSet") or ():
        queue["topic"] = wrap(queue["topic"])
    return body


def _check(body: Any, wrap: Wrap) -> Any:
    body["group"] = wrap(body["group"])
    body["subscriptionData"]["topic"] = wrap(body["subscriptionData"]["topic"])
    return body


def _assignment(body: Any, wrap: Wrap) -> Any:
    body["consumerGroup"], body["topic"] = wrap(body["consumerGroup"]), wrap(body["topic"])
    return body


def _group(body: Any, wrap: Wrap) -> Any:
    body["groupName"] = wrap(body["groupName"])
    return body


def _group_of(body: Any, wrap: Wrap) -> Any:
    body["group"] = wrap(body["group"])
    return body


def _member(body: Any, wrap: Wrap) -> Any:
    body["group"] = wrap(body["group"])
    body["topics"] = [wrap(topic) for topic in body.get("topics") or ()]
    for queue in body.get("released") or ():
        queue["topic"] = wrap(queue["topic"])
    return body


def _policy(body: Any, wrap: Wrap) -> Any:
    body["group"] = wrap(body["group"])
    for place in (*(body.get("queues") or ()), *(body.get("pauses") or ())):
        if place.get("topic"):
            place["topic"] = wrap(place["topic"])
    return body


def _policies(body: Any, wrap: Wrap) -> Any:
    for policy in body.get("policies") or ():
        _policy(policy, wrap)
    body["retired"] = {wrap(group): number for group, number in (body.get("retired") or {}).items()}
    return body


_BODIES: Final[dict[int, Callable[[Any, Wrap], Any]]] = {
    Code.HEART_BEAT: _heartbeat,
    Code.LOCK_BATCH_MQ: _locks,
    Code.UNLOCK_BATCH_MQ: _locks,
    Code.CHECK_CLIENT_CONFIG: _check,
    Code.QUERY_ASSIGNMENT: _assignment,
    Code.SET_MESSAGE_REQUEST_MODE: _assignment,
    Code.JOIN_MANAGED_GROUP: _member,
    Code.REPORT_MANAGED_MEMBER: _member,
    Code.LEAVE_MANAGED_GROUP: _group_of,
    Code.PUT_GROUP_POLICY: _policy,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _group,
}
