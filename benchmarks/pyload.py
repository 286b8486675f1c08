"""The Python load generators, as a process: `python -m benchmarks.pyload`, spoken to by `load.Load`.

Operations: `frames` (pre-encoded), and with our clients `aio_send`, `sync_send`, `consume`, `e2e`, `delays`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any, Final

import sparrowmq as mq
from benchmarks.frames import Generator
from sparrowmq import aio

if sys.platform != "win32":
    import uvloop

Result = dict[str, Any]
SEND_SECONDS_MAX: Final = 10.0
DRAIN_SECONDS_MAX: Final = 10.0
MILLISECOND: Final = 1e-3
"""What times lose when they are written in whole milliseconds."""


def event(name: str, **values: Any) -> None:
    """Tell the harness."""
    print(json.dumps({"event": name, **values}), flush=True)


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run on uvloop, as a user who cares for speed does."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def percentiles(seconds: list[float]) -> Result:
    """Median and 99th percentile in milliseconds."""
    ordered = sorted(seconds)
    if not ordered:
        return {"p50_ms": 0.0, "p99_ms": 0.0}
    return {
        f"p{share}_ms": ordered[min(len(ordered) - 1, len(ordered) * share // 100)] * 1e3
        for share in (50, 99)
    }


def frames(request: Result) -> Result:
    """Pre-encoded sends over plain sockets."""
    with Generator(
        request["broker"],
        request["topic"],
        connections=request["connections"],
        in_flight=request["in_flight"],
        size=request["size"],
        queues=request["queues"],
    ) as generator:
        generator.start()
        acknowledged = generator.run(request["warm"])
        event("begin")
        start = time.perf_counter()
        messages = generator.run(request["seconds"])
        seconds = time.perf_counter() - start
        event("end")
        acknowledged += messages + generator.drain()
    return {"messages": messages, "seconds": seconds, "acknowledged": acknowledged}


class Closed:
    """A closed loop of senders: each sends again when its send is done; only the middle part is counted."""

    def __init__(self, request: Result, batch: int) -> None:
        self._warm: float = request["warm"]
        self._seconds: float = request["seconds"]
        self._batch = batch
        self._times: list[float] = []
        self.stop = False
        self.sends = 0

    def done(self, start: float) -> float:
        """One send is done; the time now."""
        now = time.perf_counter()
        self._times.append(now - start)
        self.sends += 1
        return now

    async def measure(self) -> Result:
        """Warm up, measure and stop the senders, from the loop that runs them."""
        await asyncio.sleep(self._warm)
        start = self._begin()
        await asyncio.sleep(self._seconds)
        return self._end(start)

    def measure_threads(self) -> Result:
        """The same for senders in threads."""
        time.sleep(self._warm)
        start = self._begin()
        time.sleep(self._seconds)
        return self._end(start)

    def _begin(self) -> float:
        self._times.clear()
        event("begin")
        return time.perf_counter()

    def _end(self, start: float) -> Result:
        seconds = time.perf_counter() - start
        times = self._times[:]
        event("end")
        self.stop = True
        return {"messages": len(times) * self._batch, "seconds": seconds, **percentiles(times)}


async def aio_send(request: Result) -> Result:
    """Our asyncio producer with `in_flight` sends at a time, each of one message or of `batch`."""
    topic, body, batch = request["topic"], b"x" * request["size"], request.get("batch", 1)
    closed = Closed(request, batch)
    async with aio.Producer(
        "bench_aio", namesrv=request["namesrv"], send_timeout=SEND_SECONDS_MAX, retries=0
    ) as p:

        async def sender() -> None:
            start = time.perf_counter()
            while not closed.stop:
                if batch == 1:
                    await p.send(mq.Message(topic, body))
                else:
                    await p.send_batch([mq.Message(topic, body) for _ in range(batch)])
                start = closed.done(start)

        async with asyncio.TaskGroup() as senders:
            for _ in range(request["in_flight"]):
                senders.create_task(sender())
            result = await closed.measure()
    return {**result, "acknowledged": closed.sends * batch}


def sync_send(request: Result) -> Result:
    """Our synchronous producer, shared by `threads` threads."""
    topic, body = request["topic"], b"x" * request["size"]
    closed = Closed(request, 1)
    failures: list[BaseException] = []
    counts = [0] * request["threads"]
    with mq.Producer(
        "bench_sync", namesrv=request["namesrv"], send_timeout=SEND_SECONDS_MAX, retries=0
    ) as producer:

        def sender(number: int) -> None:
            try:
                start = time.perf_counter()
                while not closed.stop:
                    producer.send(mq.Message(topic, body))
                    counts[number] += 1
                    start = closed.done(start)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=sender, args=(number,)) for number in range(len(counts))]
        for thread in threads:
            thread.start()
        result = closed.measure_threads()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    return {**result, "acknowledged": sum(counts)}


async def consume(request: Result) -> Result:
    """Our push consumer on a backlog of `count` messages; sums of queue offsets prove that each came once.

    With `ordered` it counts how many came before or after their turn.
    """
    count, finished, ordered = request["count"], asyncio.Event(), request["ordered"]
    got = offsets = disordered = 0
    first = 0.0
    following: dict[int, int] = defaultdict(int)

    async def handler(message: aio.DeliveredMessage) -> None:
        nonlocal got, offsets, first
        if not got:
            first = time.perf_counter()
            event("begin")
        got += 1
        offsets += message.queue_offset
        if got == count:
            finished.set()

    async def in_turn(message: aio.DeliveredMessage) -> None:
        nonlocal disordered
        queue_id, offset = message.queue.queue_id, message.queue_offset
        disordered += offset != following[queue_id]
        following[queue_id] = offset + 1
        await handler(message)

    consumer = aio.PushConsumer(
        request["group"], namesrv=request["namesrv"], consume_from="first", ordered=ordered
    )
    consumer.subscribe(request["topic"], "*", in_turn if ordered else handler)
    async with consumer:
        try:
            await asyncio.wait_for(finished.wait(), request["seconds_max"])
        except TimeoutError:
            pass
        seconds = time.perf_counter() - first
        event("end")
        return {"messages": got, "seconds": seconds, "offsets": offsets, "disordered": disordered}


async def e2e(request: Result) -> Result:
    """Our producer and push consumer in this process at a fixed rate; from call of send to handler."""
    topic, rest = request["topic"], b"x" * (request["size"] - 8)
    times: list[float] = []
    got = 0
    consumer = aio.PushConsumer(request["group"], namesrv=request["namesrv"], consume_from="first")

    async def handler(message: aio.DeliveredMessage) -> None:
        nonlocal got
        times.append((time.perf_counter_ns() - int.from_bytes(message.body[:8], "big")) / 1e9)
        got += 1

    consumer.subscribe(topic, "*", handler)
    sends: set[asyncio.Task[Any]] = set()
    async with consumer, aio.Producer("bench_e2e", namesrv=request["namesrv"]) as producer:
        step = 1 / request["rate"]
        next_ = time.perf_counter() + 2.0
        warm_end = next_ + request["warm"]
        end = warm_end + request["seconds"]
        sent, measuring = 0, False
        while next_ < end:
            if not measuring and next_ >= warm_end:
                measuring = True
                times.clear()
                event("begin")
            if (wait := next_ - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            body = time.perf_counter_ns().to_bytes(8, "big") + rest
            task = asyncio.create_task(producer.send(mq.Message(topic, body)))
            sends.add(task)
            task.add_done_callback(sends.discard)
            sent += 1
            next_ += step
        event("end")
        if sends:
            await asyncio.gather(*sends)
        deadline = time.perf_counter() + DRAIN_SECONDS_MAX
        while got < sent and time.perf_counter() < deadline:  # noqa: ASYNC110 - a callback counts
            await asyncio.sleep(0.005)
    seconds = request["seconds"]
    counts = {"messages": round(seconds * request["rate"]), "seconds": seconds}
    return {**counts, "acknowledged": sent, "received": got, **percentiles(times)}


class Lateness:
    """A handler that notes how late each delayed message came; its number is in its body."""

    def __init__(self, count: int) -> None:
        self.due: list[float] = [0.0] * count
        self.all_in = asyncio.Event()
        self.came: dict[int, float] = {}
        self.stored: list[float] = []
        self.again = 0

    async def __call__(self, message: aio.DeliveredMessage) -> None:
        """One message is here; times are in seconds."""
        number = int.from_bytes(message.body[:8], "big")
        self.again += number in self.came
        self.came[number] = time.time() - self.due[number]
        self.stored.append(message.store_timestamp / 1e3 - self.due[number])
        if len(self.came) == len(self.due):
            self.all_in.set()

    def result(self) -> Result:
        """How late they came and were put into their queue by the broker; how many came early or again."""
        early = sum(late < -MILLISECOND for late in self.stored)
        stored = {f"stored_{name}": value for name, value in percentiles(self.stored).items()}
        came = percentiles(list(self.came.values()))
        return {"received": len(self.came), "early": early, "again": self.again, **came, **stored}


async def delays(request: Result) -> Result:
    """`count` delayed messages: due evenly within one second that begins `lead` seconds from now at the
    earliest, or each `lead` seconds after its send by delay level `level`.
    """
    count, lead, level = request["count"], request["lead"], request["level"]
    body, late = b"x" * (request["size"] - 8), Lateness(count)
    consumer = aio.PushConsumer(request["group"], namesrv=request["namesrv"], consume_from="first")
    consumer.subscribe(request["topic"], "*", late)
    async with consumer, aio.Producer("bench_delays", namesrv=request["namesrv"]) as producer:
        second, numbers = int(time.time() + lead) + 1, iter(range(count))

        async def sender() -> None:
            for number in numbers:
                late.due[number] = second + number / count if level is None else time.time() + lead
                when = late.due[number] if level is None else None
                message = mq.Message(
                    request["topic"], number.to_bytes(8, "big") + body, delay_level=level, deliver_at=when
                )
                await producer.send(message)

        async with asyncio.TaskGroup() as senders:
            for _ in range(request["in_flight"]):
                senders.create_task(sender())
        in_time = time.time() < (second if level is None else min(late.due))
        event("begin")
        start = time.perf_counter()
        try:
            await asyncio.wait_for(late.all_in.wait(), lead + DRAIN_SECONDS_MAX)
        except TimeoutError:
            pass
        seconds = time.perf_counter() - start
        event("end")
    return {
        "messages": count,
        "seconds": seconds,
        "acknowledged": count,
        "in_time": in_time,
        **late.result(),
    }


OPERATIONS: Final[dict[str, Callable[[Result], Result]]] = {
    "frames": frames,
    "sync_send": sync_send,
    "aio_send": lambda request: run(aio_send(request)),
    "consume": lambda request: run(consume(request)),
    "e2e": lambda request: run(e2e(request)),
    "delays": lambda request: run(delays(request)),
}


def main() -> None:
    """Serve requests from standard input until it closes."""
    event("ready")
    for line in sys.stdin:
        request = json.loads(line)
        try:
            event("result", **OPERATIONS[request["op"]](request))
        except Exception as error:
            traceback.print_exc()
            event("error", error=repr(error))


if __name__ == "__main__":
    main()
