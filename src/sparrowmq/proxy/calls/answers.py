"""Answers with a message of a broker: a small one is made at once, a large one in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from sparrowmq.core.message import ReceivedMessage
from sparrowmq.proxy.base.converting import to_message, weight_of
from sparrowmq.transport.slices import TurnGate

THREAD_BYTES: Final = 64 * 1024
"""A message with a larger body is made in a thread: to copy, decompress and digest 4 MiB takes 15 ms."""


class MessageAnswers:
    """Makes the answers of receives and pulls."""

    def __init__(self, gate: TurnGate) -> None:
        self._gate = gate
        self._alone = asyncio.Lock()
        """One thread at a time, so that the loop need not wait for several of them."""

    async def of(self, kind: Callable[..., Any], message: ReceivedMessage, topic: Any) -> Any:
        """An answer of this kind in a turn of the loop that has room for it; `topic` is a `resource`."""
        size = len(message.body)
        make = partial(_answer, kind, message, topic)
        if size <= THREAD_BYTES:
            await self._gate.passed(weight_of(size))
            return make()
        async with self._alone:
            made = await asyncio.to_thread(make)
        await self._gate.passed(weight_of(size))  # it is written in this turn
        return made


def _answer(kind: Callable[..., Any], message: ReceivedMessage, topic: Any) -> Any:
    return kind(message=to_message(message, topic))
