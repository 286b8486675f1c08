"""Java's producers and consumers in a round of `sparrow torture`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from tests.interop.driver import JavaDriver

from sparrowmq.torture.clients import HistoryLog
from sparrowmq.torture.cluster import TOPIC
from sparrowmq.torture.events import decode_lines

GROUP: Final = "torture-java"
ORDERED_GROUP: Final = "torture-java-ordered"


class JavaClients:
    """Two producers with two senders each, one with retries, and two push consumers, one of them in order.

    Their notes are in `file` until they end; then they are added to those of the round.
    """

    groups = (GROUP, ORDERED_GROUP)

    def __init__(self, driver: JavaDriver, file: Path) -> None:
        self._driver = driver
        self._file = file
        self._history: HistoryLog | None = None

    async def start(self, namesrv: str, history: HistoryLog) -> None:
        """Begin to read and to send."""
        self._history = history
        await self._call("start", namesrv=namesrv, topic=TOPIC, group=GROUP, ordered_group=ORDERED_GROUP)

    async def stop_sending(self) -> None:
        """End the producers."""
        await self._call("stopSending")

    async def close(self) -> None:
        """End the consumers, and hand over all notes."""
        await self._call("stop")
        assert self._history is not None
        lines = (await asyncio.to_thread(self._file.read_bytes)).splitlines()
        for event in decode_lines(lines):
            self._history.add(event)

    async def _call(self, what: str, **arguments: str) -> None:
        await asyncio.to_thread(self._driver.call, f"Torture.{what}", file=str(self._file), **arguments)
