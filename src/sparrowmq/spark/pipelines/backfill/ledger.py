"""A backfill's ledger: the plan of the first start, the finished windows, and the current run.

    <directory>/window=00000012/…        what the built-in sink wrote
    <directory>/_backfill/backfill.json  written once: id, what was asked for, and all windows in offsets
    <directory>/_backfill/done/00000012  a note for each window that is done, written after its last row
    <directory>/_backfill/run.json       who runs it; the one that came last goes on, others stop
    <directory>/_backfill/lock           on a mounted file system: held by the one process that runs it

A window is done when its note exists, so a list of names shows what is left: nothing else has to be read.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.pipelines.backfill import windows
from sparrowmq.spark.pipelines.backfill.windows import Window
from sparrowmq.spark.pipelines.common import directories
from sparrowmq.spark.pipelines.common.files import Files, LocalFiles
from sparrowmq.spark.pipelines.common.notes import check_asked, check_version, reading

VERSION: Final = 1
NOTES: Final = "_backfill"
"""Readers ignore names that begin with an underscore."""
_SETTLED: Final = f"{NOTES}/backfill.json"
_DONE: Final = f"{NOTES}/done"
_RUN: Final = f"{NOTES}/run.json"
_NUMBER: Final = "08d"


class BackfillError(SettingsError):
    """A backfill does not fit the request; the text names directory, value and next step."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The plan made at the first start."""

    id: str
    """16 hex digits."""
    asked: Mapping[str, Any]
    """The settings that decide which messages are in which window, as JSON values."""
    windows: tuple[Window, ...]

    @classmethod
    def now(cls, asked: Mapping[str, Any], cut: Sequence[Window]) -> Settled:
        """Create the plan for new windows."""
        return cls._of(secrets.token_hex(8), asked, windows.to_json(cut))

    @classmethod
    def _of(cls, name: str, asked: Mapping[str, Any], value: Any) -> Settled:
        return cls(name, dict(asked), tuple(windows.from_json(value, name)))

    def to_json(self) -> dict[str, Any]:
        """As a JSON value."""
        return {
            "version": VERSION,
            "id": self.id,
            "asked": dict(self.asked),
            **windows.to_json(self.windows),
        }

    @classmethod
    def from_text(cls, text: str, where: str) -> Settled:
        """The inverse of `to_json` as text. Raises `BackfillError` naming `where`."""
        with reading("a note of a backfill", where, BackfillError, name="note"):
            value = json.loads(text)
            check_version(value, VERSION, where, BackfillError)
            return cls._of(str(value["id"]), value["asked"], value)

    def check(self, asked: Mapping[str, Any], place: str) -> None:
        """Raise `BackfillError` unless `asked` equals the settings with which the backfill was started."""
        check_asked(
            asked,
            self.asked,
            f"{place} contains a backfill",
            "another directory for another backfill",
            BackfillError,
        )

    def left(self, done: frozenset[int]) -> list[Window]:
        """The windows that are not done, in order."""
        return [window for window in self.windows if window.number not in done]


class BackfillLedger:
    """The notes of one backfill."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._token = ""

    def __repr__(self) -> str:
        return f"<Ledger {self.files.location}>"

    def settled(self) -> Settled | None:
        """The stored plan; None when no backfill was started here. Raises `BackfillError`."""
        text = self.files.read(_SETTLED)
        where = f"{self.files.location}/{_SETTLED}"
        begun = bool(self.files.names(_DONE))
        if text is not None and (begun or _whole(text) is not None):
            return Settled.from_text(text, where)
        if begun:
            raise BackfillError(
                f"{where} is missing, but finished windows are recorded; restore it from a copy",
                what="missing",
                value=where,
            )
        return None

    def begin(self, settled: Settled) -> None:
        """Store the plan, permanently."""
        self.files.replace(_SETTLED, json.dumps(settled.to_json(), separators=(",", ":")))

    def done(self) -> frozenset[int]:
        """The numbers of the finished windows."""
        return frozenset(int(name) for name in self.files.names(_DONE) if name.isdecimal())

    def note(self, window: Window, **figures: Any) -> None:
        """Note that a window is done. Raises `BackfillError` when another process runs this backfill."""
        self.check_run()
        value = {"number": window.number, "offsets": len(window), **figures}
        self.files.replace(f"{_DONE}/{window.number:{_NUMBER}}", json.dumps(value, separators=(",", ":")))

    @contextmanager
    def mine(self) -> Iterator[None]:
        """Make this process the one that runs the backfill, during the block. Raises `BackfillError` if
        another process of this machine runs it; a process elsewhere stops before it records its next window.
        """
        with self._locked():
            self._token = secrets.token_hex(8)
            who = {"token": self._token, "host": socket.gethostname(), "process": os.getpid()}
            self.files.replace(_RUN, json.dumps(who))
            yield

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """A lock excludes other processes of this machine, the run note those elsewhere."""
        if isinstance(self.files, LocalFiles):
            with directories.locked(self.files.root / NOTES, "backfill", BackfillError):
                yield
        else:
            yield

    def check_run(self) -> None:
        """Raise `BackfillError` unless this process started the latest run."""
        now = _whole(self.files.read(_RUN)) or {}
        if now.get("token") != self._token:
            raise BackfillError(
                f"{self.files.location} is being written by process {now.get('process')} on "
                f"{now.get('host')}, which started later: this one stops",
                what="run",
                value=now.get("process"),
            )


def _whole(text: str | None) -> Any:
    """A note; None if it is truncated: some file systems show a file before it is complete."""
    try:
        return json.loads(text or "")
    except ValueError:
        return None


def window_name(number: int) -> str:
    """The directory of a window."""
    return f"window={number:{_NUMBER}}"
