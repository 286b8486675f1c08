"""Load from RocketMQ's Python client for gRPC, as a process, spoken to by `load.Load`.

Its argument is the directory of the installed client. Operations: `send` and `receive`, each with `in_flight`
messages at one time.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

sys.path.insert(0, sys.argv[1])

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer

Result = dict[str, Any]
BATCH = 32
INVISIBLE_SECONDS = 60
SETTLE_SECONDS = 20.0


def event(name: str, **values: Any) -> None:
    """Tell the harness."""
    print(json.dumps({"event": name, **values}), flush=True)


def percentiles(seconds: list[float]) -> Result:
    """Median and 99th percentile in milliseconds."""
    ordered = sorted(seconds) or [0.0]
    return {
        f"p{share}_ms": ordered[min(len(ordered) - 1, len(ordered) * share // 100)] * 1e3
        for share in (50, 99)
    }


class Window:
    """Counts what ends while it is open."""

    def __init__(self) -> None:
        self.took: list[float] = []
        self.failed = 0
        self.stop = False

    def measure(self, warm: float, seconds: float) -> Result:
        """Open it after `warm` seconds, for `seconds`."""
        time.sleep(warm)
        self.took, self.failed = [], 0
        event("begin")
        began = time.perf_counter()
        time.sleep(seconds)
        took, ended = self.took, time.perf_counter()
        event("end")
        self.stop = True
        found = {"messages": len(took), "acknowledged": len(took), "failed": self.failed}
        return {**found, "seconds": ended - began, **percentiles(took)}


def own_loop() -> None:
    """Give a thread the loop without which the client's calls fail there."""
    asyncio.set_event_loop(asyncio.new_event_loop())


def configuration(asked: Result) -> Any:
    """How the client connects."""
    return ClientConfiguration(asked["endpoints"], Credentials())


def send(asked: Result) -> Result:
    """Sends of one message each; a finished one begins the next."""
    producer = Producer(configuration(asked), (asked["topic"],))
    producer.startup()
    window, body = Window(), bytes(asked["size"])
    slots = threading.Semaphore(asked["in_flight"])

    def one() -> None:
        message = Message()
        message.topic, message.body = asked["topic"], body
        began = time.perf_counter()
        if asked["in_flight"] == 1:
            producer.send(message)
            window.took.append(time.perf_counter() - began)
            return
        slots.acquire()

        def done(future: Any) -> None:
            slots.release()
            if future.exception() is None:
                window.took.append(time.perf_counter() - began)
            else:
                window.failed += 1

        producer.send_async(message).add_done_callback(done)

    def work() -> None:
        own_loop()
        while not window.stop:
            one()

    thread = threading.Thread(target=work)
    thread.start()
    found = window.measure(asked["warm"], asked["seconds"])
    thread.join()
    for _ in range(asked["in_flight"] if asked["in_flight"] > 1 else 0):
        slots.acquire(timeout=SETTLE_SECONDS)
    producer.shutdown()
    return found


def receive(asked: Result) -> Result:
    """Receives, and an acknowledgement of each message; a time is that of one receive with its own."""
    consumer = SimpleConsumer(configuration(asked), asked["group"], {asked["topic"]: FilterExpression()})
    consumer.startup()
    window = Window()
    count = min(BATCH, asked["in_flight"])
    acks = ThreadPoolExecutor(asked["in_flight"], initializer=own_loop)

    def work() -> None:
        own_loop()
        while not window.stop:
            began = time.perf_counter()
            try:
                got = consumer.receive(count, INVISIBLE_SECONDS)
                if len(got) == 1:
                    consumer.ack(got[0])
                else:
                    for _ in acks.map(consumer.ack, got):
                        pass
            except Exception as error:
                if "MESSAGE_NOT_FOUND" not in str(error) and "no new message" not in str(error):
                    window.failed += 1
                    print(repr(error), file=sys.stderr)
                continue
            took = time.perf_counter() - began
            window.took.extend([took] * len(got))

    threads = [threading.Thread(target=work) for _ in range(max(1, asked["in_flight"] // BATCH))]
    for thread in threads:
        thread.start()
    found = window.measure(asked["warm"], asked["seconds"])
    for thread in threads:
        thread.join()
    acks.shutdown()
    consumer.shutdown()
    return found


def main() -> None:
    """Do what each line of the standard input says."""
    operations: dict[str, Callable[[Result], Result]] = {"send": send, "receive": receive}
    event("ready")
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            event("result", **operations[asked["op"]](asked))
        except Exception:
            event("error", error=traceback.format_exc())


if __name__ == "__main__":
    main()
