"""Bodies for the console: decompressed on one thread for all callers, a few at a time.

A small compressed body may be very large when decompressed. What would have more than `BODY_BYTES_MAX` stays
as it is stored. One thread works for all, so that many callers use no more memory and processor time than
one, and the loop is not blocked.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final, TypeVar

from sparrowmq.core.errors import RecordError
from sparrowmq.core.message import BODY_BYTES_MAX, ReceivedMessage
from sparrowmq.protocol.compression import decompress
from sparrowmq.protocol.sysflag import COMPRESSED, without_compressed_bit

T = TypeVar("T")
HEAD_BYTES: Final = 1024
"""What lists have of a body."""
PROPERTY_BYTES: Final = 200
"""What a property takes in memory beyond its text: two strings and its place in a table."""
_THREAD: Final = ThreadPoolExecutor(1, thread_name_prefix="sparrow-unpack")

Stopped = Callable[[], bool]


def cost_of(one: ReceivedMessage) -> int:
    """About the memory that a message takes as it is stored, properties included, in bytes. Pure."""
    return one.store_size + PROPERTY_BYTES * len(one.properties)


def unpacked(one: ReceivedMessage) -> ReceivedMessage:
    """The message with its body decompressed; itself when it is not compressed, cannot be read or grows
    beyond `BODY_BYTES_MAX`. Pure.
    """
    if not one.sys_flag & COMPRESSED:
        return one
    try:
        body = decompress(one.body, one.sys_flag, bytes_max=BODY_BYTES_MAX)
    except RecordError:
        return one
    return replace(one, body=body, sys_flag=without_compressed_bit(one.sys_flag))


async def on_thread(work: Callable[[Stopped], T]) -> T:
    """What `work(stopped)` returns, done on the one thread. It asks `stopped` between its steps: true once
    its caller is gone.
    """
    gone = threading.Event()
    try:
        return await asyncio.get_running_loop().run_in_executor(_THREAD, work, gone.is_set)
    finally:
        gone.set()


async def heads(
    messages: Sequence[ReceivedMessage], head_bytes: int = HEAD_BYTES
) -> tuple[list[ReceivedMessage], list[int]]:
    """The messages with the beginnings of their bodies, and the sizes of the whole ones, in bytes. There
    is no more than one decompressed body at a time.
    """

    def work(stopped: Stopped) -> tuple[list[ReceivedMessage], list[int]]:
        found, sizes = list[ReceivedMessage](), list[int]()
        for one in messages:
            if stopped():
                break
            whole_one = unpacked(one)
            found.append(replace(whole_one, body=whole_one.body[:head_bytes]))
            sizes.append(len(whole_one.body))
        return found, sizes

    return await on_thread(work)


async def whole(messages: Sequence[ReceivedMessage], bytes_max: int) -> list[ReceivedMessage]:
    """As many of the first messages as have bodies of `bytes_max` bytes together, decompressed; the first one
    always.
    """

    def work(stopped: Stopped) -> list[ReceivedMessage]:
        found, size = list[ReceivedMessage](), 0
        for one in messages:
            if stopped():
                break
            here = unpacked(one)
            size += len(here.body)
            if found and size > bytes_max:
                break
            found.append(here)
        return found

    return await on_thread(work)
