"""Questions to clients that wait for an answer, by the nonce of the command."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from sparrowmq.core.errors import NoRoomError

QUESTIONS_MAX: Final = 1_000
"""Questions that wait at one time; above that a tool is told to try again."""


class PendingAnswers:
    """The questions of one proxy."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[str, asyncio.Future[Any]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def waiting(self, client_id: str, nonce: str) -> Iterator[asyncio.Future[Any]]:
        """The future answer of a client to the question with this nonce. Raises `NoRoomError`."""
        if len(self._waiting) >= QUESTIONS_MAX:
            raise NoRoomError(
                f"the proxy waits for {QUESTIONS_MAX} answers of clients, its limit", limit=QUESTIONS_MAX
            )
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[nonce] = client_id, answer
        try:
            yield answer
        finally:
            del self._waiting[nonce]
            answer.cancel()

    def answered(self, client_id: str, command: Any) -> None:
        """A client sent the answer to a question; one that it was not asked is dropped."""
        kind = command.WhichOneof("command")
        if kind not in ("thread_stack_trace", "verify_message_result"):
            return
        asked, answer = self._waiting.get(getattr(command, kind).nonce, ("", None))
        if answer is not None and asked == client_id and not answer.done():
            answer.set_result(command)
