"""Transactions with a scripted broker: half messages, ends, checks."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest
from tests.client.fake import FakeCluster, answer, fake_cluster
from tests.client.producing import SEND, sends
from tests.support import about, run, until

from sparrowmq.client.base.hooks import EndTransactionContext, EndTransactionHook
from sparrowmq.client.base.lifecycle import State
from sparrowmq.client.base.settings import ProducerSettings
from sparrowmq.client.producer.producer import Producer
from sparrowmq.client.producer.transaction import HalfMessage, TransactionState, half_message
from sparrowmq.core.errors import BrokerError, ClientError, InvalidMessageError
from sparrowmq.core.message import Message, MessageQueue, ReceivedMessage
from sparrowmq.protocol import properties
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import FLAG_ONEWAY, Command
from sparrowmq.protocol.record import encode_record
from sparrowmq.transport.address import pack_host

END = int(RequestCode.END_TRANSACTION)
CHECK = int(RequestCode.CHECK_TRANSACTION_STATE)


class Listener:
    """Gives the answers that a test sets; records the checks."""

    def __init__(
        self, outcome: Any = TransactionState.COMMIT, checked: Any = TransactionState.COMMIT
    ) -> None:
        self.outcome = outcome
        self.checked = checked
        self.executed: list[tuple[HalfMessage, Any]] = []
        self.checks: list[ReceivedMessage] = []
        self.threads: set[str] = set()

    def execute(self, message: HalfMessage, argument: Any) -> TransactionState | None:
        self.threads.add(threading.current_thread().name)
        self.executed.append((message, argument))
        return self._give(self.outcome)

    def check(self, message: ReceivedMessage) -> TransactionState | None:
        self.threads.add(threading.current_thread().name)
        self.checks.append(message)
        return self._give(self.checked)

    @staticmethod
    def _give(outcome: Any) -> Any:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


class AsyncListener(Listener):
    async def execute(self, message: HalfMessage, argument: Any) -> TransactionState | None:
        await asyncio.sleep(0)
        return super().execute(message, argument)

    async def check(self, message: ReceivedMessage) -> TransactionState | None:
        await asyncio.sleep(0)
        return super().check(message)


def flow(test: Any, listener: Any, **settings: Any) -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            ends: list[Command] = []
            cluster.broker.learn(END, lambda conn, c: ends.append(c))
            made = ProducerSettings(namesrv=cluster.namesrv, **settings)
            async with Producer("g", settings=made, transaction_listener=listener) as producer:
                await test(cluster, producer, ends)

    run(main())


def ask(cluster: FakeCluster, group: str = "g", body: bytes = b"", key: str = "K1") -> None:
    """Make the broker check a transaction on every connection."""
    host = pack_host("127.0.0.1", 10911)
    record = body or encode_record(
        topic=b"T",
        queue_id=1,
        queue_offset=5,
        physical_offset=77,
        body=b"x",
        properties=properties.encode({"PGROUP": group, "UNIQ_KEY": key, "TRAN_MSG": "true"}),
        flag=0,
        sys_flag=0,
        born_timestamp=1,
        born_host=host,
        store_timestamp=1,
        store_host=host,
    )
    ext = {
        "tranStateTableOffset": "5",
        "commitLogOffset": "77",
        "msgId": key,
        "transactionId": key,
        "bname": "broker-a",
    }
    for conn in cluster.broker.server.connections:
        conn.notify(Command(CHECK, ext=ext, body=record))


@pytest.mark.proves("client:B-98", "client:B-99", "client:B-101", "client:B-103", "client:B-67")
@pytest.mark.parametrize("kind", [Listener, AsyncListener])
@pytest.mark.parametrize(
    ("outcome", "state", "bits"),
    [
        (TransactionState.COMMIT, TransactionState.COMMIT, "8"),
        (TransactionState.ROLLBACK, TransactionState.ROLLBACK, "12"),
        (TransactionState.UNKNOWN, TransactionState.UNKNOWN, "0"),
        (None, TransactionState.UNKNOWN, "0"),
        (ValueError("local trouble"), TransactionState.UNKNOWN, "0"),
        ("nonsense", TransactionState.UNKNOWN, "0"),
    ],
)
def test_transaction_is_stored_executed_and_ended(
    kind: type[Listener], outcome: Any, state: TransactionState, bits: str
) -> None:
    listener = kind(outcome)

    async def test(cluster: FakeCluster, producer: Producer, ends: list[Command]) -> None:
        message = Message("T", b"x", tags="A", keys="k", delay_level=3)
        result = await producer.send_in_transaction(message, {"an": "argument"}, check_after=30)
        assert result.state is state
        assert (result.error is None) is (not isinstance(outcome, Exception | str))
        ((half, argument),) = listener.executed
        assert argument == {"an": "argument"} and (half.body, half.tags) == (b"x", "A")
        assert half.message_id == half.transaction_id == result.send.message_id
        assert message.delay_level == 3 and message.system is None, "the caller's message stays as it was"
        (sent,) = sends(cluster)
        found = properties.decode((sent.properties or "").encode())
        assert found["TRAN_MSG"] == "true" and found["PGROUP"] == "g" and "DELAY" not in found
        assert found["CHECK_IMMUNITY_TIME_IN_SECONDS"] == "30" and sent.sys_flag == 4
        await until(lambda: ends)
        (end,) = ends
        assert end.flag & FLAG_ONEWAY
        assert end.ext == {
            "producerGroup": "g",
            "tranStateTableOffset": str(result.send.queue_offset),
            "commitLogOffset": str(int(result.send.offset_message_id[16:], 16)),
            "commitOrRollback": bits,
            "fromTransactionCheck": "false",
            "msgId": result.send.message_id,
            "transactionId": result.send.transaction_id,
            "topic": "T",
            "bname": "broker-a",
        }
        assert ("local trouble" in (end.remark or "")) is (
            isinstance(outcome, Exception) and "local" in str(outcome)
        )
        if kind is Listener:
            assert all("g-local" in name for name in listener.threads)

    flow(test, listener)


@pytest.mark.proves("client:B-100")
@pytest.mark.parametrize("code", [10, 11, 12])
def test_unsafely_stored_half_message_is_rolled_back_without_the_local_branch(code: int) -> None:
    listener = Listener()

    async def test(cluster: FakeCluster, producer: Producer, ends: list[Command]) -> None:
        def handle(conn: Any, command: Command) -> Command:
            stored = cluster.broker.send(conn, command)
            stored.code = code
            return stored

        cluster.broker.on[SEND] = handle
        result = await producer.send_in_transaction(Message("T", b"x"))
        assert result.state is TransactionState.ROLLBACK and not listener.executed
        await until(lambda: ends)
        assert ends[0].ext["commitOrRollback"] == "12"

    flow(test, listener)


@pytest.mark.proves("client:B-98")
def test_unstored_half_message_raises_and_nothing_is_executed() -> None:
    listener = Listener()

    async def test(cluster: FakeCluster, producer: Producer, ends: list[Command]) -> None:
        cluster.broker.on[SEND] = lambda conn, c: answer(1, remark="no")
        with pytest.raises(BrokerError):
            await producer.send_in_transaction(Message("T", b"x"))
        assert len(sends(cluster)) == 3, "with the usual tries"
        assert not listener.executed and not ends
        with pytest.raises(InvalidMessageError, check=about(part="check_after", value=-1)):
            await producer.send_in_transaction(Message("T", b"x"), check_after=-1)

    flow(test, listener)


@pytest.mark.proves("client:B-97")
def test_producer_without_a_listener_refuses() -> None:
    async def test(cluster: FakeCluster, producer: Producer, ends: list[Command]) -> None:
        with pytest.raises(ClientError, check=about(what="transaction_listener")):
            await producer.send_in_transaction(Message("T", b"x"))
        assert not sends(cluster)

    flow(test, None)


@pytest.mark.proves("client:B-101")
def test_unreported_end_is_logged_and_the_result_is_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = Listener()

    async def test(cluster: FakeCluster, producer: Producer, ends: list[Command]) -> None:
        def odd_id(conn: Any, command: Command) -> Command:
            stored = cluster.broker.send(conn, command)
            stored.ext["msgId"] = "no hex"
            return stored

        cluster.broker.on[SEND] = odd_id
        result = await producer.send_in_transaction(Message("T", b"x"))
        assert result.state is TransactionState.COMMIT
        assert "the broker will check" in caplog.text and not ends

    with caplog.at_level(logging.WARNING, "sparrowmq.client"):
        flow(test, listener)


def test_system_exit_is_an_error_of_the_local_branch() -> None:
    class Leaving(Listener):
        def execute(self, message: HalfMessage, argument: Any) -> TransactionState | None:
            raise SystemExit(3)

    async def test(cluster: FakeCluster, producer: Producer, ends: list[Command]) -> None:
        result = await producer.send_in_transaction(Message("T", b"x"))
        assert (result.state, str(result.error)) == (TransactionState.UNKNOWN, "it raised SystemExit(3)")

    flow(test, Leaving())


@pytest.mark.proves("client:B-102", "client:A-86", "client:B-67")
@pytest.mark.parametrize("kind", [Listener, AsyncListener])
@pytest.mark.parametrize(
    ("outcome", "bits"),
    [
        (TransactionState.COMMIT, "8"),
        (TransactionState.ROLLBACK, "12"),
        (None, "0"),
        (ValueError("who knows"), "0"),
    ],
)
def test_transaction_check_is_answered(kind: type[Listener], outcome: Any, bits: str) -> None:
    listener = kind(checked=outcome)

    async def test(cluster: FakeCluster, producer: Producer, ends: list[Command]) -> None:
        await producer.send(Message("T", b"connect"))
        ask(cluster)
        await until(lambda: ends)
        (end,) = ends
        assert end.flag & FLAG_ONEWAY
        assert end.ext == {
            "producerGroup": "g",
            "tranStateTableOffset": "5",
            "commitLogOffset": "77",
            "commitOrRollback": bits,
            "fromTransactionCheck": "true",
            "msgId": "K1",
            "transactionId": "K1",
            "topic": "T",
            "bname": "broker-a",
        }
        assert ("who knows" in (end.remark or "")) is isinstance(outcome, Exception)
        (message,) = listener.checks
        assert (message.topic, message.body, message.message_id) == ("T", b"x", "K1")

    flow(test, listener)


@pytest.mark.proves("client:B-102")
def test_checks_run_in_a_bounded_pool_and_excess_is_left_to_the_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Slow(Listener):
        def __init__(self) -> None:
            super().__init__()
            self.go = asyncio.Event()
            self.running = self.peak = 0

        async def check(self, message: ReceivedMessage) -> TransactionState:
            self.running += 1
            self.peak = max(self.peak, self.running)
            await self.go.wait()
            self.running -= 1
            return TransactionState.COMMIT

    async def test(cluster: FakeCluster, producer: Producer, ends: list[Command]) -> None:
        await producer.send(Message("T", b"connect"))
        for number in range(5):
            ask(cluster, key=f"K{number}")
        await until(lambda: "checks of transactions of group g are already waiting" in caplog.text)
        assert listener.peak == 1
        listener.go.set()
        await until(lambda: len(ends) == 3)
        assert [end.ext["msgId"] for end in ends] == ["K0", "K1", "K2"] and listener.peak == 1

    listener = Slow()
    with caplog.at_level(logging.WARNING, "sparrowmq.client"):
        flow(test, listener, check_threads=1, checks_max=3)


@pytest.mark.proves("client:B-102")
def test_foreign_and_unreadable_checks_are_logged_and_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = Listener()

    async def test(cluster: FakeCluster, producer: Producer, ends: list[Command]) -> None:
        await producer.send(Message("T", b"connect"))
        ask(cluster, group="another")
        await until(lambda: "of group 'another', which has no listener here" in caplog.text)
        ask(cluster, body=b"junk")
        await until(lambda: "asks about a transaction that is unreadable" in caplog.text)
        ask(cluster)
        await until(lambda: ends)

    with caplog.at_level(logging.WARNING, "sparrowmq.client"):
        flow(test, listener)


@pytest.mark.proves("client:B-48")
def test_hooks_see_both_kinds_of_transaction_ends() -> None:
    seen: list[EndTransactionContext] = []

    class Hook(EndTransactionHook):
        def end_transaction(self, context: EndTransactionContext) -> None:
            seen.append(context)
            raise ValueError("ignored")

    async def test(cluster: FakeCluster, producer: Producer, ends: list[Command]) -> None:
        result = await producer.send_in_transaction(Message("T", b"x"))
        ask(cluster)
        await until(lambda: len(ends) == 2)
        assert [(c.state, c.from_check, c.message_id) for c in seen] == [
            ("COMMIT_MESSAGE", False, result.send.message_id),
            ("COMMIT_MESSAGE", True, "K1"),
        ]
        assert all(c.address == cluster.broker.server.address and c.group == "g" for c in seen)

    flow(test, Listener(), hooks=(Hook(),))


def test_half_message_keeps_the_contents_of_the_message() -> None:
    half = half_message(Message("T", b"b", "tag", ["k"], {"a": "b"}, 7, False), "g", None)
    assert (half.topic, half.body, half.tags, half.keys_text) == ("T", b"b", "tag", "k")
    assert (half.properties, half.flag, half.wait_store_ok) == ({"a": "b"}, 7, False)
    assert half.system == {"TRAN_MSG": "true", "PGROUP": "g"}


@pytest.mark.proves("client:B-15")
@pytest.mark.parametrize("hangs", [False, True])
def test_running_checks_end_before_the_producer_closes_if_they_end_at_all(hangs: bool) -> None:
    class Slow(Listener):
        async def check(self, message: ReceivedMessage) -> TransactionState:
            self.checks.append(message)
            await until(lambda: closing and closing[0].state is State.CLOSING)
            if hangs:
                await asyncio.Event().wait()
            return TransactionState.COMMIT

    listener, closing = Slow(), list[Producer]()

    async def test(cluster: FakeCluster, producer: Producer, ends: list[Command]) -> None:
        closing.append(producer)
        await producer.send(Message("T", b"connect"))
        ask(cluster)
        await until(lambda: listener.checks)
        await producer.close()
        if not hangs:
            await until(lambda: [end.ext["commitOrRollback"] for end in ends] == ["8"])
        assert len(ends) == int(not hangs)

    flow(test, listener, close_timeout=0.2 if hangs else 20.0)


@pytest.mark.proves("client:B-15", "client:B-14")
def test_checks_are_answered_from_start_to_close() -> None:
    listener = Listener()

    async def test(cluster: FakeCluster, producer: Producer, ends: list[Command]) -> None:
        assert producer._sender is not None
        instance = producer._sender.instance
        instance.hold()
        await producer.send(Message("T", b"connect"))
        ask(cluster)
        await until(lambda: ends)
        await producer.close()
        assert "g" not in instance.checks._checkers
        ask(cluster)
        await instance.brokers.max_offset(cluster.broker.server.address, MessageQueue("T", "broker-a", 0))
        assert len(ends) == len(listener.checks) == 1
        await instance.close()

    flow(test, listener)


def test_successor_that_has_not_sent_is_known_to_all_brokers_and_answers_checks() -> None:
    beat, listener = int(RequestCode.HEART_BEAT), Listener()

    async def main() -> None:
        async with fake_cluster(brokers=2) as cluster:
            made = ProducerSettings(namesrv=cluster.namesrv, heartbeat_interval=0.01, route_interval=0.01)
            ends: list[Command] = []
            cluster.broker.learn(END, lambda conn, c: ends.append(c))

            def beats() -> list[int]:
                return [sum(c.code == beat for c in one.seen) for one in cluster.brokers.values()]

            async with Producer("g", settings=made, transaction_listener=listener):
                await until(lambda: min(beats()) >= 3)
                assert len(cluster.broker.server.connections) == 1
                ask(cluster)
                await until(lambda: ends)
                assert len(listener.checks) == 1
            async with Producer("plain", settings=made) as plain:
                before = beats()
                await plain._sender.instance.heartbeat()
                assert beats() == before, "without a listener only brokers with a route are greeted"

    run(main())


def test_transactional_producer_starts_without_a_name_server_and_greets_brokers_later() -> None:
    beat = int(RequestCode.HEART_BEAT)

    async def main() -> None:
        async with fake_cluster() as cluster:
            refused = iter([True] * 3)

            def busy(conn: Any, command: Command) -> Command:
                return (
                    answer(1, remark="busy") if next(refused, False) else cluster.cluster_info(conn, command)
                )

            cluster.on[RequestCode.GET_BROKER_CLUSTER_INFO] = busy
            made = ProducerSettings(namesrv=cluster.namesrv, heartbeat_interval=0.01, route_interval=0.01)
            async with Producer("g", settings=made, transaction_listener=Listener()):
                await until(lambda: any(c.code == beat for c in cluster.broker.seen))

    run(main())
