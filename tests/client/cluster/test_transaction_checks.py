from __future__ import annotations

import logging

import pytest
from tests.client.fake import NOW_MS

from sparrowmq.client.cluster.transaction_checks import TransactionChecks
from sparrowmq.core.message import ReceivedMessage
from sparrowmq.protocol import properties
from sparrowmq.protocol.call_headers import CheckTransactionStateRequest
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.record import encode_record
from sparrowmq.transport.address import pack_host

EXT = {"tranStateTableOffset": "5", "commitLogOffset": "77", "msgId": "K1", "bname": "broker-a"}


def question(topic: str = "T", group: str | None = "g", ext: dict[str, str] = EXT) -> Command:
    """A broker's transaction check."""
    host = pack_host("127.0.0.1", 10911)
    own = {"UNIQ_KEY": "K1", **({} if group is None else {"PGROUP": group})}
    record = encode_record(
        topic=topic.encode(),
        queue_id=1,
        queue_offset=5,
        physical_offset=77,
        body=b"half",
        properties=properties.encode(own),
        flag=0,
        sys_flag=0,
        born_timestamp=NOW_MS,
        born_host=host,
        store_timestamp=NOW_MS,
        store_host=host,
    )
    return Command(RequestCode.CHECK_TRANSACTION_STATE, ext=dict(ext), body=record)


class Asked:
    """A checker that records the checks."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, CheckTransactionStateRequest, ReceivedMessage]] = []

    def __call__(self, address: str, header: CheckTransactionStateRequest, message: ReceivedMessage) -> None:
        self.calls.append((address, header, message))


@pytest.mark.proves("client:B-102")
def test_group_of_the_message_selects_the_producer() -> None:
    checks, mine, others = TransactionChecks(), Asked(), Asked()
    checks.register("g", mine)
    checks.register("h", others)
    checks.receive("1.2.3.4:10911", question())
    ((address, header, message),) = mine.calls
    assert others.calls == []
    assert (address, header.tran_state_table_offset, header.commit_log_offset) == ("1.2.3.4:10911", 5, 77)
    assert (message.topic, message.body, message.queue.broker_name) == ("T", b"half", "broker-a")


def test_namespace_is_removed_from_names() -> None:
    checks, mine = TransactionChecks("INST"), Asked()
    checks.register("g", mine)
    checks.receive("a:1", question("INST%T", "INST%g"))
    assert [message.topic for _, _, message in mine.calls] == ["T"]


@pytest.mark.proves("client:A-86")
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (question(group="another"), "of group 'another', which has no listener here"),
        (question(group=None), "of group '', which has no listener here"),
        (Command(39, ext=dict(EXT), body=b"junk"), "asks about a transaction that is unreadable"),
        (Command(39, ext=dict(EXT)), "asks about a transaction that is unreadable"),
        (question(ext={"tranStateTableOffset": "x"}), "asks about a transaction that is unreadable"),
    ],
)
def test_unanswerable_checks_are_logged_at_a_limited_rate(
    caplog: pytest.LogCaptureFixture, asked: Command, said: str
) -> None:
    checks, mine = TransactionChecks(), Asked()
    checks.register("g", mine)
    with caplog.at_level(logging.WARNING, "sparrowmq.client"):
        for _ in range(3):
            checks.receive("a:1", asked)
    assert mine.calls == []
    assert [record.getMessage().count(said) for record in caplog.records] == [1]


def test_closed_producer_is_not_asked() -> None:
    checks, mine = TransactionChecks(), Asked()
    checks.register("g", mine)
    checks.unregister("g")
    checks.unregister("g")  # harmless when done twice
    checks.receive("a:1", question())
    assert mine.calls == []
