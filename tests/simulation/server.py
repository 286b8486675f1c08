"""The shipped broker on a simulated disk: all its parts, without sockets, threads or time of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.broker.doubles import FakeClock, FakeRegistration
from tests.broker.pop.bench import Popped, received
from tests.broker.rig import ADDRESS, STORE_HOST

from sparrowmq.broker.base.periodic import Background
from sparrowmq.broker.parts import BrokerParts
from sparrowmq.broker.pop.revive import BUSY_SECONDS
from sparrowmq.broker.replication.reign import Reign
from sparrowmq.broker.server import store_settings
from sparrowmq.core.names import HALF_TOPIC
from sparrowmq.core.settings.servers import BrokerSettings
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command, FrameReader, decode, encode
from sparrowmq.protocol.pop.receipts import real_topic
from sparrowmq.protocol.properties import find
from sparrowmq.store.message_store import MessageStore
from sparrowmq.transport.server import Server
from sparrowmq.transport.stall_watch import watch_of

TURNS_MAX = 1000
"""Turns of the loop that an answer may take."""

SMALL: dict[str, Any] = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 100,
    "mapped_file_size_timer_log": 4096,
    "max_hash_slot_num": 20,
    "max_index_num": 50,
    "disk_space_warning_level_ratio": 100,
    "disk_space_clean_forcibly_ratio": 100,
    "disk_max_used_space_ratio": 100,
    "delete_commit_log_files_interval": 0,
    "message_delay_level": "1s 5s 10s 30s",
    "recall_message_enable": True,
    "transaction_time_out": 1000,
    "flush_interval_consume_queue": 600_000,
    "flush_interval_commit_log": 60_000,
}
"""Tiny files, so that a few messages cross their ends; nothing that happens by itself."""


class Inline(ThreadPoolExecutor):
    """Runs everything at once, where it is asked for."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Wire(asyncio.Transport):
    """A client that takes what it is sent."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 50_000)})
        self.data = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.data += bytes(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return 0, 1 << 20

    def is_closing(self) -> bool:
        return False

    def is_reading(self) -> bool:
        return True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def answers(self) -> list[Command]:
        """The frames written since the last call."""
        data, self.data = self.data, b""
        return [decode(*frame) for frame in FrameReader().feed(data)]


class SimulatedBroker:
    """One life of a broker over a directory. `start` opens it, `stop` or `kill` ends it."""

    def __init__(self, root: Path, clock: FakeClock, **settings: Any) -> None:
        self.settings = BrokerSettings(store_path_root_dir=root, **(SMALL | settings))
        self.clock = clock
        self._opaque = 0

    async def start(self) -> None:
        """Open the store and make the parts; raises what the broker would. Nothing is left behind then."""
        loop = asyncio.get_running_loop()
        loop.set_default_executor(Inline(1))
        self.store = MessageStore.open(store_settings(self.settings), self.clock, store_host=STORE_HOST)
        try:
            self.parts = BrokerParts(
                self.settings,
                self.store,
                background=Background(self.clock, Inline(1)),
                registration=lambda topics: FakeRegistration(),
                reign=Reign(self.settings, ADDRESS),
            )
        except BaseException:
            self.store.abandon()
            raise
        self._server = Server(self.parts.handler, port=10911)
        self._server.watch = watch_of(loop)
        self.parts.flusher.start()

    async def call(self, code: int, ext: dict[str, Any] | None = None, body: bytes = b"") -> Command | None:
        """A request's answer; None when there is none after many turns of the loop."""
        self._opaque += 1
        texts = {name: str(value) for name, value in (ext or {}).items()}
        answer: Command | None = await self.send(Command(code, self._opaque, ext=texts, body=body))
        return answer

    async def send(self, *commands: Command) -> Any:
        """The answer to the last of some requests that arrive in one read."""
        found = await self.send_all(*commands)
        return found.get(commands[-1].opaque)

    async def send_all(self, *commands: Command) -> dict[int, Command]:
        """The answers to requests that arrive in one read, by number."""
        wire = Wire()
        connection: Any = self._server._protocol(asyncio.get_running_loop())
        connection.connection_made(wire)
        found: dict[int, Command] = {}
        connection.data_received(b"".join(encode(command) for command in commands))
        for _ in range(TURNS_MAX):
            found |= {answer.opaque: answer for answer in wire.answers()}
            if len(found) == len(commands):
                break
            await asyncio.sleep(0)
        connection.connection_lost(None)
        return found

    # What goes by itself in a broker

    async def flush(self) -> int:
        """One flush of the log; up to where it is on disk."""
        await self.parts.flusher._flush()
        return self.store.flushed_position

    async def save_offsets(self) -> None:
        await self.parts.offset_saving.save()

    async def save_waiting(self) -> None:
        """The progress of delay levels and timers."""
        delayed: Any = self.parts.delayed
        await delayed._save()
        await delayed._save_timers()

    async def deliver(self) -> None:
        """Everything that is due."""
        delayed: Any = self.parts.delayed
        for _ in range(3000):
            more = await delayed.schedule._round() == 0.0
            if not more and delayed.timer.turn() != 0.0:
                return
        raise AssertionError("delivery does not come to an end")

    async def revive(self) -> None:
        """Everything of POP whose time is over is visible again."""
        reviver = self.parts.pop.reviver
        assert reviver is not None
        for _ in range(3000):
            await self.flush()
            await self.deliver()
            if reviver.turn() not in (0.0, BUSY_SECONDS):
                return
        raise AssertionError("reviving does not come to an end")

    async def save_orders(self) -> None:
        """The table of ordered hand-outs."""
        await self.parts.pop._save()

    async def pop(
        self, topic: str, group: str, count: int, invisible_ms: int, *, order: bool = False
    ) -> list[Popped]:
        """Messages that are handed out; none when that is refused."""
        ext = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": -1,
            "maxMsgNums": count,
            "invisibleTime": invisible_ms,
            "pollTime": 0,
            "initMode": 0,
            "order": str(order).lower(),
        }
        answer = await self.call(RequestCode.POP_MESSAGE, ext)
        return received(answer) if answer is not None and answer.code == 0 else []

    async def pop_all(self, topic: str, group: str) -> list[bytes]:
        """The bodies of all messages that are left for a group."""
        found: list[bytes] = []
        while some := await self.pop(topic, group, 32, 3_600_000):
            found += [one.body for one in some]
        return found

    async def ack(self, topic: str, group: str, one: Popped) -> Command | None:
        """The answer to an acknowledgement."""
        ext = {
            "consumerGroup": group,
            "topic": real_topic(topic, group, one.receipt.flag),
            "queueId": one.receipt.queue_id,
            "extraInfo": one.receipt.encode(),
            "offset": one.receipt.offset,
        }
        return await self.call(RequestCode.ACK_MESSAGE, ext)

    async def pop_all_in_order(self, topic: str, group: str) -> list[bytes]:
        """The same by ordered POP: more come only when the first are acknowledged."""
        found: list[bytes] = []
        while some := await self.pop(topic, group, 2, 3_600_000, order=True):
            assert not await self.pop(topic, group, 2, 3_600_000, order=True), "the queue is not blocked"
            for one in some:
                found.append(one.body)
                await self.ack(topic, group, one)
        return found

    async def clean(self) -> int:
        """Delete the files of the log whose time has passed."""
        cleaner = self.parts.upkeep.cleaner
        cleaner.ask()
        return await cleaner.clean()

    async def check_transactions(self) -> None:
        await self.parts.exchange.transactions.check()

    def open_halves(self) -> set[tuple[str, bytes]]:
        """Topics and bodies of the half messages whose producers are asked at their time."""
        transactions = self.parts.exchange.transactions
        halves = transactions._halves
        found = transactions._records(HALF_TOPIC, halves.first)
        left = [record for record in found if not halves.is_done(record.queue_offset)]
        return {((find(one.properties, b"REAL_TOPIC") or b"").decode(), one.body) for one in left}

    # The end

    async def stop(self) -> None:
        """A clean stop."""
        await self.parts.stop()
        await self._server.close()
        self.parts.save()
        self.store.close()

    async def kill(self) -> None:
        """Let go of everything; nothing more is written."""
        tasks = self.parts.flusher._tasks
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        timers = self.parts.delayed.timers
        if timers is not None:
            timers.abandon()
        self.store.abandon()
