"""The service that sends notices of the outbox, one after another, each with a deadline."""

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
from sparrowmq.coordinator.services.base.runner import Work
from sparrowmq.coordinator.services.base.schedule import RunReport, ServiceKind

KIND: Final = ServiceKind("notices", "Send notices of alarms", 5_000, 1_000, 120.0)
SEND_SECONDS: Final = 15.0
"""Time limit of one notice: a receiver that answers one byte per second is given up."""
FAILURES_MAX: Final = 3
"""Number of receivers of a channel that may fail in one run before the others of the channel also wait for
the next run: an unavailable mail server fails for all of them.
"""
THREADS: Final = 4
"""Threads of each channel that receivers may block; when all are blocked, sending on this channel waits for
its deadline and continues. Other channels are not affected.
"""


class Notices:
    """Sends due notices, and records the results."""

    def __init__(self, senders: Mapping[str, Sender]) -> None:
        self._senders = senders
        self._threads = {
            channel: ThreadPoolExecutor(THREADS, thread_name_prefix=f"sparrow-{channel}")
            for channel in senders
        }

    @property
    def kind(self) -> ServiceKind:
        """Name, defaults and bounds."""
        return KIND

    def close(self) -> None:
        """Release the threads; a blocked one ends by its own deadline."""
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)

    async def step(self, work: Work) -> RunReport:
        """Send everything that is due. A receiver that fails is not tried again until the next run."""
        run = _Run(work, self._send)
        while work.leads and (batch := await work.write(outbox.take)):
            of_channel: dict[str, list[Notice]] = {}
            for notice in batch:
                of_channel.setdefault(notice.channel, []).append(notice)
            await asyncio.gather(*map(run.send, of_channel.values()))
        return RunReport({"sent": run.sent, "failed": run.failed, "put off": run.put_off}, run.message)

    async def _send(self, notice: Notice) -> str | None:
        """None if it was sent, else the error."""
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
        except (ValueError, http.client.HTTPException) as error:
            if notice.channel == outbox.WEBHOOK:  # the error may quote the address, which may contain keys
                return f"{type(error).__name__}: check alarmWebhook and the service that listens there"
            return f"{type(error).__name__}: {error}"
        except (OSError, smtplib.SMTPException) as error:
            return f"{type(error).__name__}: {error}"
        return None


class _Run:
    """One run: results of its notices, and receivers that failed."""

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
        """Send the notices of one channel, one after the other."""
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
