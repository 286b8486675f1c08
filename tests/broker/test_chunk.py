"""One read's frames: sends together, pulls on the fast path, the rest by code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import Rig, connection, pull_ext, send_command

from sparrowmq.broker.chunk import ChunkHandler
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command, FrameReader, RawFrame, encode
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
    rig.topics.ensure("TopicTest", 1)
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
