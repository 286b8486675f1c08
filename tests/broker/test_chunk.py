"""The frames of one read: sends together, pulls on the fast path, the rest by code."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import Rig, connection, pull_ext, send_command
from tests.support import run

from sparrowmq.broker.base.internal_store import NEW_FILES_MAX
from sparrowmq.broker.chunk import ChunkHandler
from sparrowmq.broker.transactions.half_messages import COMMIT, ROLLBACK
from sparrowmq.core.errors import StoreFullError
from sparrowmq.core.ids import parse_offset_message_id
from sparrowmq.core.names import OP_HALF_TOPIC
from sparrowmq.protocol.call_headers import EndTransactionRequest
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import FLAG_ONEWAY, Command, FrameReader, RawFrame, decode, encode
from sparrowmq.protocol.headers import to_ext
from sparrowmq.protocol.record import decode_records
from sparrowmq.transport.dispatch import TURN_SECONDS


class General:
    """Records what does not take a fast path."""

    def __init__(self) -> None:
        self.frames: list[RawFrame] = []
        self.lost: list[Any] = []

    def connection_made(self, conn: Any) -> None:
        self.made = conn

    def connection_lost(self, conn: Any) -> None:
        self.lost.append(conn)

    def frames_received(self, conn: Any, frames: list[RawFrame]) -> None:
        self.frames += frames


class Chunk:
    """A handler with a rig."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.general = General()
        self.gone: list[Any] = []
        self.handler = ChunkHandler(
            rig.sending,
            rig.pulling,
            self.general,
            ends=rig.parts.exchange.transactions.ends,
            connection_gone=self.gone.append,
        )

    def receive(self, client: Any, *commands: Command) -> list[Command]:
        frames = FrameReader().feed(b"".join(map(encode, commands)))
        self.handler.frames_received(client, frames)
        answers: list[Command] = client.answers()
        return answers


@pytest.fixture
def chunk(tmp_path: Path) -> Iterator[Chunk]:
    rig = Rig(tmp_path / "store")
    rig.make_topic("TopicTest", 1)
    yield Chunk(rig)
    rig.close()


