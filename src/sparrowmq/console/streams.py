"""How many pages may be open that follow their changes. No I/O.

Such a page occupies a connection for as long as it is open. Without a limit, the pages of one user could take
all connections of the coordinator, so that no other user could log in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

STREAMS_PER_USER: Final = 16
"""Browsers follow a page only while it is visible, so a user needs one for each window."""


@dataclass(frozen=True, slots=True)
class StreamLimit:
    """A limit that is reached: `key` of the words that say so, and how many there may be."""

    key: str
    count: int


class Streams:
    """The open streams: at most `most` in all, and `STREAMS_PER_USER` of one user."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<Streams {len(self)} of {self.most}>"

    def __len__(self) -> int:
        return self._open.total()

    def enter(self, user: str) -> StreamLimit | None:
        """Count one more of a user; or give the limit that is reached."""
        if self._open[user] >= STREAMS_PER_USER:
            return StreamLimit("word.crowded-own", STREAMS_PER_USER)
        if len(self) >= self.most:
            return StreamLimit("word.crowded", self.most)
        self._open[user] += 1
        return None

    def leave(self, user: str) -> None:
        """Count one less, for each `enter` that gave no limit."""
        self._open[user] -= 1
        self._open += Counter()  # users without streams are forgotten


class CountedStream(StreamingResponse):
    """A stream that has been counted for `user`: it leaves when it ends, however it ends."""

    def __init__(
        self, streams: Streams, user: str, content: AsyncIterator[str], headers: Mapping[str, str]
    ) -> None:
        super().__init__(content, media_type="text/event-stream", headers=headers)
        self._streams = streams
        self._user = user

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.leave(self._user)
