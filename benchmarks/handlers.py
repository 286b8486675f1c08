"""The broker without sockets: chunks of requests in, answers out, in processor time a message.

Steady enough to compare commits. The one benchmark that reaches inside: it gives a connection of a real
broker a transport that only counts. What the flush thread and the kernel's page cache do is not counted.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.frames import frame, send_frame
from benchmarks.load import LoadError
from benchmarks.options import Options
from benchmarks.peers import OURS
from benchmarks.report import Floor, Report
from sparrowmq.broker.server import Broker
from sparrowmq.core.settings.servers import BrokerSettings
from sparrowmq.loops.event_loop import run
from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.frame import FLAG_ONEWAY, FrameReader
from sparrowmq.store.message_store import MessageStore
from sparrowmq.transport.connection import Connection

TOPIC: Final = "BenchHandlers"
QUEUES: Final = 8
BODY: Final = bytes(97 + i % 26 for i in range(100))
CHUNKS: Final = (1, 8, 64, 256)
BATCH: Final = 32
PULL_MESSAGES: Final = 32
ANSWER_SECONDS_MAX: Final = 10.0
CREATE_TOPIC: Final = 17
SEND: Final = 310
SEND_BATCH: Final = 320
END: Final = 37
PULL: Final = 11
HAS_SUBSCRIPTION: Final = 4
PREPARED: Final = 4
COMMIT: Final = 8
FLOORS: Final[list[Floor]] = []


class CountingTransport(asyncio.Transport):
    """Takes what the broker writes, as a socket that never blocks would, and counts its answers."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 4711)})
        self._written: list[bytes] = []

    def write(self, data: Any) -> None:
        self._written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def abort(self) -> None:
        raise LoadError("the broker closed the connection")

    def answers(self) -> list[tuple[bytes, bytes]]:
        """Header and body of every answer since the last call; raises unless each has code 0."""
        frames = FrameReader().feed(b"".join(self._written))
        self._written.clear()
        wrong = [header for _, header, _ in frames if b'"code":0,' not in header]
        if wrong:
            raise LoadError(f"an answer is an error: {wrong[0]!r}")
        return [(header, body) for _, header, body in frames]


@dataclass
class Rig:
    """A broker on a directory of its own, and one connection to it."""

    broker: Broker
    connection: Connection
    transport: CountingTransport

    @property
    def store(self) -> MessageStore:
        """The broker's store."""
        return self.broker.parts.store

    async def ask(self, request: bytes) -> None:
        """One request that the broker may take its time to answer."""
        self.connection.data_received(request)
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while not self.transport.answers():
            if time.monotonic() > deadline:
                raise LoadError(f"no answer within {ANSWER_SECONDS_MAX} s")
            await asyncio.sleep(0.001)

    async def serve(self, chunk: bytes, count: int) -> tuple[float, list[tuple[bytes, bytes]]]:
        """Seconds of processor time for a chunk, and its `count` answers.

        What the broker puts off to later turns of the loop, as it does on a busy machine, counts too.
        """
        start = time.thread_time()
        self.connection.data_received(chunk)
        used = time.thread_time() - start
        answers = self.transport.answers()
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while len(answers) < count or self.connection._waiting:
            if time.monotonic() > deadline:
                raise LoadError(f"{len(answers)} of {count} requests were answered in {ANSWER_SECONDS_MAX} s")
            start = time.thread_time()
            await asyncio.sleep(0)
            used += time.thread_time() - start
            answers += self.transport.answers()
        await asyncio.sleep(0)  # the next chunk finds a fresh turn of the loop, as one of a socket does
        return used, answers

    async def measure(self, chunk: bytes, answers: int, repeats: int) -> float:
        """Microseconds of processor time for one chunk, on average."""
        used = 0.0
        for _ in range(repeats):
            used += (await self.serve(chunk, answers))[0]
        return used / repeats * 1e6

    async def measure_transactions(self, count: int, repeats: int) -> float:
        """The same for `count` half messages in one chunk, and their commits in another."""
        used = 0.0
        halves = half_chunk(count)
        for _ in range(repeats):
            stored, answers = await self.serve(halves, count)
            used += stored + (await self.serve(end_chunk(answers), 0))[0]
        return used / repeats * 1e6


@contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bench-handlers-") as name:
        yield Path(name)


def send_chunk(count: int) -> bytes:
    """`count` sends, spread over the queues."""
    return b"".join(send_frame(TOPIC, i % QUEUES, i, BODY) for i in range(count))


