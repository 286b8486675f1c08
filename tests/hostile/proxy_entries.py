"""The largest and most hostile requests that the proxy accepts: one entry for each method of its API."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any

from tests.hostile.companions import PROXY
from tests.hostile.pop_entries import receipt
from tests.hostile.shapes import Entry, filters
from tests.hostile.wire import Ask
from tests.hostile.world import World
from tests.proxy.rig import message, publishing, subscribing

from sparrowmq.proxy.base.limits import BODY_BYTES_MAX, MESSAGES_OF_SEND_MAX
from sparrowmq.proxy.base.routing import ENDPOINTS_BYTES_MAX
from sparrowmq.proxy.definition.fields import FIELDS_MAX
from sparrowmq.proxy.definition.messages import Encoding, FilterType, OffsetPolicy, v2

Requests = Callable[[World], list[Any]]
PROPERTIES = 40
"""Properties of each message of a large batch: all fields together are below the limit."""
LONG = "x" * (5 << 20)
SPACES = "1 " * (5 << 19)
"""A handle is read as words."""


def named(request: Any, *, topic: str = "Tiny", group: str = "G00000") -> Any:
    """A request with its names filled in, wherever its definition has them."""
    fields = request.DESCRIPTOR.fields_by_name
    if "group" in fields:
        request.group.name = group
    if "topic" in fields:
        request.topic.name = topic
    if "message_queue" in fields:
        queue = request.message_queue
        queue.topic.name, queue.broker.name = topic, "broker-a"
    return request


def with_endpoints(request: Any) -> Any:
    """The answer repeats them for each queue."""
    for number in range(20):
        request.endpoints.addresses.add(host=f"h{number}" + "x" * (ENDPOINTS_BYTES_MAX // 20 - 12), port=1)
    return request


def routes(world: World) -> list[Any]:
    """The widest topic, with as many addresses as are accepted."""
    return [
        with_endpoints(named(v2.QueryRouteRequest(), topic=topic)) for topic in ("T00000", "Wide", "gone")
    ]


def assignments(world: World) -> list[Any]:
    """Those of the widest topic."""
    return [with_endpoints(named(v2.QueryAssignmentRequest(), topic=topic)) for topic in ("T00000", "Wide")]


def sends(world: World) -> list[Any]:
    """The biggest message, a compressed one, batches of as many messages and properties as are accepted."""
    batch = [message("T00001", b"x", number=number) for number in range(MESSAGES_OF_SEND_MAX)]
    wide = [message("T00001", b"x", number=number) for number in range(MESSAGES_OF_SEND_MAX)]
    for one in wide:
        one.user_properties.update({f"k{number}": "v" for number in range(PROPERTIES // 2)})
    keyed = message("T00001", b"x", keys=[f"k{number}" for number in range(2000)])
    packed = message("T00001", gzip.compress(bytes(BODY_BYTES_MAX)), body_encoding=Encoding.GZIP)
    many = v2.Message(body=b"x", user_properties={f"k{n}": "" for n in range(FIELDS_MAX // 4)})
    many.topic.name = "T00001"
    found = [
        [message("T00001", b"x")],
        [message("T00001", bytes(BODY_BYTES_MAX))],
        batch,
        wide,
        [keyed],
        [packed],
        [many],
        [v2.Message()] * (FIELDS_MAX + 1),
    ]
    return [v2.SendMessageRequest(messages=some) for some in found]


def handle(offset: int) -> str:
    """The handle of a message that may be out, or of nobody's."""
    return f"{receipt(0, offset)} 0"


def acks(world: World) -> list[Any]:
    """As many acknowledgements as are accepted, of handles of all kinds."""
    good = [handle(number) for number in range(MESSAGES_OF_SEND_MAX)]
    many = [
        [
            v2.AckMessageEntry(message_id=f"m{number}", receipt_handle=text)
            for number, text in enumerate(texts)
        ]
        for texts in (["x"], ["x"] * MESSAGES_OF_SEND_MAX, good, [SPACES])
    ]
    return [named(v2.AckMessageRequest(entries=entries)) for entries in many]


def handled(kind: Any) -> Requests:
    """Requests about one message, by handles of all kinds."""
    return lambda world: [named(kind(receipt_handle=text)) for text in (handle(0), "x", SPACES)]


def filtered(request: Any, sql: str) -> Any:
    """The same with an SQL92 filter."""
    request.filter_expression.type = FilterType.SQL
    request.filter_expression.expression = sql
    return request


