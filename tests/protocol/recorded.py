"""The recorded frames under `tests/fixtures/wire`, read once."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sparrowmq.protocol.frame import Command, FrameReader, RawFrame, decode

WIRE = Path(__file__).parent.parent / "fixtures" / "wire"
EXCHANGES = 892
"""How many exchanges the fixtures hold; a file that went missing must not pass unnoticed."""


@dataclass(frozen=True)
class Exchange:
    """One request and its answer, whole frames; no answer to one-way and unanswered requests."""

    file: str
    client: str
    code: int
    name: str
    note: str
    request: bytes
    response: bytes | None

    def __str__(self) -> str:
        return f"{self.file}: {self.name} ({self.code}) of {self.client}, {self.note}"

    @property
    def body_dropped(self) -> bool:
        """Whether the answer's body was left out of the recording for its size."""
        return "dropped" in self.note


def raw(frame: bytes) -> RawFrame:
    """The one raw frame in `frame`."""
    frames = FrameReader().feed(frame)
    assert len(frames) == 1
    return frames[0]


def command(frame: bytes) -> Command:
    """The one command in `frame`."""
    return decode(*raw(frame))


@cache
def exchanges() -> tuple[Exchange, ...]:
    """All recorded exchanges."""
    found = []
    for path in sorted(WIRE.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            item = json.loads(line)
            response = item["response"]
            found.append(
                Exchange(
                    file=path.name,
                    client=item["client"],
                    code=item["code"],
                    name=item["name"],
                    note=item["note"],
                    request=base64.b64decode(item["request"]),
                    response=None if response is None else base64.b64decode(response),
                )
            )
    assert len(found) == EXCHANGES
    return tuple(found)


def requests(*codes: int) -> Iterator[tuple[Exchange, Command]]:
    """Recorded requests with one of `codes`, decoded."""
    for exchange in exchanges():
        if exchange.code in codes:
            yield exchange, command(exchange.request)


def answers(*codes: int) -> Iterator[tuple[Exchange, Command]]:
    """Recorded answers to requests with one of `codes`, decoded."""
    for exchange in exchanges():
        if exchange.code in codes and exchange.response is not None:
            yield exchange, command(exchange.response)
