"""Whether members may still consume: brokers check the members' signed requests periodically.

A new member is checked before it joins, and a report with unchecked topics before it is accepted. Other
reports are checked in the background, at most once per member in `SIGNED_SECONDS`, so deleted or changed
accounts are noticed in that time. A member that may no longer consume gets the reason, and its reports are
ignored: its lease expires as if it had not reported, and its queues move.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sparrowmq.core.errors import SparrowError
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.coordinator")

SIGNED_SECONDS: Final = 10.0
"""How often a member with an account is checked."""
UNSIGNED_SECONDS: Final = 60.0
"""How often a member without one is checked: brokers may have been restarted to require accounts."""
AT_ONCE: Final = 16
MEMBERS_MAX: Final = 100_000
"""Maximum number of members that are remembered; beyond it, those checked first are checked again."""

Words = Mapping[str, str]
Admits = Callable[[int, Words, bytes], Awaitable[str]]
"""Why the sender of a request (code, header fields, body) may not consume; empty if it may."""


@dataclass(slots=True)
class _Verdict:
    at: float
    topics: frozenset[str]
    signed: bool
    why: str = ""
    underway: bool = False


class Judge:
    """Results of the checks of members. `admits` asks a broker; on a `SparrowError` the last result stays."""

    def __init__(self, admits: Admits, monotonic: Callable[[], float]) -> None:
        self._admits = admits
        self._monotonic = monotonic
        self._verdicts: OrderedDict[tuple[str, str], _Verdict] = OrderedDict()
        self._places = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._occasional = OccasionalLog(log)

    async def close(self) -> None:
        """Stop all checks. Idempotent."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def join(self, code: int, words: Words, body: bytes) -> str:
        """Why the sender may not join; empty if it may. Raises `SparrowError` if no broker answers."""
        async with self._places:
            return await self._admits(code, words, body)

    def joined(self, group: str, member: str, topics: Iterable[str], words: Words) -> None:
        """Record that a member was admitted."""
        self._put((group, member), _Verdict(self._monotonic(), frozenset(topics), _is_signed(words)))

    async def report(
        self, who: tuple[str, str], topics: Iterable[str], request: tuple[int, Words, bytes]
    ) -> str:
        """Why the member (group, name) that sent this report may not continue; empty if it may.

        Raises `SparrowError` when it names other topics than before, and no broker can be asked about them.
        """
        wanted, known = frozenset(topics), self._verdicts.get(who)
        if known is None:  # a member from before this leader: its lease runs during the check
            known = _Verdict(-UNSIGNED_SECONDS, wanted, _is_signed(request[1]))
            self._put(who, known)
        if not wanted <= known.topics:
            why = await self.join(*request)
            known.at, known.why = self._monotonic(), why
            if not why:
                known.topics = wanted
            return why
        signed = known.signed or _is_signed(request[1])
        seconds = SIGNED_SECONDS if signed else UNSIGNED_SECONDS
        if not known.underway and self._monotonic() - known.at >= seconds:
            known.underway = True
            task = asyncio.create_task(self._again(who, known, wanted, request), name="sparrow-judge")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return known.why

    def forget(self, group: str, member: str) -> None:
        """Forget a member that left."""
        self._verdicts.pop((group, member), None)

    async def _again(
        self,
        who: tuple[str, str],
        known: _Verdict,
        wanted: frozenset[str],
        request: tuple[int, Words, bytes],
    ) -> None:
        """Check a member independently of its reports. Topics missing from this report count as unchecked."""
        try:
            why = await self.join(*request)
            known.topics = wanted
            if why and not known.why:
                log.warning("%s may no longer consume for group %s and is removed: %s", who[1], who[0], why)
            known.why = why
        except SparrowError as error:
            text = f"brokers did not say who may consume, so members keep their queues: {error}"
            self._occasional.write(logging.WARNING, "judge", text)
        finally:
            known.at, known.underway = self._monotonic(), False

    def _put(self, who: tuple[str, str], verdict: _Verdict) -> None:
        self._verdicts[who] = verdict
        if len(self._verdicts) > MEMBERS_MAX:
            self._verdicts.popitem(last=False)


def _is_signed(words: Words) -> bool:
    return "AccessKey" in words
