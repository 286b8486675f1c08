"""Sends of idempotent producers: stored once, repeated ones answered with their first place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import Rig, connection, hot_send, send_command
from tests.support import run, until

from sparrowmq.broker.send.idempotent import IdempotentSends
from sparrowmq.core.errors import StoreFullError
from sparrowmq.core.names import PRODUCER_ENDS_TOPIC
from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.bodies import ProducerNumbers, ProducersEnd, TopicConfig
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import FLAG_ONEWAY, Command
from sparrowmq.protocol.producer_mark import ProducerEnd, find_end, mark_head
from sparrowmq.protocol.record import decode_records
from sparrowmq.store.tables.producer_state import load

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
    """The answer, whether it is written or returned."""
    client = connection()
    given = rig.sending.handle(client, command)
    return given if isinstance(given, Command) else client.answers()[0]


def bodies(rig: Rig, queue_id: int = 0) -> list[bytes]:
    queue = rig.store.queue("TopicTest", queue_id)
    result = rig.store.get_messages(queue, 0, max_count=10_000, max_bytes=1 << 24, codes=None)
    return [record.body for record in decode_records(b"".join(result.buffers))]


def test_repeated_send_gets_its_first_place_and_stores_nothing(rig: Rig) -> None:
    first = ask(rig, single(0))
    ask(rig, single(1))
    end = rig.store.position
    again = ask(rig, single(0))
    assert again.code == ResponseCode.SUCCESS
    assert again.ext == first.ext and first.ext["idempotent"] == "true"
    assert rig.store.position == end and bodies(rig) == [b"m0", b"m1"]


def test_hot_path_hands_over_idempotent_sends(rig: Rig) -> None:
    send = hot_send(single(0))
    client = connection()
    assert rig.sending.store_chunk(client, [send]) == [send]
    assert rig.store.position == 0 and client.written == b""


def test_copied_messages_are_stored_as_plain_sends(rig: Rig) -> None:
    """A consumer that forwards a received message keeps its properties, but does not ask for
    deduplication."""
    ask(rig, single(0))
    copy = send_command(b"m0", properties=own(0))
    assert rig.sending.store_chunk(connection(), [hot_send(copy)]) == []
    assert bodies(rig) == [b"m0", b"m0"]


def test_repeated_batch_gets_all_its_places(rig: Rig) -> None:
    ask(rig, single(0, queue_id=1))
    first = ask(rig, batch(0, 5))
    ask(rig, batch(5, 2))
    again = ask(rig, batch(0, 5))
    assert again.ext == first.ext and len(first.ext["msgId"].split(",")) == 5
    assert (again.ext["queueOffset"], bodies(rig)) == ("0", [b"m%d" % number for number in range(7)])


def test_only_the_new_part_of_a_partly_repeated_batch_is_stored(rig: Rig) -> None:
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
            "is not a producer's mark",
        ),
    ],
)
def test_invalid_sends_are_refused_with_a_reason(rig: Rig, command: Command, code: int, text: str) -> None:
    ask(rig, batch(0, 10))
    end = rig.store.position
    answer = ask(rig, command)
    assert answer.code == code and text in (answer.remark or "")
    assert (rig.store.position == end) == (code != ResponseCode.SUCCESS)
    assert ask(rig, single(10)).code == ResponseCode.SUCCESS, "what follows is taken all the same"


def test_old_epoch_is_fenced(rig: Rig) -> None:
    ask(rig, single(0))
    ask(rig, single(0, b"new", epoch=1))
    answer = ask(rig, single(1))
    assert answer.code == ResponseCode.PRODUCER_FENCED and "the queue is at 1" in (answer.remark or "")
    assert bodies(rig) == [b"m0", b"new"]


def test_batch_with_a_gap_is_illegal(rig: Rig) -> None:
    items = [(0, b"x", own(number).encode()) for number in (0, 2)]
    answer = ask(rig, judged(send_command(encode_batch(items), batch=True, properties="")))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL and rig.store.position == 0


def test_forgotten_place_is_reported(rig: Rig) -> None:
    for number in range(10):
        ask(rig, single(number))
        ask(rig, single(number, producer="q"))
    answer = ask(rig, single(0))
    assert answer.code == ResponseCode.SEQUENCE_TOO_OLD and "known from 2 on" in (answer.remark or "")
    assert len(bodies(rig)) == 20


def test_repeated_message_with_a_deleted_record_is_reported(rig: Rig) -> None:
    ask(rig, single(0))
    rig.store.read_record = lambda _: None  # type: ignore[method-assign]
    answer = ask(rig, single(0))
    assert (
        answer.code == ResponseCode.SEQUENCE_TOO_OLD
        and "known from 1 on: the message at offset 0 was deleted" in (answer.remark or "")
    )


def test_partly_deleted_repetition_reports_where_the_rest_begins(rig: Rig) -> None:
    for number in range(5):
        ask(rig, single(number))
    read = rig.store.read_record
    found = map(rig.store.queue("TopicTest", 0).entry, range(3))
    gone = [entry.physical_offset for entry in found if entry is not None]
    rig.store.read_record = lambda place: None if place in gone else read(place)  # type: ignore[method-assign]
    answer = ask(rig, batch(0, 5))
    assert answer.code == ResponseCode.SEQUENCE_TOO_OLD and "known from 3 on" in (answer.remark or "")


def test_end_of_a_producer_family_is_reported_stored_and_enforced(rig: Rig) -> None:
    ends = rig.parts.producer_ends

    def end(**fields: Any) -> Command:
        ext = {"topic": "TopicTest", "family": "job", **{name: str(value) for name, value in fields.items()}}
        given = ends.end(connection(), Command(RequestCode.END_PRODUCERS, ext=ext))
        assert isinstance(given, Command)
        return given

    assert ProducersEnd.decode(end().body) == ProducersEnd(0, "")
    for queue_id in range(4):
        ask(rig, single(0, queue_id=queue_id, producer="job-0"))
        ask(rig, single(0, queue_id=queue_id, producer="job-1"))
    assert len(rig.store.producers) == 8 and not rig.store.queues(PRODUCER_ENDS_TOPIC)
    assert ProducersEnd.decode(end(epoch=5, note="done").body) == ProducersEnd(5, "done")
    assert len(rig.store.producers) == 0
    position = rig.store.position
    assert end(epoch=5, note="again") == end(epoch=4) and rig.store.position == position, "no news"
    late = ask(rig, single(1, producer="job-0"))
    assert late.code == ResponseCode.PRODUCER_FENCED and "the queue is at 5" in (late.remark or "")
    assert ask(rig, single(0, b"new", producer="job-0", epoch=5)).code == ResponseCode.SUCCESS
    rig.store.flush_queues(safe_point=True)
    assert load(rig.store.settings.root).ended == (["job", "TopicTest", 5, "done", rig.clock.now_ms()],)
    for wrong in ({"family": "a.b"}, {"epoch": -1}, {"note": "x" * 201}):
        assert end(**wrong).code == ResponseCode.INVALID_PARAMETER
    assert end(topic="Nowhere").code == ResponseCode.TOPIC_NOT_EXIST


def test_a_queue_tells_what_it_has_of_a_producer_also_after_its_topic_was_shrunk(rig: Rig) -> None:
    ends = rig.parts.producer_ends

    def state(queue_id: int, producer: str = "job-0") -> ProducerNumbers | None:
        ext = {"topic": "TopicTest", "family": "job", "producer": producer, "queueId": str(queue_id)}
        given = ends.end(connection(), Command(RequestCode.END_PRODUCERS, ext=ext))
        assert isinstance(given, Command)
        return ProducersEnd.decode(given.body).state

    ask(rig, single(0, queue_id=3, producer="other-0"))
    for number in range(3):
        ask(rig, single(number, queue_id=3, producer="job-0", epoch=16))
    rig.put_topic(TopicConfig(topic_name="TopicTest", read_queue_nums=2, write_queue_nums=2))
    assert state(3) == ProducerNumbers(epoch=16, last=2, begins_at=1)
    assert state(2) is state(3, "job-1") is None


def test_end_is_in_the_log_and_deleted_with_the_topic(rig: Rig) -> None:
    async def scenario() -> None:
        ext = {"topic": "TopicTest", "family": "job", "epoch": "5", "note": "done"}
        rig.parts.producer_ends.end(connection(), Command(RequestCode.END_PRODUCERS, ext=ext))
        ask(rig, single(0, producer="job-0", epoch=5))
        assert await rig.deletions.topic("TopicTest")
        assert await rig.deletions.topic("NoProducers") is False

    run(scenario())
    assert not rig.store.producers.knows("TopicTest")
    queue = rig.store.queue(PRODUCER_ENDS_TOPIC, 0)
    result = rig.store.get_messages(queue, 0, max_count=10, max_bytes=1 << 20)
    found = [find_end(record.properties) for record in decode_records(b"".join(result.buffers))]
    assert found == [ProducerEnd("TopicTest", "job", 5, "done"), ProducerEnd("TopicTest")]


def test_new_producer_beyond_the_limit_is_refused(rig: Rig) -> None:
    rig.store.producers.producers_max = 1
    ask(rig, single(0))
    answer = ask(rig, single(0, producer="q"))
    assert answer.code == ResponseCode.PRODUCER_LIMIT and "maxProducerStates is 1" in (answer.remark or "")
    assert ask(rig, single(1)).code == ResponseCode.SUCCESS


def test_failed_write_is_not_remembered(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:

        def full() -> None:
            rig.store.drop_chunk()
            raise StoreFullError("full")

        patched.setattr(rig.store, "commit_chunk", full)
        assert ask(rig, single(0)).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert len(rig.store.producers) == 0 and rig.store.producers.behind is None
    assert ask(rig, single(0)).code == ResponseCode.SUCCESS and bodies(rig) == [b"m0"]


def test_one_way_send_is_checked_and_not_answered(rig: Rig) -> None:
    command = single(0)
    command.flag = FLAG_ONEWAY
    client = connection()
    for _ in range(2):
        assert rig.sending.handle(client, command) is None
    assert client.written == b"" and bodies(rig) == [b"m0"]


def test_with_sync_flush_a_repeated_send_also_waits_for_the_disk(tmp_path: Path) -> None:
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


def test_repeated_sends_are_known_after_a_restart(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.make_topic("TopicTest", 4)
    first = ask(rig, batch(0, 5))
    rig.store.abandon()
    rig.pool.shutdown()
    rig = Rig(tmp_path)
    rig.make_topic("TopicTest", 4)
    assert ask(rig, batch(0, 5)).ext == first.ext and len(bodies(rig)) == 5
    rig.close()


@pytest.mark.parametrize("sequence", [0, 1])
def test_forward_clock_jump_drops_no_client(sequence: int, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 100.0
    monkeypatch.setattr(rig.clock, "monotonic", lambda: seconds)
    rig.sending._idempotent = IdempotentSends(rig.store, rig.clock)
    first = [ask(rig, single(number)) for number in range(sequence + 1)][-1]
    rig.clock.ms += 365 * 86_400_000
    for later in (0.0, 3600.0):
        seconds += later
        again = ask(rig, single(sequence))
        assert (again.code, again.ext) == (ResponseCode.SUCCESS, first.ext)
    assert len(bodies(rig)) == sequence + 1
    seconds += 200 * 3600.0  # it was no mistake
    assert ask(rig, single(1, b"other")).code == ResponseCode.PRODUCER_UNKNOWN
