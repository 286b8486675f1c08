"""The screen of `sparrow top`: it updates repeatedly and reacts to keys.

The terminal is left as it was, however the command ends: by a key, Ctrl-C, SIGTERM, or an error.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from rich.live import Live

from sparrowmq.cli.cluster.cluster_rows import ClusterLook, ClusterRows, inside_of, rows_of
from sparrowmq.cli.cluster.top_view import DOWN, END, ESCAPE, UP, TopChoice, open_view, places, view
from sparrowmq.core.errors import SparrowError

if TYPE_CHECKING:
    from rich.console import Console

    from sparrowmq.core.clock import Sleep

REDRAW_SECONDS: Final = 1.0
"""The screen is drawn again at least so often: its size may have changed."""
KEYS_MAX: Final = 64
"""Keys that are taken at once."""
ARROWS: Final = {"\x1b[A": UP, "\x1bOA": UP, "\x1b[B": DOWN, "\x1bOB": DOWN}
"""What terminals send for the arrow keys."""
_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~])")
"""What they send for a key without a character: it begins with that of the key Esc."""
_PART: Final = re.compile(r"\x1b(?:\[[0-?]{0,16}[ -/]{0,4}|O)?\Z")


class TopScreen:
    """Shows a cluster until a key ends it. `look` measures the cluster, every `interval` seconds, and the
    members of the group that it gets, if any.

    The error of a later measurement is shown below the last figures, and it is repeated.
    """

    def __init__(
        self,
        console: Console,
        look: Callable[[str | None], Awaitable[ClusterLook]],
        interval: float,
        *,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._console = console
        self._look = look
        self._interval = interval
        self._sleep = sleep
        self._choice = TopChoice()
        self._rows = ClusterRows()
        self._looks: tuple[ClusterLook | None, ClusterLook] = None, ClusterLook(0.0)
        self._note: str | None = None
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Show it. Raises the error of the first measurement."""
        first = await self._look(None)
        self._show(None, first)
        looking = asyncio.create_task(self._keep_looking(first))
        try:
            with (
                stop_signals(partial(self._press, END)),
                keys(self._press),
                Live(console=self._console, screen=True, auto_refresh=False) as live,
            ):
                while not self._choice.is_over:
                    self._draw(live)
                    await self._something_new()
                    if looking.done():
                        looking.result()
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    def _draw(self, live: Live) -> None:
        width, height = self._console.size
        choice, note = self._choice, self._note
        if choice.opened is None:
            shown = view(self._rows, choice, width=width, height=height, note=note)
        else:
            inside = inside_of(*self._looks, choice.opened)
            shown = open_view(inside, choice, width=width, height=height, note=note)
        live.update(shown, refresh=True)

    def _show(self, before: ClusterLook | None, now: ClusterLook) -> None:
        self._rows, self._looks = rows_of(before, now), (before, now)

    async def _something_new(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(REDRAW_SECONDS):
                await self._changed.wait()
        self._changed.clear()

    async def _keep_looking(self, before: ClusterLook) -> None:
        while True:  # until the screen ends
            await self._sleep(self._interval)
            if self._choice.is_paused:
                continue
            try:
                opened = self._choice.opened
                now = await self._look(opened.name if opened and opened.kind == "group" else None)
            except SparrowError as error:
                self._note = f"these figures are old: {error}"
            else:
                self._show(before, now)
                self._note, before = None, now
            self._changed.set()

    def _press(self, key: str) -> None:
        self._choice.press(key, places(self._rows, self._choice, self._console.height, self._note))
        self._changed.set()


def keys_in(text: str, *, more: bool) -> tuple[str, str]:
    """The keys that a terminal sent, without those that are unknown here; and the beginning of a key whose
    other characters are still to come. `more`: it has sent more than this. Pure.
    """
    part = _PART.search(text)
    begun = part[0] if part is not None and (more or part[0] != ESCAPE) else ""
    whole = text.removesuffix(begun)
    return _SEQUENCE.sub(lambda found: ARROWS.get(found[0], ""), whole), begun


@contextmanager
def keys(press: Callable[[str], None]) -> Iterator[None]:
    """While this runs, call `press` on the loop with each key, if standard input is a terminal.

    The end of the input is the key `END`. Ctrl-C stays an interrupt. Ctrl-Z does nothing: it would leave the
    shell with this screen.
    """
    try:
        import termios
        import tty

        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (ImportError, OSError, ValueError, termios.error):  # no terminal, or Windows
        yield
        return
    loop, begun = asyncio.get_running_loop(), ""

    def read() -> None:
        nonlocal begun
        text = os.read(descriptor, KEYS_MAX).decode("ascii", "replace") or END
        pressed, begun = keys_in(begun + text, more=len(text) == KEYS_MAX)
        for key in pressed:
            press(key)

    try:
        tty.setcbreak(descriptor)
        changed = termios.tcgetattr(descriptor)
        changed[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(descriptor, termios.TCSANOW, changed)
        loop.add_reader(descriptor, read)
        yield
    finally:
        loop.remove_reader(descriptor)
        with suppress(termios.error):  # the terminal was closed
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """While this runs, SIGTERM and SIGHUP call `stop` on the loop; not on Windows, which has none."""
    loop, taken = asyncio.get_running_loop(), []
    for name in ("SIGTERM", "SIGHUP"):
        if (number := getattr(signal, name, None)) is not None:
            with suppress(NotImplementedError):
                loop.add_signal_handler(number, stop)
                taken.append(number)
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)
