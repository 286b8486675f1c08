"""A directory of numbered notes, each created once: the writer of the next number decides.

It is safe on any file system that can create a file without overwriting an existing one; it needs no rename
and no lock. A truncated note (where a file appears before it is complete) does not count: the newest complete
one does, and the number stays used. Of two writers only one can continue: the other finds its next number
taken.
"""

from __future__ import annotations

import json
import secrets
from typing import Any, Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.pipelines.common.files import Files

_DIGITS: Final = 12
_SUFFIX: Final = ".json"
_TOKEN: Final = "token"


class TakenError(SettingsError):
    """Another writer created a note meanwhile, so this writer must end. `by` is that note, if it
    can be read.
    """

    def __init__(self, text: str, by: dict[str, Any] | None) -> None:
        super().__init__(text)
        self.by = by


class Commits:
    """The notes in one folder. A note is a JSON object."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def __repr__(self) -> str:
        return f"<Commits {self._files.location}>"

    def numbers(self) -> list[int]:
        """The used numbers, ascending."""
        names = [name.removesuffix(_SUFFIX) for name in self._files.names() if name.endswith(_SUFFIX)]
        return sorted(int(name) for name in names if name.isdecimal())

    def read(self, number: int) -> dict[str, Any] | None:
        """A note; None if it does not exist or is truncated."""
        text = self._files.read(_name(number))
        try:
            value = json.loads(text or "")
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    def newest(self) -> tuple[int, dict[str, Any]] | None:
        """The newest complete note with its number; None if there is none."""
        for number in reversed(self.numbers()):
            value = self.read(number)
            if value is not None:
                return number, value
        return None

    def add(self, number: int, value: dict[str, Any]) -> None:
        """Create a note. Raises `TakenError` when the number, or a later one, is used.

        The note is read back: a response may be lost, and some stores check for existence before they write.
        """
        token = secrets.token_hex(8)
        made = self._files.create(_name(number), json.dumps({**value, _TOKEN: token}, separators=(",", ":")))
        there = self.read(number)
        if there is None or there.get(_TOKEN) != token or (made and self.numbers()[-1] > number):
            newest = self.newest()
            raise TakenError(
                f"{self._files.location}/{_name(number)} was written by another run", newest and newest[1]
            )

    def forget(self, before: int) -> None:
        """Delete the notes with smaller numbers."""
        for number in self.numbers():
            if number < before:
                self._files.delete(_name(number))


def _name(number: int) -> str:
    return f"{number:0{_DIGITS}d}{_SUFFIX}"
