"""An account of the memory that a server uses for its clients, with one limit for all of them together.

Each connection has a `Debt`: partly received requests, waiting requests, and answers that its socket did not
accept yet. Memory of handlers (held pulls, requests that wait for something) is charged to the account
itself. Above `limit` the account is full: new large answers are refused, and only one connection at a time
may complete a large request while others wait. A debtor that neither sends nor receives in this time is
closed. Above `hard_limit` the largest debtors are closed immediately.

Only memory of the process counts. Views of the mapped log belong to the system, so they do not count.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

from sparrowmq.core.errors import InvariantError

MIB: Final = 1024 * 1024
MEMORY_MAX: Final = 128 * MIB
"""Default limit of bytes kept for all connections of a server together."""
UNAUTHENTICATED_MEMORY_MAX: Final = 32 * MIB
"""Limit of bytes in partial requests of all unauthenticated connections together."""
SMALL_DEBT: Final = 64 * 1024
"""A connection with a smaller debt is served normally while the account is full, and never closed for it."""
STALL_SECONDS: Final = 5.0
"""How long a debtor may neither send nor receive while the account is full."""
LOOK_SECONDS: Final = 0.5
"""Interval between checks of debtors while the account is full."""
FRESH_SECONDS: Final = 0.05
"""Minimum seconds between two measurements of unsent answers."""
MARK_BYTES: Final = SMALL_DEBT
"""Answers are recorded in units of this many bytes; a unit counts as sent only as a whole."""
MARKS_MAX: Final = 64
FRAME_OVERHEAD: Final = 250
"""Overhead of a waiting request in addition to its bytes."""


class Debtor(Protocol):
    """A connection, as the account sees it."""

    debt: Debt

    def unsent_socket_bytes(self) -> int:
        """Bytes that the socket has not sent yet."""

    def stop_for_room(self) -> None:
        """Stop reading until `go_on_with_room`."""

    def go_on_with_room(self) -> None:
        """Resume reading."""

    def close_for_debt(self, why: str) -> None:
        """Close immediately and log it."""


class Debt:
    """The debt of one connection: bytes of `requests`, of which `partial` belong to an incomplete one, and
    bytes of `answers`.

    `trusted`: the client is authenticated; always true without access control.
    """

    __slots__ = (
        "_account",
        "_flushed",
        "_fresh",
        "_mark_at",
        "_marks",
        "_since",
        "_taken",
        "_written",
        "answers",
        "partial",
        "requests",
        "trusted",
    )

    def __init__(self, account: MemoryAccount) -> None:
        self._account = account
        self._marks: deque[tuple[int, int]] = deque()
        self._mark_at = MARK_BYTES
        self._written = self._taken = 0
        self._since = 0
        self._flushed = 0.0
        self._fresh = 0
        self.partial = self.requests = self.answers = 0
        self.trusted = True

    @property
    def total(self) -> int:
        """Bytes of requests and answers."""
        return self.requests + self.answers

    @property
    def progress(self) -> tuple[int, int]:
        """Changes whenever the client sends or receives bytes; call `measure` first."""
        return self.partial, self._marks[0][0] if self._marks else self._taken

    @property
    def since(self) -> int:
        """Order of partial requests: smaller for those that began earlier."""
        return self._since

    def change(self, debtor: Debtor, delta: int) -> None:
        """Increase or decrease the bytes of requests."""
        self.requests += delta
        account = self._account
        account.total += delta
        if delta > 0:
            account.debtors.add(debtor)
        elif account.waiting:
            account.plan_next()

    def set_partial(self, debtor: Debtor, size: int) -> None:
        """Set how many bytes of an incomplete request are kept."""
        delta = size - self.partial
        if not self.partial:
            self._account.begun += 1
            self._since = self._account.begun
        self.partial = size
        self._account.partials += delta
        self.change(debtor, delta)
        if not self.trusted:
            self._account.strangers += delta

    def trust(self) -> None:
        """The client is now authenticated."""
        if not self.trusted:
            self.trusted = True
            self._account.strangers -= self.partial

    def distrust(self) -> None:
        """The client is not authenticated yet; call this before it sends anything."""
        self.trusted = False

    def wrote(self, debtor: Debtor, size: int, counted: int) -> None:
        """`size` bytes went to the socket's buffer; `counted` of them are process memory.

        Above the hard limit the largest debtors are closed. Below the limit this reads no clock.
        """
        self._written = written = self._written + size
        account = self._account
        if not self.answers:
            account.debtors.add(debtor)
        self.answers += counted
        account.total += counted
        if written >= self._mark_at:
            self._mark(debtor)
        if account.total > account.limit:
            self._note_fresh(counted)
            account.relieve()

    def _note_fresh(self, counted: int) -> None:
        """Count an answer of this turn, see `due`."""
        now = self._account.now()
        if self._flushed != now:
            self._flushed = now
            self._fresh = 0
        self._fresh += counted

    def _mark(self, debtor: Debtor) -> None:
        """Record the end of the answers written since the last mark, and remove those already sent."""
        self._mark_at = self._written + MARK_BYTES
        marked = sum(counted for _, counted in self._marks)
        self._marks.append((self._written, self.answers - marked))
        self.measure(debtor)

    def measure(self, debtor: Debtor) -> None:
        """Remove the answers that the socket has sent."""
        marks, account, left = self._marks, self._account, self.answers
        if not marks and not left:
            return
        unsent = debtor.unsent_socket_bytes()
        self._taken = taken = self._written - unsent
        while marks and marks[0][0] <= taken:
            left -= marks.popleft()[1]
        if not marks:
            left = min(left, unsent)
        account.total -= self.answers - left
        self.answers = left
        if account.waiting:
            account.plan_next()
        if len(marks) > MARKS_MAX:  # all are unsent: use one mark for the later half
            later = [marks.pop() for _ in range(MARKS_MAX // 2)]
            marks.append((later[0][0], sum(counted for _, counted in later)))

    def due(self, now: float) -> int:
        """Bytes that closing the connection would free, without answers of this turn, which may still be
        sent. Those written while the account was below its limit count: they alone close nobody.
        """
        return max(0, self.total - self._fresh) if self._flushed == now else self.total

    def write_off(self, debtor: Debtor) -> None:
        """The connection was closed: clear its debt."""
        account = self._account
        if not self.trusted:
            account.strangers -= self.partial
        account.partials -= self.partial
        account.total -= self.total
        self.partial = self.requests = self.answers = 0
        self._marks.clear()
        account.forget(debtor)


class MemoryAccount:
    """All memory that a server keeps for clients. `frame_bytes_max` is the largest request it accepts.

    All methods belong to the server's loop.
    """

    def __init__(self, limit: int, stranger_limit: int, frame_bytes_max: int) -> None:
        self.limit = limit
        self.hard_limit = limit + limit // 4 + frame_bytes_max
        self.stranger_limit = max(stranger_limit, frame_bytes_max)
        self.total = 0
        self.charged = 0
        self.partials = 0
        self.strangers = 0
        self.begun = 0
        self.debtors: set[Debtor] = set()
        self._measured = 0.0
        self.reader: Debtor | None = None
        self.waiting: dict[Debtor, None] = {}
        """Connections that stopped in a large request, in order."""
        self._planned = False
        self._seen: dict[Debtor, tuple[tuple[int, int], float]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Account {self.total} of {self.limit} bytes, {len(self.debtors)} debtors>"

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use a loop; without one, slow debtors are not closed."""
        self._loop = loop

    def close(self) -> None:
        """Stop checking debtors."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def now(self) -> float:
        """The loop's time: the same for all of one turn with uvloop."""
        return 0.0 if self._loop is None else self._loop.time()

    @property
    def chargeable(self) -> int:
        """How many more bytes handlers may keep."""
        return self.limit // 2 - self.charged

    def charge(self, size: int) -> bool:
        """Charge `size` bytes that a handler keeps; a negative size releases them.

        Returns False without charging when handlers would keep more than half of the limit. Raises
        `InvariantError` if more is released than was charged.
        """
        if size > 0 and size > self.chargeable:
            return False
        if self.charged + size < 0:
            raise InvariantError(f"{-size} bytes are released, but handlers keep {self.charged}")
        self.charged += size
        self.total += size
        if size < 0 and self.waiting:
            self.plan_next()
        return True

    @property
    def full(self) -> bool:
        """Whether the limit is exceeded: large requests and answers are refused until it is not."""
        if self.total <= self.limit:
            return False
        self._measure()
        if self.total <= self.limit:
            return False
        if self._timer is None and self._loop is not None:
            self._timer = self._loop.call_later(LOOK_SECONDS, self._look)
        return True

    def brought(self, debtor: Debtor) -> None:
        """A connection received part of a request while memory is short: it may have to wait, or others are
        closed.
        """
        if self.strangers > self.stranger_limit:
            self._close_strangers()
        if not self.full:
            return
        self.relieve()
        if debtor.debt.partial < SMALL_DEBT:
            return
        reader = self.reader
        if reader is debtor:
            return
        is_free = reader is None or not reader.debt.partial
        if is_free and not self.waiting and self._has_room:
            self.reader = debtor
            return
        self.waiting[debtor] = None
        debtor.stop_for_room()
        if is_free:
            self.reader = None
            self.plan_next()

    def relieve(self) -> None:
        """Above the hard limit, close the largest debtors until the account is not full."""
        if self.total <= self.hard_limit:
            return
        self._measure()
        now = self.now()
        if self.charged + sum(one.debt.due(now) for one in self.debtors) > self.hard_limit:
            self._close_until(list(self.debtors), now)

    def completed(self, debtor: Debtor) -> None:
        """A large request is complete: the next one may continue."""
        if self.reader is debtor:
            self.reader = None
        if self.waiting:
            self.plan_next()

    def plan_next(self) -> None:
        """Memory was released: let the next large request continue, at the end of this turn of the loop."""
        if self._loop is None:
            self._let_next()
        elif not self._planned:
            self._planned = True
            self._loop.call_soon(self._let_next)

    def forget(self, debtor: Debtor) -> None:
        """The connection was closed."""
        self.debtors.discard(debtor)
        self._seen.pop(debtor, None)
        self.waiting.pop(debtor, None)
        self.completed(debtor)

    # Inside

    def _measure(self) -> None:
        now = self.now()
        if now - self._measured < FRESH_SECONDS and self.total <= self.hard_limit:
            return
        self._measured = now
        for debtor in list(self.debtors):
            debtor.debt.measure(debtor)
            if not debtor.debt.total:
                self.debtors.discard(debtor)

    @property
    def _has_room(self) -> bool:
        """Whether one more large request stays below the hard limit. Requests that are complete and wait for
        their handlers count, so that reading is not faster than handling.
        """
        spare = self.limit // 4
        return self.total <= self.limit + spare or self.total - self.partials <= spare

    def _let_next(self, *, late: bool = False) -> None:
        """Let one of the waiting connections continue to read; all of them while there is room. When it is
        `late`, one continues even without.
        """
        self._planned = False
        reader = self.reader
        if reader is None and not late and not self._has_room:
            return
        while self.waiting and (reader is None or self.total <= self.limit):
            reader = next(iter(self.waiting))
            del self.waiting[reader]
            self.reader = reader
            reader.go_on_with_room()

    def _close_strangers(self) -> None:
        """Close the unauthenticated connections with the oldest requests until the others fit."""
        strangers = [one for one in self.debtors if not one.debt.trusted and one.debt.partial]
        strangers.sort(key=lambda one: one.debt.since)
        enough = self.stranger_limit * 3 // 4
        for one in strangers[:-1]:
            if self.strangers <= enough:
                return
            self._close(
                one,
                f"{self.strangers} bytes of partial requests are buffered for unauthenticated connections, "
                f"and the limit is {self.stranger_limit} (unauthenticatedMemoryMax)",
            )

    def _close_until(self, debtors: list[Debtor], now: float) -> None:
        """Close the largest of `debtors` until the account is not full."""
        due = {one: one.debt.due(now) for one in debtors}
        for one in sorted(debtors, key=due.__getitem__, reverse=True):
            if self.total <= self.limit or not due[one]:
                return
            self._close(
                one,
                f"{self.total} bytes are buffered for all clients, {one.debt.total} of them for this one, "
                f"and the limit is {self.limit} (connectionMemoryMax)",
            )

    @staticmethod
    def _close(debtor: Debtor, why: str) -> None:
        debtor.close_for_debt(why)
        debtor.debt.write_off(debtor)

    def _look(self) -> None:
        """While the account is full: close debtors that make no progress; let others continue."""
        self._timer = None
        self.relieve()
        if not self.full:
            self._seen.clear()
            self._let_next()
            return
        now, still = self.now(), []
        for one in self.debtors:
            progress = one.debt.progress
            seen = self._seen.get(one)
            if seen is None or seen[0] != progress or one in self.waiting:
                self._seen[one] = progress, now
            elif now - seen[1] >= STALL_SECONDS:
                still.append(one)
        self._close_until(still, now)
        self._let_next(late=True)