def test_plain_sends_of_one_read_are_one_write_to_the_log(
    chunk: Chunk, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = []
    commit = chunk.rig.store.commit_chunk
    monkeypatch.setattr(chunk.rig.store, "commit_chunk", lambda: (commits.append(1), commit()))
    answers = chunk.receive(connection(), *(send_command(b"%d" % n, opaque=n) for n in range(20)))
    assert [answer.opaque for answer in answers] == list(range(20))
    assert len(commits) == 1 and chunk.general.frames == []


def half_command(number: int) -> Command:
    own = f"TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01K{number}\x02"
    return send_command(b"half%d" % number, opaque=number, sys_flag=4, properties=own)


def end_command(half: Command, state: int = COMMIT, opaque: int = 1, flag: int = FLAG_ONEWAY) -> Command:
    """The end command that the answer to a half message allows."""
    request = EndTransactionRequest(
        producer_group="p",
        tran_state_table_offset=int(half.ext["queueOffset"]),
        commit_log_offset=parse_offset_message_id(half.ext["msgId"])[2],
        commit_or_rollback=state,
    )
    return Command(RequestCode.END_TRANSACTION, opaque, flag, to_ext(request))


def bodies(chunk: Chunk, topic: str = "TopicTest") -> list[bytes]:
    return [record.body for record in chunk.rig.inner.scan(topic, 0, 0, 1000, 1 << 20).records]


@pytest.mark.proves("broker:9.2", "broker:9.3")
def test_sends_and_ends_of_one_read_are_one_write_to_the_log(
    chunk: Chunk, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connection()
    halves = chunk.receive(client, *map(half_command, range(4)))
    assert [half.code for half in halves] == [ResponseCode.SUCCESS] * 4
    writes = []
    commit = chunk.rig.store._log.write
    monkeypatch.setattr(chunk.rig.store._log, "write", lambda *args: (writes.append(1), commit(*args)))
    ends = [end_command(half, ROLLBACK if n == 1 else COMMIT) for n, half in enumerate(halves[:3])]
    last = end_command(halves[3], opaque=77, flag=0)
    answers = chunk.receive(client, *ends, half_command(4), last, send_command(b"plain", opaque=5))
    assert {answer.opaque: answer.code for answer in answers} == {4: 0, 5: 0, 77: 0}
    assert len(writes) == 1 and chunk.general.frames == []
    assert bodies(chunk) == [b"half0", b"half2", b"half3", b"plain"]
    assert bodies(chunk, OP_HALF_TOPIC) == [b"0,1,2,3,"]


def test_special_ends_take_the_general_path_and_plain_ones_are_done(chunk: Chunk) -> None:
    client = connection()
    first, second = chunk.receive(client, half_command(0), half_command(1))
    stranger = end_command(first)
    stranger.ext["producerGroup"] = "stranger"
    odd = [
        stranger,
        end_command(second, state=0),
        Command(RequestCode.END_TRANSACTION, 1, ext={"producerGroup": "p"}),
        end_command(first, flag=1),
    ]
    twice = [end_command(second), end_command(second)]
    assert chunk.receive(client, *odd, *twice) == []
    assert len(chunk.general.frames) == 5
    assert bodies(chunk) == [b"half1"] and bodies(chunk, OP_HALF_TOPIC) == [b"1"]


def test_ends_whose_chunk_cannot_be_stored_stay_open_and_take_the_general_path(
    chunk: Chunk, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connection()
    halves = chunk.receive(client, half_command(0), half_command(1))

    def full(*args: object) -> None:
        raise StoreFullError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(chunk.rig.store._log, "write", full)
        (refused,) = chunk.receive(client, end_command(halves[0]), send_command(b"plain", opaque=5))
        assert (refused.opaque, refused.code) == (5, ResponseCode.SERVICE_NOT_AVAILABLE)
        chunk.receive(client, end_command(halves[1]))
        assert len(chunk.general.frames) == 2
    chunk.receive(client, *map(end_command, halves))
    assert bodies(chunk) == [b"half0", b"half1"] and bodies(chunk, OP_HALF_TOPIC) == [b"0,1,"]


def test_ends_of_one_write_create_few_queue_files(chunk: Chunk) -> None:
    """Each file takes a fraction of a millisecond: the other ends are handled one by one, with other
    requests in between."""
    many = NEW_FILES_MAX + 3
    chunk.rig.make_topic("Wide", many)
    own = "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01K%d\x02"
    halves = [
        send_command(topic="Wide", queue_id=number, opaque=number, sys_flag=4, properties=own % number)
        for number in range(many)
    ]
    client = connection()
    chunk.receive(client, *map(end_command, chunk.receive(client, *halves)))
    assert len(chunk.general.frames) == many - NEW_FILES_MAX
    files = [len(chunk.rig.store.queue("Wide", number).files) for number in range(many)]
    assert files == [1] * NEW_FILES_MAX + [0] * (many - NEW_FILES_MAX)


def test_ends_are_stored_when_an_error_stops_the_sends_of_their_read(
    chunk: Chunk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is closed then; the stored ends stay valid."""
    client = connection()
    (half,) = chunk.receive(client, half_command(0))
    monkeypatch.setattr(chunk.rig.sending, "store_chunk", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        chunk.receive(client, end_command(half), send_command())
    assert bodies(chunk) == [b"half0"]
    assert chunk.handler._ends is not None
    (again,) = chunk.handler._ends.append_chunk(FrameReader().feed(encode(end_command(half))))
    assert again[1].startswith(b'{"code":37,')


@pytest.mark.proves("broker:9.2")
def test_end_waits_for_the_disk_with_its_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With SYNC_FLUSH a committed message is visible and wakes pulls after the flush."""
    rig = Rig(tmp_path / "sync", flush_disk_type="SYNC_FLUSH")
    rig.make_topic("TopicTest", 1)
    chunk = Chunk(rig)
    told: list[Callable[[bool], None]] = []
    monkeypatch.setattr(rig.flusher, "after", lambda position, done, size=0: told.append(done))
    producer, consumer = connection(), connection(50_001)
    hold = Command(RequestCode.PULL_MESSAGE, 7, ext=dict(pull_ext(sysFlag=6, suspendTimeoutMillis=20_000)))
    assert chunk.receive(consumer, hold) == [] and rig.pulling.held == 1
    assert chunk.receive(producer, half_command(0)) == []
    rig.store.flush()
    told.pop()(True)
    (half,) = producer.answers()
    assert chunk.receive(producer, end_command(half, flag=0)) == []
    assert bodies(chunk) == [] and rig.pulling.held == 1, "it is stored, but not on disk"
    for flushed in told:
        flushed(False)  # the time ran out
    assert consumer.answers() == [] and rig.pulling.held == 1
    (late,) = producer.answers()
    assert late.code == ResponseCode.FLUSH_DISK_TIMEOUT
    rig.store.flush()
    for flushed in told:
        flushed(True)
    assert producer.answers() == [], "it is told once"
    (found,) = consumer.answers()
    assert found.opaque == 7
    assert [record.body for record in decode_records(found.body)] == bodies(chunk) == [b"half0"]
    rig.close()


def test_without_an_end_path_ends_take_the_general_path(chunk: Chunk) -> None:
    (half,) = chunk.receive(connection(), half_command(0))
    chunk.handler._ends = None
    chunk.receive(connection(), end_command(half))
    assert len(chunk.general.frames) == 1 and bodies(chunk) == []


def test_pull_takes_the_fast_path(chunk: Chunk) -> None:
    client = connection()
    chunk.receive(client, send_command(b"x"))
    (answer,) = chunk.receive(client, Command(RequestCode.PULL_MESSAGE, 5, ext=dict(pull_ext())))
    assert [record.body for record in decode_records(answer.body)] == [b"x"]
    assert chunk.general.frames == []


def test_special_sends_special_pulls_and_all_other_requests_take_the_general_path(chunk: Chunk) -> None:
    odd_send = send_command(topic="Unknown", opaque=1)
    odd_pull = Command(RequestCode.PULL_MESSAGE, 2, ext={"topic": "TopicTest"})
    heartbeat = Command(RequestCode.HEART_BEAT, 3)
    assert chunk.receive(connection(), odd_send, odd_pull, heartbeat) == []
    assert len(chunk.general.frames) == 3


def test_compact_header_takes_the_general_path(chunk: Chunk) -> None:
    chunk.handler.frames_received(connection(), [(1, b'{"code":310,', b"")])
    assert len(chunk.general.frames) == 1


def test_closed_connection_is_reported_to_all_parts_with_its_state(chunk: Chunk) -> None:
    client = connection()
    chunk.handler.connection_made(client)
    hold = Command(RequestCode.PULL_MESSAGE, 1, ext=dict(pull_ext(sysFlag=6, suspendTimeoutMillis=20_000)))
    chunk.receive(client, hold)
    assert chunk.rig.pulling.held == 1
    chunk.handler.connection_lost(client)
    assert chunk.rig.pulling.held == 0
    assert chunk.gone == [client] and chunk.general.lost == [client]


def test_long_pulls_do_not_block_others(chunk: Chunk, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def slow(conn: Any, pull: Any) -> None:
        taken.append(pull.opaque)
        time.sleep(1.5 * TURN_SECONDS)

    monkeypatch.setattr(chunk.rig.pulling, "pull", slow)
    client = connection()
    pulls = [Command(RequestCode.PULL_MESSAGE, number, ext=dict(pull_ext())) for number in range(3)]
    chunk.receive(client, *pulls)
    assert taken == [0] and len(client.waiting) == 2
    rest, client.waiting = client.waiting, []
    chunk.handler.frames_received(client, rest)
    assert taken == [0, 1] and len(client.waiting) == 1


def test_first_sends_to_many_queues_create_few_files_per_turn(tmp_path: Path) -> None:
    """Each file takes a fraction of a millisecond: all files of a large topic would block other requests."""
    many = 3 * NEW_FILES_MAX + 2
    rig = Rig(tmp_path / "store")
    rig.make_topic("TopicTest", many)
    chunk, client, other = Chunk(rig), connection(), connection()
    sends = [send_command(b"%d" % number, queue_id=number // 2, opaque=number) for number in range(2 * many)]
    made: list[int] = []

    async def scenario() -> list[int]:
        answers = chunk.receive(client, *sends)
        while client.waiting:
            made.append(len(answers))
            assert chunk.receive(other, send_command(queue_id=many - 1, opaque=7)) == [], "of one turn"
            rest, client.waiting = client.waiting, []
            await asyncio.sleep(0)
            chunk.handler.frames_received(client, rest)
            other.waiting.clear()
            answers += client.answers()
        assert all(answer.code == ResponseCode.SUCCESS for answer in answers)
        return [answer.opaque for answer in answers]

    assert run(scenario()) == list(range(2 * many))
    assert made == [2 * NEW_FILES_MAX * turn for turn in (1, 2, 3)]
    assert [len(rig.store.queue("TopicTest", number).files) for number in range(many)] == [1] * many
    assert bodies(chunk) == [b"0", b"1"] and chunk.general.frames == []
    rig.close()


def test_unprocessed_frames_of_a_turn_stay_in_order(chunk: Chunk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sends that need files are handled before requests that are behind long pulls."""
    chunk.rig.make_topic("Wide", NEW_FILES_MAX + 1)
    monkeypatch.setattr(chunk.rig.pulling, "pull", lambda *_: time.sleep(1.5 * TURN_SECONDS))
    client = connection()
    wide = [send_command(topic="Wide", queue_id=number, opaque=number) for number in range(NEW_FILES_MAX + 1)]
    pulls = [Command(RequestCode.PULL_MESSAGE, 100 + number, ext=dict(pull_ext())) for number in range(2)]
    last = send_command(topic="Wide", queue_id=NEW_FILES_MAX, opaque=999)

    async def scenario() -> None:
        answers = chunk.receive(client, *wide, *pulls, last)
        assert [answer.opaque for answer in answers] == list(range(NEW_FILES_MAX))

    run(scenario())
    assert [decode(*frame).opaque for frame in client.waiting] == [NEW_FILES_MAX, 101, 999]
