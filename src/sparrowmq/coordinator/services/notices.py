"""The service that sends notices: what waits in the outbox goes out, one after another, each with a
deadline.
"""

from __future__ import annotations

import asyncio
import http.client
import smtplib
from collections.abc import Mapping
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
THREADS: Final = 4
"""Threads that receivers may keep hanging; with all of them hung, sending waits for its deadline and goes
on.
"""


class Notices:
    """Sends what is due, and notes what became of it."""

    def __init__(self, senders: Mapping[str, Sender]) -> None:
        self._senders = senders
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="sparrow-notice")

    @property
    def kind(self) -> Kind:
        """Name, defaults and bounds."""
        return KIND

    def close(self) -> None:
        """Let go of the threads; one that a receiver keeps hanging ends by its own deadline."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def step(self, work: Work) -> Report:
        """Send everything that is due."""
        counts, first = {"sent": 0, "failed": 0}, ""
        while work.leads and (batch := await work.read(outbox.due)):
            for notice in batch:
                if not work.leads:
                    break
                error = await self._send(notice)
                await work.write(partial(outbox.settle, sent=notice, error=error))
                counts["failed" if error else "sent"] += 1
                if error and not first:
                    first = f"{notice.channel} to {outbox.shown(notice.channel, notice.target)}: {error}"
        return Report(counts, first)

    async def _send(self, notice: Notice) -> str | None:
        """None when it was sent, else why not."""
        sender = self._senders.get(notice.channel)
        if sender is None:
            return f"the channel {notice.channel} is not set up on this coordinator"
        call = asyncio.get_running_loop().run_in_executor(self._threads, sender, notice)
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await call
        except TimeoutError:
            return "no answer in time"
        except (OSError, ValueError, smtplib.SMTPException, http.client.HTTPException) as error:
            return f"{type(error).__name__}: {error}"
        return None
