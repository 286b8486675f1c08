"""When a send may be answered: when the message is on disk (`SYNC_FLUSH`) and at enough slaves
(`SYNC_MASTER`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from sparrowmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from sparrowmq.broker.base.flushing import Flusher

SUCCESS: Final = int(ResponseCode.SUCCESS)
Answered = Callable[[int], None]
"""Called once with the response code: `SUCCESS`, or why the message is less safe than required."""


class Copies(Protocol):
    """The slaves that a send waits for."""

    @property
    def busy(self) -> bool:
        """Whether the limit of waiting sends is reached."""

    def refusal(self) -> str | None:
        """The reason why no message may be stored now, or None."""

    def after(self, position: int, done: Answered, size: int) -> None:
        """Call `done` with `SUCCESS` when enough slaves have the log up to `position`, else with the reason.

        `size` is the memory that `done` uses until then, in bytes.
        """


class Durability:
    """What the sends of one broker wait for. `waits` says whether they wait for anything."""

    def __init__(self, flusher: Flusher, copies: Copies | None = None) -> None:
        self.flusher = flusher
        self._copies = copies
        self.waits = flusher.sync or copies is not None

    @property
    def busy(self) -> bool:
        """Whether the limit of waiting chunks is reached."""
        if self._copies is not None and self._copies.busy:
            return True
        return self.flusher.sync and self.flusher.busy

    def refusal(self) -> str | None:
        """Why no message may be stored now, because of too few slaves; or None."""
        return None if self._copies is None else self._copies.refusal()

    def after(self, position: int, answered: Answered, visible: Callable[[], None], size: int = 0) -> None:
        """Call `answered` when the log up to `position` is as safe as the settings require, or will not be in
        time.

        Call `visible` when consumers may see it: once it is on disk, which may be after `answered`.
        """
        outcome = _Outcome(answered, self.flusher.sync + (self._copies is not None))
        if self.flusher.sync:

            def flushed(on_disk: bool) -> None:
                outcome.flushed(on_disk=on_disk)
                if on_disk:
                    visible()

            self.flusher.after(position, flushed, size)
        else:
            visible()
        if self._copies is not None:
            self._copies.after(position, outcome.copied, size)


class _Outcome:
    """Combines the outcomes of flush and copy. A failure of the copy takes precedence, as in RocketMQ."""

    __slots__ = ("_answered", "_code", "_missing", "_was_flushed")

    def __init__(self, answered: Answered, missing: int) -> None:
        self._answered = answered
        self._missing = missing
        self._code = SUCCESS
        self._was_flushed = False

    def flushed(self, *, on_disk: bool) -> None:
        """The flush succeeded or timed out; after a timeout it may succeed later, which changes nothing."""
        if self._was_flushed:
            return
        self._was_flushed = True
        if not on_disk and self._code == SUCCESS:
            self._code = int(ResponseCode.FLUSH_DISK_TIMEOUT)
        self._one_less()

    def copied(self, code: int) -> None:
        """The slaves have it, or did not confirm it in time."""
        if code != SUCCESS:
            self._code = int(code)
        self._one_less()

    def _one_less(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._answered(self._code)
