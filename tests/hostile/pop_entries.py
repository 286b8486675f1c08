"""The largest and most hostile requests of POP: filters, waiting, many acknowledgements in one body."""

from __future__ import annotations

import base64
import time

from tests.hostile.shapes import Entry, ext, filters, plain
from tests.hostile.wire import Ask, dumps
from tests.hostile.world import PLAIN, World

from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.pop.receipts import Receipt
from sparrowmq.protocol.pop.records import BITS_MAX

HIDDEN_MS = 60_000


def receipt(queue: int = 0, offset: int = 0) -> str:
    """What a client sends back of a message."""
    return Receipt(offset, int(time.time() * 1000), HIDDEN_MS, 0, "0", "broker-a", queue, offset).encode()


def pop(world: World, *, topic: str = "Tiny", group: str = "poppers", sql: str = "", **more: object) -> Ask:
    """A POP of all queues of a topic, which does not wait."""
    fields: dict[str, object] = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": -1,
        "maxMsgNums": 32,
        "invisibleTime": HIDDEN_MS,
        "pollTime": 0,
        "bornTime": int(time.time() * 1000),
        "initMode": 0,
        "order": False,
        **({"expType": "SQL92", "exp": sql} if sql else {}),
        **more,
    }
    return Ask(ext(**fields))


def pops(world: World) -> list[Ask]:
    """Long filters over a whole queue, the widest topic, the biggest messages, and POP in order."""
    found = [pop(world, group=f"filtered{number}", sql=sql) for number, sql in enumerate(filters(world))]
    found += [pop(world, topic=topic, group="wide") for topic in ("Wide", "Big", "T00000")]
    found += [pop(world, group="ordered", order=True, queueId=0, attemptId=name) for name in ("a", "b")]
    return found


def waits(world: World) -> list[Ask]:
    """Topics without a message; none waits, so that each is answered at once."""
    return [
        Ask(ext(consumerGroup="poppers", topic=topic, queueId=-1, pollTime=0, bornTime=0, order=False))
        for topic in ("Wide", "T00000", "Tiny")
    ]


def acks(world: World) -> list[Ask]:
    """A message that is out, the last of a queue, and one of nobody's."""
    return [
        Ask(ext(consumerGroup="poppers", topic="Tiny", queueId=0, extraInfo=receipt(0, at), offset=at))
        for at in (0, world.size.messages - 1)
    ]


def hides(world: World) -> list[Ask]:
    """The same messages hidden anew."""
    return [Ask({**ask.ext, "invisibleTime": str(HIDDEN_MS)}) for ask in acks(world)]


def batches(world: World) -> list[Ask]:
    """As many acknowledgements in one body as a frame has place for: many check points, and wide ones."""

    def one(queue: int, bits: bytes) -> dict[str, object]:
        return {
            "b": base64.b64encode(bits).decode(),
            "c": "poppers",
            "it": HIDDEN_MS,
            "pt": int(time.time() * 1000),
            "q": queue,
            "r": "0",
            "rq": 0,
            "so": 0,
            "t": "Tiny",
        }

    def body(count: int, bits: bytes) -> bytes:
        return dumps({"brokerName": "broker-a", "acks": [one(number % 4, bits) for number in range(count)]})

    full = b"\xff" * (BITS_MAX // 8)
    most = world.size.body // (len(full) * 4 // 3 + 100)
    return [
        Ask(ext(), made)
        for made in (
            body(1, b"\x01"),
            body(world.size.names, b"\x01"),
            body(most, full),
            body(1, b"\xff" * (world.size.body // 2)),
        )
    ]


def pop_entries() -> list[Entry]:
    """All of them."""
    return [
        Entry(PLAIN, Code.POP_MESSAGE, "long SQL92 filters, the widest topic, the biggest messages", pops),
        Entry(PLAIN, Code.NOTIFICATION, "the widest topic", waits),
        Entry(
            PLAIN,
            Code.POLLING_INFO,
            "the widest topic",
            plain(ext(consumerGroup="poppers", topic="Wide", queueId=-1)),
        ),
        Entry(PLAIN, Code.ACK_MESSAGE, "messages that are out, and others", acks),
        Entry(PLAIN, Code.CHANGE_MESSAGE_INVISIBLETIME, "messages that are out, and others", hides),
        Entry(PLAIN, Code.BATCH_ACK_MESSAGE, "acknowledgements of many messages", batches, bombs=True),
    ]
