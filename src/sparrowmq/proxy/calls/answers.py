"""What clients get a message of a broker in: of a small one it is made at once, of a large or compressed one
in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from sparrowmq.core.message import ReceivedMessage
from sparrowmq.protocol.sysflag import COMPRESSED
from sparrowmq.proxy.base.converting import to_message, weight_of
from sparrowmq.transport.slices import TurnGate

THREAD_BYTES: Final = 64 * 1024
"""A message with a larger body is made in a thread: to copy and digest 4 MiB takes 15 ms."""


class MessageAnswers:
    """Makes what clients get a message in. `close` ends its thread."""

    def __init__(self, gate: TurnGate) -> None:
        self._gate = gate
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sparrow-messages")
        """One thread, so that the loop need not wait for several of them."""

    async def of(self, kind: Callable[..., Any], message: ReceivedMessage, topic: Any) -> Any:
        """An answer or question of this kind, in a turn of the loop that has room for it; `topic` is a
        `resource`.
        """
        size = len(message.body)
        if size <= THREAD_BYTES and not message.sys_flag & COMPRESSED:
            await self._gate.passed(weight_of(size))
            return kind(message=to_message(message, topic))
        loop = asyncio.get_running_loop()
        made, size = await loop.run_in_executor(self._thread, _made, kind, message, topic)
        await self._gate.passed(weight_of(size))  # it is written in this turn
        return made

    def close(self) -> None:
        """End the thread after its current message."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _made(kind: Callable[..., Any], message: ReceivedMessage, topic: Any) -> tuple[Any, int]:
    """An answer and its size. 64 KiB of compressed data may be 64 MiB."""
    made = kind(message=to_message(message, topic))
    return made, made.ByteSize()
