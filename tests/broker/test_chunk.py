"""One read's frames: sends together, pulls on the fast path, the rest by code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import STORE_HOST, Rig, connection, pull_ext, send_command

from sparrowmq.broker.chunk import ChunkHandler
from sparrowmq.broker.transaction import COMMIT, ROLLBACK
from sparrowmq.broker.transactions import Transactions
from sparrowmq.core.errors import StoreFullError
from sparrowmq.core.ids import parse_offset_message_id
from sparrowmq.core.names import OP_HALF_TOPIC
from sparrowmq.protocol.call_headers import EndTransactionRequest
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import FLAG_ONEWAY, Command, FrameReader, RawFrame, encode
from sparrowmq.protocol.headers import to_ext
from sparrowmq.protocol.record import decode_records


class General:
    """Keeps what does not take a fast path."""

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
    """A handler over a rig."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.general = General()
        self.gone: list[Any] = []
        self.handler = ChunkHandler(
            rig.sending,
            rig.pulling,
            self.general,
            ends=Transactions(
                rig.settings, rig.store, rig.inner, rig.clients, rig.offsets, rig.clock, store_host=STORE_HOST
            ).ends,
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


def test_clean_sends_of_one_read_are_one_write_to_the_log(
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
    """The end that the answer to a half message allows."""
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


def test_odd_ends_go_the_general_way_and_clean_ones_are_done(chunk: Chunk) -> None:
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


def test_ends_whose_chunk_cannot_be_stored_stay_open_and_go_the_general_way(
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


def test_ends_are_stored_when_a_fault_stops_the_sends_of_their_read(
    chunk: Chunk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is closed then; what it has ended is ended."""
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
def test_an_end_waits_for_the_disk_with_its_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With SYNC_FLUSH a committed message is visible, and wakes who waits for it, once it is flushed."""
    rig = Rig(tmp_path / "sync", flush_disk_type="SYNC_FLUSH")
    rig.make_topic("TopicTest", 1)
    chunk = Chunk(rig)
    told: list[Callable[[bool], None]] = []
    monkeypatch.setattr(rig.flusher, "after", lambda position, done: told.append(done))
    producer, consumer = connection(), connection(50_001)
    hold = Command(RequestCode.PULL_MESSAGE, 7, ext=dict(pull_ext(sysFlag=6, suspendTimeoutMillis=20_000)))
    assert chunk.receive(consumer, hold) == [] and rig.pulling.held == 1
    assert chunk.receive(producer, half_command(0)) == []
    rig.store.flush()
    told.pop()(True)
    (half,) = producer.answers()
    chunk.receive(producer, end_command(half))
    (flushed,) = told
    assert bodies(chunk) == [] and rig.pulling.held == 1, "it is stored, but not on disk"
    flushed(False)  # the time ran out
    assert consumer.answers() == [] and rig.pulling.held == 1
    rig.store.flush()
    flushed(True)
    (found,) = consumer.answers()
    assert found.opaque == 7
    assert [record.body for record in decode_records(found.body)] == bodies(chunk) == [b"half0"]
    rig.close()


def test_without_an_end_path_ends_go_the_general_way(chunk: Chunk) -> None:
    (half,) = chunk.receive(connection(), half_command(0))
    chunk.handler._ends = None
    chunk.receive(connection(), end_command(half))
    assert len(chunk.general.frames) == 1 and bodies(chunk) == []


def test_a_pull_takes_the_fast_path(chunk: Chunk) -> None:
    client = connection()
    chunk.receive(client, send_command(b"x"))
    (answer,) = chunk.receive(client, Command(RequestCode.PULL_MESSAGE, 5, ext=dict(pull_ext())))
    assert [record.body for record in decode_records(answer.body)] == [b"x"]
    assert chunk.general.frames == []


def test_odd_sends_odd_pulls_and_all_else_go_the_general_way(chunk: Chunk) -> None:
    odd_send = send_command(topic="Unknown", opaque=1)
    odd_pull = Command(RequestCode.PULL_MESSAGE, 2, ext={"topic": "TopicTest"})
    heartbeat = Command(RequestCode.HEART_BEAT, 3)
    assert chunk.receive(connection(), odd_send, odd_pull, heartbeat) == []
    assert len(chunk.general.frames) == 3


def test_a_compact_header_goes_the_general_way(chunk: Chunk) -> None:
    chunk.handler.frames_received(connection(), [(1, b'{"code":310,', b"")])
    assert len(chunk.general.frames) == 1


def test_a_lost_connection_is_told_to_all_who_keep_something_of_it(chunk: Chunk) -> None:
    client = connection()
    chunk.handler.connection_made(client)
    hold = Command(RequestCode.PULL_MESSAGE, 1, ext=dict(pull_ext(sysFlag=6, suspendTimeoutMillis=20_000)))
    chunk.receive(client, hold)
    assert chunk.rig.pulling.held == 1
    chunk.handler.connection_lost(client)
    assert chunk.rig.pulling.held == 0
    assert chunk.gone == [client] and chunk.general.lost == [client]