def receives(world: World) -> list[Any]:
    """The biggest messages, the widest topic, and filters that match nothing."""

    def one(topic: str, sql: str = "") -> Any:
        request = named(v2.ReceiveMessageRequest(batch_size=32), topic=topic, group="receivers")
        request.invisible_duration.seconds = 60
        return filtered(request, sql) if sql else request

    return [one("Tiny"), one("Big"), one("Wide"), one("Tiny", filters(world)[0]), one("Tiny", LONG)]


def pulls(world: World) -> list[Any]:
    """The same by offset."""
    found = [named(v2.PullMessageRequest(batch_size=32), topic=topic) for topic in ("Tiny", "Big")]
    tiny = named(v2.PullMessageRequest(batch_size=32))
    return [*found, filtered(tiny, filters(world)[0])]


def offsets(world: World) -> list[Any]:
    """The ends of a queue, and an offset by time."""
    policies = (OffsetPolicy.BEGINNING, OffsetPolicy.END, OffsetPolicy.TIMESTAMP)
    found = [named(v2.QueryOffsetRequest(query_offset_policy=policy)) for policy in policies]
    found[-1].timestamp.seconds = 1_700_000_000
    return found


def commands(world: World) -> list[Any]:
    """Settings with many topics, many subscriptions, costly filters; results that nobody waits for."""
    many = [world.topic(number) for number in range(world.size.names)]
    costly = subscribing("G00000", "Tiny")
    filter_of = costly.subscription.subscriptions[0].expression
    filter_of.type, filter_of.expression = FilterType.SQL, filters(world)[0]
    found = [
        v2.TelemetryCommand(settings=settings)
        for settings in (
            publishing("Tiny"),
            publishing(*many),
            subscribing("G00000", *many),
            subscribing("G00000", *many[:300]),
            costly,
        )
    ]
    stack = v2.ThreadStackTrace(nonce="n", thread_stack_trace=LONG)
    return [*found, v2.TelemetryCommand(thread_stack_trace=stack)]


REQUESTS: dict[str, tuple[str, Requests]] = {
    "Telemetry": ("settings with many topics, costly filters", commands),
    "QueryRoute": ("the widest topic, many addresses", routes),
    "Heartbeat": ("a group", lambda world: [named(v2.HeartbeatRequest(), group="G00000")]),
    "SendMessage": ("biggest message, batches, many properties", sends),
    "QueryAssignment": ("the widest topic, many addresses", assignments),
    "ReceiveMessage": ("biggest messages, long SQL92 filters", receives),
    "AckMessage": ("many acknowledgements", acks),
    "ForwardMessageToDeadLetterQueue": (
        "long handles",
        handled(v2.ForwardMessageToDeadLetterQueueRequest),
    ),
    "PullMessage": ("biggest messages, long SQL92 filters", pulls),
    "UpdateOffset": ("an offset", lambda world: [named(v2.UpdateOffsetRequest(offset=1))]),
    "GetOffset": ("an offset", lambda world: [named(v2.GetOffsetRequest())]),
    "QueryOffset": ("ends, and offsets by time", offsets),
    "EndTransaction": (
        "long ids",
        lambda world: [
            named(v2.EndTransactionRequest(transaction_id=text, message_id=text)) for text in ("x", LONG)
        ],
    ),
    "ChangeInvisibleDuration": ("long handles", handled(v2.ChangeInvisibleDurationRequest)),
    "RecallMessage": (
        "long handles",
        lambda world: [named(v2.RecallMessageRequest(recall_handle=text)) for text in ("x", LONG)],
    ),
    "SyncLiteSubscription": (
        "many topics",
        lambda world: [
            named(v2.SyncLiteSubscriptionRequest(lite_topic_set=[f"t{n}" for n in range(world.size.names)]))
        ],
    ),
    "NotifyClientTermination": (
        "a client leaves",
        lambda world: [named(v2.NotifyClientTerminationRequest())],
    ),
}


def proxy_entries() -> list[Entry]:
    """All of them."""
    return [Entry(PROXY, 0, said, asks_of(name, make), named=name) for name, (said, make) in REQUESTS.items()]


def asks_of(name: str, make: Requests) -> Callable[[World], list[Ask]]:
    """The requests of one method in the form of the load."""
    return lambda world: [Ask({"method": name}, one.SerializeToString()) for one in make(world)]
