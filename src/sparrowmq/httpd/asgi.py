"""The types of ASGI, an answer as one message or in chunks, and whether it may be compressed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

Headers = Sequence[tuple[bytes, bytes]]


def accepts_gzip(encodings: str) -> bool:
    """Whether an `Accept-Encoding` header allows gzip."""
    for choice in encodings.lower().split(","):
        name, *rest = (part.strip() for part in choice.split(";"))
        if name == "gzip":
            return not any(part.startswith("q=0") and not part.strip("q=0.") for part in rest)
    return False


async def respond(
    send: Send, status: int, content_type: str, chunks: Iterable[bytes], headers: Headers = ()
) -> None:
    """Send an answer; each chunk is sent when the client has read enough of the previous ones."""
    body = list(chunks)
    size = str(sum(map(len, body))).encode()
    found = [(b"content-type", content_type.encode()), (b"content-length", size), *headers]
    await send({"type": "http.response.start", "status": status, "headers": found})
    for chunk in body:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
