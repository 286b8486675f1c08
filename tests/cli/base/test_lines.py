"""Lines of files, and of pipes as they come."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.support import about, run

from sparrowmq.cli.base import lines as module
from sparrowmq.cli.base.common import UsageError
from sparrowmq.cli.base.lines import followed, lines


def of_pipe(*parts: bytes) -> list[bytes]:
    """The lines of a pipe in which these parts came one after the other."""

    async def main() -> list[bytes]:
        reads, writes = os.pipe()
        found: list[bytes] = []

        async def follow() -> None:
            found.extend([line async for line in followed(reads)])

        try:
            following = asyncio.create_task(follow())
            for part in parts:
                os.write(writes, part)
                await asyncio.sleep(0)
            os.close(writes)
            await following
        finally:
            os.close(reads)
        return found

    return run(main())


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        ((), []),
        ((b"one\n", b"two\r\n"), [b"one", b"two"]),
        ((b"on", b"e\n\ntw", b"o"), [b"one", b"", b"two"]),
        ((b"a" * 60_000, b"\nb\n"), [b"a" * 60_000, b"b"]),
    ],
)
def test_lines_of_a_pipe_in_any_parts(parts: tuple[bytes, ...], found: list[bytes]) -> None:
    assert of_pipe(*parts) == found


def test_a_line_is_there_before_the_next_one_comes() -> None:
    async def main() -> None:
        reads, writes = os.pipe()
        try:
            following = followed(reads)
            for line in (b"first", b"second"):
                os.write(writes, line + b"\n")
                async with asyncio.timeout(20):
                    assert await anext(following) == line
            os.close(writes)
            with pytest.raises(StopAsyncIteration):
                await anext(following)
        finally:
            os.close(reads)

    run(main())


def test_what_was_read_and_is_not_taken_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 4)
    assert of_pipe(b"".join(b"%03d\n" % number for number in range(1000))) == [
        b"%03d" % number for number in range(1000)
    ]


def test_lines_of_a_file_and_of_none(tmp_path: Path) -> None:
    async def read(path: Path) -> list[bytes]:
        return [line async for line in lines(path)]

    path = tmp_path / "lines"
    path.write_bytes(b"a\r\n\nb")
    assert run(read(path)) == [b"a", b"", b"b"]
    with pytest.raises(UsageError, check=about(value=tmp_path)):
        run(read(tmp_path))
