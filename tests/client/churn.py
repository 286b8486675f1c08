"""A group under churn, simulated: members, brokers and connections start and stop while a virtual clock runs.

Everything random comes from one seed, and the clock jumps to the next thing to do, so a run of many minutes
takes a second or two and replays exactly. The consumers are the real ones; only their connections are
simulated.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections import Counter, defaultdict
from collections.abc import Awaitable, Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from tests.client.fake import BROKER, FakeBroker, FakeCluster, answer

from sparrowmq.client.base.settings import ConsumerSettings
from sparrowmq.client.push.push_consumer import PushConsumer
from sparrowmq.core.errors import ConnectError, ConnectionLostError, RequestTimeoutError
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.protocol import bodies, headers, properties
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command

T = TypeVar("T")
LOCK_SECONDS = 60.0
RETRY_SECONDS = 10.0
KEEP_SECONDS = 5.0
QUEUES = 4
BROKERS = 2


class _Jump(selectors.BaseSelector):
    """A selector that does not wait: the loop's clock jumps instead."""

    def __init__(self) -> None:
        self._inner = selectors.DefaultSelector()
        self.now = 0.0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._inner.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.modify(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing is left to do: the simulation would wait for ever"
        self.now += max(0.0, timeout)
        return self._inner.select(0)

    def get_map(self) -> Any:
        return self._inner.get_map()

    def close(self) -> None:
        self._inner.close()


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only when there is nothing else to do."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now


class SimClock:
    """The clock of the simulated clients."""

    def now_ms(self) -> int:
        return 1_700_000_000_000 + round(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class SimBroker(FakeBroker):
    """A broker whose locks expire and that delivers failed messages again."""

    def __init__(self, cluster: SimCluster, name: str) -> None:
        super().__init__(cluster, name)
        self.is_up = True
        self.stored: dict[int, tuple[str, bytes, bytes, int]] = {}
        self.lock_times: dict[tuple[str, MessageQueue], float] = {}
        self.retries = 0
        self._kept: dict[tuple[str, str, int], int] = {}
        self._kept_at = 0.0

    def keep_offsets(self) -> None:
        """Record the offsets as they are on disk: written every five seconds."""
        now = asyncio.get_running_loop().time()
        if now - self._kept_at >= KEEP_SECONDS:
            self._kept, self._kept_at = dict(self.offsets), now

    def die(self) -> None:
        """Everything that is only in memory is lost."""
        self.is_up = False
        self.offsets = dict(self._kept)
        self.locks.clear()
        self.lock_times.clear()

    def update_offset(self, conn: Any, command: Command) -> Command:
        self.keep_offsets()
        return super().update_offset(conn, command)

    async def pull(self, conn: Any, command: Command) -> Command:
        self.keep_offsets()
        return await super().pull(conn, command)

    def store(
        self, topic: str, queue_id: int, body: bytes, props: bytes = b"", **more: Any
    ) -> tuple[int, int]:
        found = super().store(topic, queue_id, body, props, **more)
        self.stored[found[1]] = (topic, body, props, more.get("reconsume_times", 0))
        return found

    def lock(self, conn: Any, command: Command) -> Command:
        body, now = bodies.LockBatchRequestBody.decode(command.body), asyncio.get_running_loop().time()
        for queue in body.queues:
            key = (body.consumer_group, queue)
            if now - self.lock_times.get(key, -LOCK_SECONDS) >= LOCK_SECONDS:
                self.locks.pop(key, None)
            if self.locks.get(key, body.client_id) == body.client_id:
                self.lock_times[key] = now
        return super().lock(conn, command)

    def send_back(self, conn: Any, command: Command) -> Command:
        header = headers.from_ext(headers.ConsumerSendMsgBackRequest, command.ext)
        topic, body, props, times = self.stored[header.offset]
        table = properties.decode(props)
        table.setdefault("RETRY_TOPIC", topic)
        self.retries += 1

        def again() -> None:
            self.store(f"%RETRY%{header.group}", 0, body, properties.encode(table), reconsume_times=times + 1)

        asyncio.get_running_loop().call_later(RETRY_SECONDS, again)
        return answer()


class SimCluster(FakeCluster):
    """The cluster, and which of its brokers can be reached."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(0)
        self.rng = rng
        self.brokers: dict[str, SimBroker] = {
            f"broker-{chr(97 + n)}": SimBroker(self, f"broker-{chr(97 + n)}") for n in range(BROKERS)
        }
        self.add_topic("T", QUEUES)
        SimRemoting.world, SimRemoting.everybody = self, []

    def address(self, name: str) -> str:
        return f"10.0.0.{ord(name[-1])}:10911"

    def _broker_data(self, name: str) -> Any:
        from sparrowmq.core.route import BrokerData

        return BrokerData("Sim", name, {0: self.address(name)})

    def find(self, address: str) -> SimBroker | None:
        for name, broker in self.brokers.items():
            if self.address(name) == address:
                assert isinstance(broker, SimBroker)
                return broker
        return None


class SimConnection:
    """A member as a broker sees it: an object to notify."""

    def __init__(self, remoting: SimRemoting, address: str) -> None:
        self._remoting = remoting
        self._address = address

    def notify(self, command: Command) -> None:
        remoting = self._remoting
        handler = remoting.on_request.get(command.code)
        if handler is not None and not remoting.is_dead:
            asyncio.get_running_loop().call_later(0.001, handler, self._address, command)


class SimRemoting:
    """Replaces `RemotingClient`: requests reach the simulated cluster late, or not at all."""

    world: SimCluster
    everybody: list[SimRemoting]

    def __init__(self, **given: Any) -> None:
        self.on_request: dict[int, Any] = given["on_request"]
        self._on_connected = given["on_connected"]
        self._on_lost = given["on_lost"]
        self._connections: dict[str, SimConnection] = {}
        self._held: dict[asyncio.Task[Any], str] = {}
        self.is_dead = False
        self.is_hooked = False
        self.everybody.append(self)

    def _connect(self, address: str) -> SimConnection:
        if address not in self._connections:
            self._connections[address] = SimConnection(self, address)
            self._on_connected(address)
        return self._connections[address]

    async def connect(self, address: str) -> None:
        broker = self.world.find(address)
        if self.is_dead or (broker is not None and not broker.is_up):
            raise ConnectError(f"{address} is not there", address=address)
        self._connect(address)

    async def call(self, address: str, command: Command, timeout: float) -> Command:
        rng, world = self.world.rng, self.world
        await asyncio.sleep(rng.uniform(0.0005, 0.01))
        broker = world.find(address)
        if self.is_dead or (broker is not None and not broker.is_up):
            raise ConnectError(f"{address} is not there", address=address)
        conn = self._connect(address)
        if broker is None:
            return world.route(conn, command)
        command = Command(command.code, ext=dict(command.ext), body=command.body)
        found: Any = TABLE[command.code](broker, conn, command)
        if isinstance(found, Awaitable):
            task = asyncio.ensure_future(found)
            self._held[task] = address
            try:
                found = await asyncio.wait_for(task, timeout)
            except TimeoutError:
                raise RequestTimeoutError(f"{address} is silent", address=address) from None
            except asyncio.CancelledError:
                if task.cancelled() and not asyncio.current_task().cancelling():
                    raise ConnectionLostError(f"{address} went away", address=address) from None
                raise
            finally:
                self._held.pop(task, None)
        await asyncio.sleep(rng.uniform(0.0005, 0.01))
        if self.is_dead or not broker.is_up or address not in self._connections:
            raise ConnectionLostError(f"{address} went away", address=address)
        return found

    async def notify(self, address: str, command: Command, timeout: float = 3.0) -> None:
        if self.world.rng.random() < 0.1:
            return  # one-way requests get lost
        try:
            await self.call(address, command, timeout)
        except ConnectionLostError:
            pass

    def disconnect(self, address: str, reason: str = "") -> None:
        self.lose(address)

    def lose(self, address: str) -> None:
        """The connection breaks: pending requests fail, the broker removes the member."""
        if self._connections.pop(address, None) is None:
            return
        if not self.is_dead:
            self._on_lost(address)
        for task in [task for task, at in self._held.items() if at == address]:
            task.cancel()
        broker = self.world.find(address)
        if broker is not None:
            for group, members in broker.members.items():
                for client_id in [c for c, conn in members.items() if self.is_end_of(conn)]:
                    del members[client_id]
                    broker.notify(group)

    def is_end_of(self, connection: object) -> bool:
        """Whether a broker reaches this member by the connection."""
        return isinstance(connection, SimConnection) and connection._remoting is self

    def lose_all(self) -> None:
        for address in list(self._connections):
            self.lose(address)

    async def close(self, timeout: float = 3.0) -> None:
        self.lose_all()
        self.is_dead = True


TABLE: dict[int, Any] = {
    RequestCode.PULL_MESSAGE: SimBroker.pull,
    RequestCode.QUERY_CONSUMER_OFFSET: SimBroker.query_offset,
    RequestCode.UPDATE_CONSUMER_OFFSET: SimBroker.update_offset,
    RequestCode.GET_MAX_OFFSET: lambda broker, _, c: broker._offset(c, len),
    RequestCode.HEART_BEAT: SimBroker.heartbeat,
    RequestCode.UNREGISTER_CLIENT: SimBroker.unregister,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: SimBroker.consumer_list,
    RequestCode.CONSUMER_SEND_MSG_BACK: SimBroker.send_back,
    RequestCode.LOCK_BATCH_MQ: SimBroker.lock,
    RequestCode.UNLOCK_BATCH_MQ: SimBroker.unlock,
    RequestCode.SEND_MESSAGE_V2: lambda broker, _, c: answer(14, remark="no copies here"),
}


class Churn:
    """One simulated run. `problems` says what went wrong, `deliveries` how often each message came."""

    def __init__(self, seed: int, *, ordered: bool, seconds: float) -> None:
        self.rng = random.Random(f"{seed}-{ordered}")
        self.ordered = ordered
        self.seconds = seconds
        self.world = SimCluster(self.rng)
        self.sent: set[int] = set()
        self.succeeded: Counter[int] = Counter()
        self.deliveries: Counter[int] = Counter()
        self.next_offset: dict[MessageQueue, int] = defaultdict(int)
        self.problems: list[str] = []
        self.members: list[PushConsumer] = []
        self.events: Counter[str] = Counter()
        self._index_of: dict[PushConsumer, int] = {}
        self._dead: set[int] = set()
        self._at_work: dict[MessageQueue, set[int]] = defaultdict(set)
        self.overlaps = 0
        """How often a handler began while another member's was at work on the same ordered queue."""

    @property
    def duplicates(self) -> int:
        """Deliveries beyond the first of each message."""
        return sum(self.deliveries.values()) - len(self.deliveries)

    async def run(self) -> None:
        """Send, consume and cause churn, then wait until everything has settled."""
        for _ in range(3):
            await self._join()
        sending = asyncio.create_task(self._send())
        loop = asyncio.get_running_loop()
        while loop.time() < self.seconds:
            await asyncio.sleep(self.rng.uniform(0.5, 8))
            await self._something_happens()
        await sending
        for broker in self.world.brokers.values():
            broker.is_up = True
        if not self.members:
            await self._join()
        end = loop.time() + 600
        while loop.time() < end and len(self.succeeded) < len(self.sent):  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(1)
        for consumer in list(self.members):
            await consumer.close()
        lost = sorted(self.sent - set(self.succeeded))
        if lost:
            self.problems.append(f"{len(lost)} messages were lost: {lost[:10]}")

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < self.seconds:
            await asyncio.sleep(self.rng.expovariate(8))
            name = self.rng.choice(list(self.world.brokers))
            number = len(self.sent)
            self.sent.add(number)
            self.world.brokers[name].store("T", self.rng.randrange(QUEUES), b"%d" % number)

    async def _join(self) -> None:
        settings = ConsumerSettings(
            namesrv="10.0.0.1:9876",
            client_ip="10.0.0.9",
            instance_name=f"member-{self.rng.randrange(10**6)}",
            consume_from="first",
            ordered=self.ordered,
            threads=4,
            suspend_time=0.1,
            pull_batch=8,
        )
        consumer = PushConsumer("g", settings=settings)
        index = len(self.events) + sum(self.events.values())

        async def handle(message: ReceivedMessage) -> None:
            await self._handle(index, message)

        consumer.subscribe("T", handler=handle)
        self.events["join"] += 1
        try:
            await consumer.start()
        except (ConnectError, ConnectionLostError):
            return
        self._index_of[consumer] = index
        self.members.append(consumer)

    async def _handle(self, index: int, message: ReceivedMessage) -> None:
        number = int(message.body)
        self.deliveries[number] += 1
        is_first_copy = message.queue.topic == "T"
        if self.ordered and is_first_copy and message.queue_offset > self.next_offset[message.queue]:
            self.problems.append(
                f"{message.queue} offset {message.queue_offset} came before {self.next_offset[message.queue]}"
            )
        at_work = self._at_work[message.queue]
        self.overlaps += self.ordered and bool(at_work - {index} - self._dead)
        at_work.add(index)
        await asyncio.sleep(self.rng.choice((0, 0, 0.01, 0.2)))
        at_work.discard(index)
        if self.rng.random() < 0.03:
            raise ValueError("a bad day")
        if index in self._dead:
            return
        self.succeeded[number] += 1
        if is_first_copy and message.queue_offset == self.next_offset[message.queue]:
            self.next_offset[message.queue] += 1

    async def _something_happens(self) -> None:
        kind = self.rng.choice(("join", "leave", "kill", "cut", "broker"))
        if kind == "join" and len(self.members) < 6:
            await self._join()
        elif kind == "leave" and len(self.members) > 1:
            self.events["leave"] += 1
            await self.members.pop(self.rng.randrange(len(self.members))).close()
        elif kind == "kill" and len(self.members) > 1:
            self.events["kill"] += 1
            consumer = self.members.pop(self.rng.randrange(len(self.members)))
            member = consumer._member
            assert member is not None
            self._dead.add(self._index_of[consumer])
            remoting: Any = member.instance.remoting
            remoting.is_dead = True
            remoting.lose_all()
            await member.abort()
        elif kind == "cut" and self.members:
            self.events["cut"] += 1
            member = self.rng.choice(self.members)._member
            assert member is not None
            cut: Any = member.instance.remoting
            cut.lose_all()
        elif kind == "broker":
            self.events["broker"] += 1
            broker: Any = self.rng.choice(list(self.world.brokers.values()))
            broker.die()
            address = self.world.address(broker.name)
            for remoting in SimRemoting.everybody:
                remoting.lose(address)

            def back() -> None:
                broker.is_up = True

            asyncio.get_running_loop().call_later(self.rng.uniform(1, 20), back)


def virtual_time(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients made from now on live in a simulation with its clock, its connections, and the random
    numbers of `seed`."""
    monkeypatch.setattr("sparrowmq.client.cluster.instance.RemotingClient", SimRemoting)
    monkeypatch.setattr("sparrowmq.client.cluster.instance.SystemClock", SimClock)
    more = random.Random(seed)
    monkeypatch.setattr(
        "sparrowmq.client.cluster.instance.random",
        SimpleNamespace(Random=lambda: random.Random(more.random())),
    )


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, in a loop whose time is virtual."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def simulate(seed: int, monkeypatch: pytest.MonkeyPatch, *, ordered: bool, seconds: float) -> Churn:
    """One run with everything derived from `seed`."""
    virtual_time(seed, monkeypatch)
    churn = Churn(seed, ordered=ordered, seconds=seconds)
    run_virtually(churn.run())
    return churn


__all__ = ["BROKER", "Churn", "SimCluster", "run_virtually", "simulate", "virtual_time"]
