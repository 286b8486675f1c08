"""The service that sends notices: what waits in the outbox goes out, one after another, each with a
deadline.
"""

from __future__ import annotations

import asyncio
import http.client
import smtplib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from sparrowmq.coordinator.alarms import outbox
from sparrowmq.coordinator.alarms.outbox import Notice
from sparrowmq.coordinator.alarms.senders import Sender
from sparrowmq.coordinator.services.frame import Work
from sparrowmq.coordinator.services.schedule import Kind, Report

KIND: Final = Kind("notices", "Send notices of alarms", 5_000, 1_000, 120.0)
SEND_SECONDS: Final = 15.0
"""How long one notice may take whatever the receiver does: one that answers a byte a second is given up."""
FAILURES_MAX: Final = 3
"""Receivers of a channel that fail in one run before the others of the channel wait for the next one, too: a
mail server that is down fails for all of them.
"""
THREADS: Final = 4
"""Threads of each channel that receivers may keep hanging; with all of them hung, its sending waits for its
deadline and goes on, and the other channels notice nothing.
"""


class Notices:
    """Sends what is due, and notes what became of it."""

    def __init__(self, senders: Mapping[str, Sender]) -> None:
        self._senders = senders
        self._threads = {
            channel: ThreadPoolExecutor(THREADS, thread_name_prefix=f"sparrow-{channel}")
            for channel in senders
        }

    @property
    def kind(self) -> Kind:
        """Name, defaults and bounds."""
        return KIND

    def close(self) -> None:
        """Let go of the threads; one that a receiver keeps hanging ends by its own deadline."""
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)

    async def step(self, work: Work) -> Report:
        """Send everything that is due. Who fails once is left alone until the next run."""
        run = _Run(work, self._send)
        while work.leads and (batch := await work.write(outbox.take)):
            of_channel: dict[str, list[Notice]] = {}
            for notice in batch:
                of_channel.setdefault(notice.channel, []).append(notice)
            await asyncio.gather(*map(run.send, of_channel.values()))
        return Report({"sent": run.sent, "failed": run.failed, "put off": run.put_off}, run.message)

    async def _send(self, notice: Notice) -> str | None:
        """None when it was sent, else why not."""
        sender = self._senders.get(notice.channel)
        if sender is None:
            return f"the channel {notice.channel} is not set up on this coordinator"
        threads = self._threads[notice.channel]
        call = asyncio.get_running_loop().run_in_executor(threads, sender, notice)
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await call
        except TimeoutError:
            return "no answer in time"
        except (OSError, ValueError, smtplib.SMTPException, http.client.HTTPException) as error:
            return f"{type(error).__name__}: {error}"
        return None


class _Run:
    """One run: what became of its notices, and who failed."""

    def __init__(self, work: Work, send: Callable[[Notice], Awaitable[str | None]]) -> None:
        self._work = work
        self._send = send
        self._failed: dict[str, set[str]] = {}
        self.sent = self.failed = self.put_off = 0
        self._first: dict[str, str] = {}

    @property
    def message(self) -> str:
        """The first failure of each channel."""
        return "; ".join(self._first[channel] for channel in sorted(self._first, reverse=True))

    async def send(self, notices: Sequence[Notice]) -> None:
        """Send notices of one channel, one after the other."""
        waiting: list[Notice] = []
        for notice in notices:
            if not self._work.leads:
                return
            failed = self._failed.setdefault(notice.channel, set())
            if notice.target in failed or len(failed) >= FAILURES_MAX:
                waiting.append(notice)
                continue
            error = await self._send(notice)
            await self._work.write(partial(outbox.settle, sent=notice, error=error))
            if error is None:
                self.sent += 1
                continue
            self.failed += 1
            failed.add(notice.target)
            where = outbox.shown(notice.channel, notice.target)
            self._first.setdefault(notice.channel, f"{notice.channel} to {where}: {error}")
        if waiting:
            await self._work.write(partial(outbox.put_off, notices=waiting))
            self.put_off += len(waiting)
