"""Answers that wait for an event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrowmq.protocol.frame import Command, encode

if TYPE_CHECKING:
    from sparrowmq.transport.connection import Connection


class HeldAnswers:
    """A connection whose answers wait for `release`."""

    def __init__(self, connection: Connection) -> None:
        self.born_host = connection.born_host
        self.began = connection.began
        self.address = connection.address
        self._connection = connection
        self._waiting: list[bytes] | None = []

    def write(self, data: bytes) -> None:
        """Keep `data`, or forward it after the release."""
        if self._waiting is None:
            self._connection.write(data)
        else:
            self._waiting.append(data)

    def send(self, command: Command) -> None:
        """Encode and write one command."""
        self.write(encode(command))

    def release(self) -> None:
        """Write the waiting data; later data is forwarded directly."""
        waiting, self._waiting = self._waiting, None
        if waiting:
            self._connection.write(b"".join(waiting))

    def refuse(self, answer: Command) -> None:
        """Write `answer` and discard the waiting and all later data."""
        self._connection.send(answer)
