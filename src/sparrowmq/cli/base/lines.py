"""Lines of a file, or of standard input as they arrive: each typed line is sent immediately."""

from __future__ import annotations

import asyncio
import io
import os
import stat
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from sparrowmq.cli.base.common import UsageError

CHUNK_BYTES: Final = 64 * 1024
CHUNKS_MAX: Final = 4
"""Maximum chunks of standard input that were read but not yet processed; then the reader waits."""


async def lines(file: Path | None) -> AsyncIterator[bytes]:
    """The lines without their line ends; None and `-` are standard input. Raises `UsageError`."""
    if file is not None and str(file) != "-":
        for line in _of_file(file):
            yield line
        return
    source = _waiting_stdin()
    if source is None:
        for line in sys.stdin.buffer:
            yield line.rstrip(b"\r\n")
        return
    async for line in followed(source):
        yield line


def _of_file(file: Path) -> Iterator[bytes]:
    try:
        with file.open("rb") as source:
            yield from (line.rstrip(b"\r\n") for line in source)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", value=file) from error


def _waiting_stdin() -> int | None:
    """The descriptor of standard input if reads of it may block; None for files and if there is none."""
    try:
        descriptor = sys.stdin.fileno()
        return None if stat.S_ISREG(os.fstat(descriptor).st_mode) else descriptor
    except (OSError, io.UnsupportedOperation):
        return None


async def followed(descriptor: int) -> AsyncIterator[bytes]:
    """The lines of a terminal or pipe, each as soon as it arrives.

    A thread waits for them, so that the loop continues; it does not keep the process from ending.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue(CHUNKS_MAX)

    def read() -> None:
        with suppress(RuntimeError, OSError):  # the loop is closed, so no more lines are needed
            data = b"-"
            while data:
                data = os.read(descriptor, CHUNK_BYTES)
                asyncio.run_coroutine_threadsafe(chunks.put(data), loop).result()

    threading.Thread(target=read, name="sparrow-stdin", daemon=True).start()
    begun = b""
    while chunk := await chunks.get():
        *whole, begun = (begun + chunk).split(b"\n")
        for line in whole:
            yield line.rstrip(b"\r")
    if begun:
        yield begun.rstrip(b"\r")
