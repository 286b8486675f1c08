"""Questions of brokers with a message: it is decompressed and digested beside the loop."""

from __future__ import annotations

import asyncio
import threading
import zlib
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support import run, until

from sparrowmq.client.base.tasks import TaskGroup
from sparrowmq.client.cluster.broker_api import command
from sparrowmq.client.cluster.transaction_checks import TransactionChecks
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.ids import pack_host
from sparrowmq.protocol.call_headers import CheckTransactionStateRequest, ConsumeMessageDirectlyRequest
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.compression import decompress
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.properties import encode
from sparrowmq.protocol.record import encode_record
from sparrowmq.protocol.sysflag import COMPRESSED
from sparrowmq.proxy.calls import transactions as transactions_module
from sparrowmq.proxy.calls.answers import MessageAnswers
from sparrowmq.proxy.calls.clients import Stream
from sparrowmq.proxy.calls.pending import PendingAnswers
from sparrowmq.proxy.calls.questions import ClientQuestions
from sparrowmq.proxy.calls.transactions import ProxyTransactions
from sparrowmq.proxy.definition.messages import Code, v2
from sparrowmq.transport.slices import TurnGate

BODY = bytes(1 << 20)


def stored() -> bytes:
    """A compressed record that a producer of the topic `t` sent."""
    host = pack_host("127.0.0.1", 1)
    properties = encode({"PGROUP": "t", "UNIQ_KEY": "AB"})
    return encode_record(
        topic=b"t", queue_id=0, queue_offset=3, physical_offset=100, body=zlib.compress(BODY),
        properties=properties, flag=0, sys_flag=COMPRESSED, born_timestamp=1, born_host=host,
        store_timestamp=2, store_host=host,
    )  # fmt: skip


class FakeInstance:
    """What a client instance registers, and its checks of transactions."""

    def __init__(self) -> None:
        self.checks = TransactionChecks()
        self.on_request: dict[int, Any] = {}

    def producer(self, group: str) -> None:
        return None

    def register_producer(self, group: str, producer: object) -> None:
        pass

    async def heartbeat(self) -> None:
        pass


class FakeBrokers:
    def __init__(self) -> None:
        self.instance = FakeInstance()

    async def message_type(self, topic: str) -> str:
        return "TRANSACTION"

    async def may_publish(self, topic: str) -> bool:
        return True


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads that decompress."""
    found: list[int] = []

    def noted(*values: Any) -> bytes:
        found.append(threading.get_ident())
        return decompress(*values)

    monkeypatch.setattr("sparrowmq.proxy.base.converting.decompress", noted)
    monkeypatch.setattr("sparrowmq.protocol.record.decompress_body", noted)
    return found


def question() -> Command:
    header = CheckTransactionStateRequest(
        tran_state_table_offset=1, commit_log_offset=100, broker_name="b", transaction_id="AB"
    )
    asked = command(RequestCode.CHECK_TRANSACTION_STATE, header)
    asked.body = stored()
    return asked


def test_half_message_is_decompressed_beside_the_loop(threads: list[int]) -> None:
    async def main() -> None:
        brokers: Any = FakeBrokers()
        tasks, answers, stream = TaskGroup(print), MessageAnswers(TurnGate(64)), Stream()
        transactions = ProxyTransactions(brokers, answers, tasks)
        await transactions.publishes("c", frozenset({"t"}), stream)
        brokers.instance.checks.receive("1.2.3.4:5", question())
        told = await asyncio.wait_for(anext(stream.commands()), 10)
        assert told.recover_orphaned_transaction_command.message.body == BODY
        await tasks.close()
        answers.close()

    run(main())
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


def test_questions_about_transactions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half messages of brokers that ask much faster than they can be made would fill the memory."""
    monkeypatch.setattr(transactions_module, "QUESTIONS_MAX", 3)

    async def main() -> None:
        brokers: Any = FakeBrokers()
        tasks, answers, stream = TaskGroup(print), MessageAnswers(TurnGate(64)), Stream()
        transactions = ProxyTransactions(brokers, answers, tasks)
        await transactions.publishes("c", frozenset({"t"}), stream)
        for _ in range(10):
            brokers.instance.checks.receive("1.2.3.4:5", question())
        assert len(tasks) == 3
        await until(lambda: not len(tasks))
        brokers.instance.checks.receive("1.2.3.4:5", question())
        assert len(tasks) == 1
        await tasks.close()
        answers.close()

    run(main())


def test_message_to_consume_at_once_is_decompressed_beside_the_loop(threads: list[int]) -> None:
    async def main() -> None:
        brokers: Any = FakeBrokers()
        answers, pending, stream = MessageAnswers(TurnGate(64)), PendingAnswers(), Stream()
        members: Any = {"c": SimpleNamespace(client_id="c", group="g")}
        ClientQuestions(members, pending, lambda client: stream, SystemClock(), answers).serve(brokers)
        header = ConsumeMessageDirectlyRequest(consumer_group="g", client_id="c", broker_name="b")
        asked = command(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
        asked.body = stored()
        handler = brokers.instance.on_request[RequestCode.CONSUME_MESSAGE_DIRECTLY]
        asking = asyncio.ensure_future(handler("1.2.3.4:5", asked))
        told = (await asyncio.wait_for(anext(stream.commands()), 10)).verify_message_command
        assert told.message.body == BODY
        answer = v2.TelemetryCommand(status=v2.Status(code=Code.OK))
        answer.verify_message_result.nonce = told.nonce
        pending.answered("c", answer)
        assert (await asking).code == 0
        answers.close()

    run(main())
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()
