"""Sends of idempotent producers: stored once, repeated ones answered with their first places."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import Rig, connection, hot_send, send_command
from tests.support import run, until

from sparrowmq.core.errors import StoreFullError
from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import FLAG_ONEWAY, Command
from sparrowmq.protocol.producer_mark import mark_head
from sparrowmq.protocol.record import decode_records

TAIL = "UNIQ_KEY\x01AB12\x02WAIT\x01true\x02"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path / "store")
    made.make_topic("TopicTest", 4)
    yield made
    made.close()


def own(sequence: int, *, producer: str = "p", epoch: int = 0, queue_id: int = 0) -> str:
    return mark_head(producer, epoch, "TopicTest", queue_id).decode() + f"{sequence}\x02{TAIL}"


def judged(command: Command) -> Command:
    command.ext = {**command.ext, "idempotent": "true"}
    return command


def single(sequence: int, body: bytes = b"", *, queue_id: int = 0, **mark: Any) -> Command:
    text = own(sequence, queue_id=queue_id, **mark)
    return judged(send_command(body or b"m%d" % sequence, properties=text, queue_id=queue_id))


def batch(first: int, count: int, **mark: Any) -> Command:
    items = [(0, b"m%d" % number, own(number, **mark).encode()) for number in range(first, first + count)]
    return judged(send_command(encode_batch(items), batch=True, properties="UNIQ_KEY\x01CD\x02"))


def ask(rig: Rig, command: Command) -> Command:
    """The answer, whether it is written or given back."""
    client = connection()
    given = rig.sending.handle(client, command)
    return given if isinstance(given, Command) else client.answers()[0]


def bodies(rig: Rig, queue_id: int = 0) -> list[bytes]:
    queue = rig.store.queue("TopicTest", queue_id)
    result = rig.store.get_messages(queue, 0, max_count=10_000, max_bytes=1 << 24, codes=None)
    return [record.body for record in decode_records(b"".join(result.buffers))]


def test_a_repeated_send_gets_the_first_ones_place_and_stores_nothing(rig: Rig) -> None:
    first = ask(rig, single(0))
    ask(rig, single(1))
    end = rig.store.position
    again = ask(rig, single(0))
    assert again.code == ResponseCode.SUCCESS
    assert again.ext == first.ext and first.ext["idempotent"] == "true"
    assert rig.store.position == end and bodies(rig) == [b"m0", b"m1"]


def test_the_hot_path_hands_such_sends_over(rig: Rig) -> None:
    send = hot_send(single(0))
    client = connection()
    assert rig.sending.store_chunk(client, [send]) == [send]
    assert rig.store.position == 0 and client.written == b""


def test_plain_sends_of_copies_are_stored(rig: Rig) -> None:
    """A consumer that sends a received message on keeps its properties, but does not ask for judgement."""
    ask(rig, single(0))
    copy = send_command(b"m0", properties=own(0))
    assert rig.sending.store_chunk(connection(), [hot_send(copy)]) == []
    assert bodies(rig) == [b"m0", b"m0"]


def test_a_repeated_batch_gets_all_its_places(rig: Rig) -> None:
    ask(rig, single(0, queue_id=1))
    first = ask(rig, batch(0, 5))
    ask(rig, batch(5, 2))
    again = ask(rig, batch(0, 5))
    assert again.ext == first.ext and len(first.ext["msgId"].split(",")) == 5
    assert (again.ext["queueOffset"], bodies(rig)) == ("0", [b"m%d" % number for number in range(7)])


def test_of_a_partly_repeated_batch_the_rest_is_stored(rig: Rig) -> None:
    first = ask(rig, batch(0, 3))
    ask(rig, single(0, b"between", producer="q"))
    mixed = ask(rig, batch(1, 4))
    ids = mixed.ext["msgId"].split(",")
    assert ids[:2] == first.ext["msgId"].split(",")[1:] and len(set(ids)) == 4
    assert mixed.ext["queueOffset"] == "1"
    assert bodies(rig) == [b"m0", b"m1", b"m2", b"between", b"m3", b"m4"]
    whole = ask(rig, batch(0, 5))
    assert whole.ext["msgId"].split(",") == first.ext["msgId"].split(",")[:1] + ids


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        (single(12), ResponseCode.SEQUENCE_GAP, "leaves a gap, expected is 10"),
        (single(0, epoch=1, producer="q"), ResponseCode.SUCCESS, ""),
        (single(3, producer="q"), ResponseCode.PRODUCER_UNKNOWN, "sequence 0 is expected, not 3"),
        (single(4, b"other"), ResponseCode.SEQUENCE_REUSED, "sequence 4 is the number of another message"),
        (judged(send_command()), ResponseCode.MESSAGE_ILLEGAL, "it has no SPARROW_PRODUCER"),
        (
            judged(send_command(properties=own(10, queue_id=1))),
            ResponseCode.MESSAGE_ILLEGAL,
            "belongs to another queue than TopicTest/0",
        ),
        (
            judged(send_command(properties=own(10) + "DELAY\x013\x02")),
            ResponseCode.MESSAGE_ILLEGAL,
            "cannot use DELAY",
        ),
        (
            judged(send_command(properties=own(10) + "TRAN_MSG\x01true\x02", sys_flag=4)),
            ResponseCode.MESSAGE_ILLEGAL,
            "cannot use TRAN_MSG",
        ),
        (
            judged(send_command(properties="SPARROW_PRODUCER\x01p\x02" + TAIL)),
            ResponseCode.MESSAGE_ILLEGAL,
            "is no mark",
        ),
    ],
)
def test_what_cannot_be_taken_is_refused_with_its_reason(
    rig: Rig, command: Command, code: int, text: str
) -> None:
    ask(rig, batch(0, 10))
    end = rig.store.position
    answer = ask(rig, command)
    assert answer.code == code and text in (answer.remark or "")
    assert (rig.store.position == end) == (code != ResponseCode.SUCCESS)
    assert ask(rig, single(10)).code == ResponseCode.SUCCESS, "what follows is taken all the same"


def test_an_old_epoch_is_fenced(rig: Rig) -> None:
    ask(rig, single(0))
    ask(rig, single(0, b"new", epoch=1))
    answer = ask(rig, single(1))
    assert answer.code == ResponseCode.PRODUCER_FENCED and "the queue is at 1" in (answer.remark or "")
    assert bodies(rig) == [b"m0", b"new"]


def test_a_batch_with_a_hole_is_illegal(rig: Rig) -> None:
    items = [(0, b"x", own(number).encode()) for number in (0, 2)]
    answer = ask(rig, judged(send_command(encode_batch(items), batch=True, properties="")))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL and rig.store.position == 0


def test_a_place_that_was_forgotten_is_told(rig: Rig) -> None:
    for number in range(10):
        ask(rig, single(number))
        ask(rig, single(number, producer="q"))
    answer = ask(rig, single(0))
    assert answer.code == ResponseCode.SEQUENCE_TOO_OLD and "known from 2 on" in (answer.remark or "")
    assert len(bodies(rig)) == 20


def test_a_repeated_message_whose_record_is_gone_is_told(rig: Rig) -> None:
    ask(rig, single(0))
    rig.store.read_record = lambda _: None  # type: ignore[method-assign]
    answer = ask(rig, single(0))
    assert (
        answer.code == ResponseCode.SEQUENCE_TOO_OLD
        and "known from 1 on: the message at offset 0 is gone" in (answer.remark or "")
    )


def test_beyond_the_limit_a_new_producer_is_refused(rig: Rig) -> None:
    rig.store.producers.producers_max = 1
    ask(rig, single(0))
    answer = ask(rig, single(0, producer="q"))
    assert answer.code == ResponseCode.PRODUCER_LIMIT and "maxProducerStates is 1" in (answer.remark or "")
    assert ask(rig, single(1)).code == ResponseCode.SUCCESS


def test_what_could_not_be_written_is_not_known(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:

        def full() -> None:
            rig.store.drop_chunk()
            raise StoreFullError("full")

        patched.setattr(rig.store, "commit_chunk", full)
        assert ask(rig, single(0)).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert len(rig.store.producers) == 0 and rig.store.producers.behind is None
    assert ask(rig, single(0)).code == ResponseCode.SUCCESS and bodies(rig) == [b"m0"]


def test_a_one_way_send_is_judged_and_not_answered(rig: Rig) -> None:
    command = single(0)
    command.flag = FLAG_ONEWAY
    client = connection()
    for _ in range(2):
        assert rig.sending.handle(client, command) is None
    assert client.written == b"" and bodies(rig) == [b"m0"]


def test_with_sync_flush_a_repeated_send_waits_for_the_disk_as_well(tmp_path: Path) -> None:
    async def main() -> None:
        rig = Rig(tmp_path, flush_disk_type="SYNC_FLUSH")
        rig.make_topic("TopicTest", 4)
        rig.flusher.start()
        try:
            client = connection()
            for _ in range(2):
                assert rig.sending.handle(client, single(0)) is None
            assert client.written == b""
            await until(lambda: client.written.count(b"queueOffset") == 2)
            first, second = client.answers()
            assert first.ext == second.ext and first.code == ResponseCode.SUCCESS
        finally:
            await rig.flusher.close()
            rig.close()

    run(main())


def test_after_a_restart_repeated_sends_are_known(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.make_topic("TopicTest", 4)
    first = ask(rig, batch(0, 5))
    rig.store.abandon()
    rig.pool.shutdown()
    rig = Rig(tmp_path)
    rig.make_topic("TopicTest", 4)
    assert ask(rig, batch(0, 5)).ext == first.ext and len(bodies(rig)) == 5
    rig.close()
