"""Resends dead letters to their group one after another, at a given rate, and records each outcome.

Resends are in this coordinator's memory: they end when it stops; the audit log shows which were started.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.aio import Admin
from sparrowmq.coordinator.cluster.bodies.unpacking import whole
from sparrowmq.core.clock import Clock, Sleep
from sparrowmq.core.errors import ClientError, RefusedError, SparrowError
from sparrowmq.core.message import BODY_BYTES_MAX, PROPERTY_ORIGIN_MESSAGE_ID
from sparrowmq.core.names import dlq_topic
from sparrowmq.protocol.sysflag import COMPRESSED

IDS_MAX: Final = 1000
RATE_MIN: Final = 0.1
RATE_MAX: Final = 100.0
RUNNING_MAX: Final = 4
"""Maximum number of concurrent resends."""
KEPT_MAX: Final = 50
"""Number of past resends that are kept."""
SAME_ID_MAX: Final = 8
"""With as many dead letters of one id, there may be more: all letters of the group are read."""
LETTER_SECONDS: Final = 15.0
WAITS: Final = "waits"
SENT: Final = "sent"
GONE: Final = "gone"
FAILED: Final = "failed"
_log = logging.getLogger("sparrowmq.coordinator")


@dataclass(slots=True)
class Resending:
    """One resend: who asked for what, and the outcome of each letter: waits, sent, gone (the group no longer
    has that dead letter) or failed, then `errors` says why. Times are epoch ms; `ended_ms` is 0 while it
    runs.
    """

    number: int
    group: str
    per_second: float
    asked_by: str
    reason: str
    begun_ms: int
    ended_ms: int = 0
    outcomes: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of letters by outcome."""
        return Counter(self.outcomes.values())


@dataclass(slots=True)
class Resends:
    """All resends of this coordinator."""

    admin: Callable[[], Awaitable[Admin]]
    clock: Clock
    sleep: Sleep = asyncio.sleep
    _known: dict[int, Resending] = field(default_factory=dict)
    _tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    _last: int = 0

    def of(self, group: str) -> list[Resending]:
        """Those of a group, the newest first."""
        return [one for one in reversed(self._known.values()) if one.group == group]

    def check_room(self) -> None:
        """Raise `RefusedError` (429) when too many are running."""
        if len(self._tasks) >= RUNNING_MAX:
            groups = ", ".join(sorted({self._known[number].group for number in self._tasks}))
            raise RefusedError(
                f"{RUNNING_MAX} resends are running (of {groups}) and the limit is {RUNNING_MAX}; wait "
                f"until one ends, or stop one",
                status=429,
                limit=RUNNING_MAX,
            )

    async def begin(
        self,
        group: str,
        ids: Sequence[str],
        per_second: float,
        asked: tuple[str, str],
        ended: Callable[[Resending], Awaitable[None]],
    ) -> Resending:
        """Start a resend; `asked` says who requested it and why. The first letter is sent before this
        returns. `ended` is called when it ends, whatever the result. Raises `RefusedError` (429).
        """
        self.check_room()
        self._last += 1
        outcomes = dict.fromkeys(ids, WAITS)
        one = Resending(self._last, group, per_second, *asked, self.clock.now_ms(), outcomes=outcomes)
        self._known[one.number] = one
        while len(self._known) > KEPT_MAX:
            oldest = next((number for number in self._known if number not in self._tasks), None)
            if oldest is None:
                break
            del self._known[oldest]
        first = asyncio.Event()
        task = asyncio.create_task(self._run(one, first, ended), name=f"sparrow-resend-{one.number}")
        self._tasks[one.number] = task
        task.add_done_callback(lambda _: self._tasks.pop(one.number, None))
        await (first.wait() if len(ids) > 1 else asyncio.wait([task]))
        return one

    async def stop(self, group: str, number: int) -> Resending:
        """Stop one. Raises `RefusedError` (404, 409)."""
        one = self._known.get(number)
        if one is None or one.group != group:
            raise RefusedError(f"there is no resend {number} of {group[:255]}; list them to see", status=404)
        task = self._tasks.get(number)
        if task is None:
            raise RefusedError(f"the resend {number} has already ended", status=409)
        task.cancel()
        await asyncio.wait([task])
        return one

    async def close(self) -> None:
        """Stop all. Idempotent."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(
        self, one: Resending, first: asyncio.Event, ended: Callable[[Resending], Awaitable[None]]
    ) -> None:
        try:
            admin = await self.admin()
            for position, letter in enumerate(one.outcomes):
                if position:
                    await self.sleep(1 / one.per_second)
                await self._give(admin, one, letter)
                first.set()
        except SparrowError as error:
            one.errors[""] = str(error)
        finally:
            first.set()
            one.ended_ms = self.clock.now_ms()
            try:
                await ended(one)
            except SparrowError:
                _log.exception(
                    "the end of the resend %d of %s is not in the audit log", one.number, one.group
                )

    async def _give(self, admin: Admin, one: Resending, letter: str) -> None:
        try:
            async with asyncio.timeout(LETTER_SECONDS):
                one.outcomes[letter] = SENT if await _sent(admin, one.group, letter) else GONE
        except (SparrowError, TimeoutError) as error:
            one.outcomes[letter] = FAILED
            one.errors[letter] = str(error) or f"no answer within {LETTER_SECONDS:g} s"


async def _sent(admin: Admin, group: str, letter: str) -> bool:
    """Resend the letters of one id: search by id, else among all letters; False when it no longer exists.

    A message may have several dead letters, of which the newest is sent. Different messages have one id if
    clients chose it: each is sent.
    """
    found = await admin.messages.query(
        dlq_topic(group), letter, count=SAME_ID_MAX, unique=True, decompress=False
    )
    if 0 < len(found) < SAME_ID_MAX:
        origins = (one.properties.get(PROPERTY_ORIGIN_MESSAGE_ID) or one.offset_message_id for one in found)
        for newest in dict(zip(origins, found, strict=True)).values():
            (one,) = await whole([newest], BODY_BYTES_MAX)
            if one.sys_flag & COMPRESSED:
                raise RefusedError(
                    f"its body cannot be decompressed to at most {BODY_BYTES_MAX} bytes", status=422
                )
            await admin.dead_letters.resend_one(group, one)
        return True
    told = await admin.dead_letters.resend(group, [letter])
    if reason := next((one.reason for one in told if one.reason), ""):
        raise ClientError(reason)
    return any(one.outcome == "sent" for one in told)