def batch_chunk(count: int) -> bytes:
    """`count` batch sends of 32 messages each."""
    own = b"UNIQ_KEY\x017F000001ABCD5FFD2B276905%08X\x02WAIT\x01true\x02"
    items = [(0, BODY, own % i) for i in range(BATCH)]
    body = encode_batch(items)
    fields = {
        "a": "bench",
        "b": TOPIC,
        "c": "TBW102",
        "d": 4,
        "f": 0,
        "g": int(time.time() * 1000),
        "h": 0,
        "i": "UNIQ_KEY\x017F000001ABCD5FFD2B276905FFFFFFFF\x02WAIT\x01true\x02",
        "j": 0,
        "k": "false",
        "m": "true",
        "n": "broker-a",
    }
    return b"".join(frame(SEND_BATCH, {**fields, "e": i % QUEUES}, i, body) for i in range(count))


def pull_chunk(count: int) -> bytes:
    """`count` pulls of 32 messages each, all that a queue's first screenful holds."""
    fields = {
        "consumerGroup": "bench",
        "topic": TOPIC,
        "queueOffset": 0,
        "maxMsgNums": PULL_MESSAGES,
        "sysFlag": HAS_SUBSCRIPTION,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
        "maxMsgBytes": 262144,
    }
    return b"".join(frame(PULL, {**fields, "queueId": i % QUEUES}, i) for i in range(count))


def half_chunk(count: int) -> bytes:
    """`count` half messages, spread over the queues."""
    own = (
        "UNIQ_KEY\x017F000001ABCD5FFD2B276906%08X\x02WAIT\x01true\x02TRAN_MSG\x01true\x02PGROUP\x01bench\x02"
    )
    fields = {
        "a": "bench",
        "b": TOPIC,
        "c": "TBW102",
        "d": 4,
        "f": PREPARED,
        "g": int(time.time() * 1000),
        "h": 0,
        "j": 0,
        "k": "false",
        "m": "false",
        "n": "broker-a",
    }
    frames = (frame(SEND, {**fields, "e": i % QUEUES, "i": own % i}, i, BODY) for i in range(count))
    return b"".join(frames)


def end_chunk(answers: list[tuple[bytes, bytes]]) -> bytes:
    """The commits of half messages, from the answers to them."""
    frames = []
    for number, (header, _) in enumerate(answers):
        sent = json.loads(header)["extFields"]
        fields = {
            "commitLogOffset": int(sent["msgId"][-16:], 16),
            "commitOrRollback": COMMIT,
            "fromTransactionCheck": "false",
            "msgId": sent["transactionId"],
            "producerGroup": "bench",
            "topic": TOPIC,
            "tranStateTableOffset": sent["queueOffset"],
            "transactionId": sent["transactionId"],
        }
        frames.append(frame(END, fields, number, b"", FLAG_ONEWAY))
    return b"".join(frames)


def _repeats(options: Options, messages: int) -> int:
    """How often a chunk of so many messages is sent to fill one measurement."""
    return max(20, int(options.seconds * 15_000) // messages)


async def _measure_all(options: Options, report: Report, data: Path) -> None:
    broker = Broker(BrokerSettings(store_path_root_dir=data / "store", listen_port=0))
    await broker.start()
    try:
        server = broker._server
        assert server is not None
        connection = Connection(server, 1, asyncio.get_running_loop())
        transport = CountingTransport()
        connection.connection_made(transport)
        rig = Rig(broker, connection, transport)
        create = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES}
        create |= {"perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
        await rig.ask(frame(CREATE_TOPIC, create, 1))
        kinds = (("send", send_chunk, 1), ("batch", batch_chunk, BATCH), ("pull", pull_chunk, PULL_MESSAGES))
        for kind, make, each in kinds:
            for count in CHUNKS if each == 1 else CHUNKS[:2]:
                chunk = make(count)
                repeats = _repeats(options, count * each)
                await rig.measure(chunk, count, repeats)
                for _ in range(options.rounds):
                    per_chunk = await rig.measure(chunk, count, repeats)
                    title = f"handler, {kind}, chunks of {count}: µs a message"
                    report.add(title, "µs", OURS, per_chunk / (count * each))
                await asyncio.sleep(0.1)
        await _measure_transactions(options, report, rig)
        connection.connection_lost(None)
    finally:
        await broker.close()


async def _measure_transactions(options: Options, report: Report, rig: Rig) -> None:
    """What committed must be in the queues besides what was there."""
    queues = [rig.store.queue(TOPIC, number) for number in range(QUEUES)]
    for count in CHUNKS[:3]:
        repeats = _repeats(options, count * 4)
        await rig.measure_transactions(count, repeats)
        before = sum(queue.max_offset for queue in queues)
        for _ in range(options.rounds):
            per_chunk = await rig.measure_transactions(count, repeats)
            report.add(f"handler, transaction, chunks of {count}: µs each", "µs", OURS, per_chunk / count)
        arrived = sum(queue.max_offset for queue in queues) - before
        if arrived != count * repeats * options.rounds:
            raise LoadError(f"{arrived} of {count * repeats * options.rounds} transactions arrived")


def main(options: Options, report: Report) -> None:
    """Sends, batches, pulls and transactions at several chunk sizes."""
    with _directory() as data:
        run(_measure_all(options, report, data))
