"""Requests of several calls, put together: a broker is asked once for all that come in one turn of the loop.

A request to a broker costs several times as much as one more message in a request. Under load many
calls arrive with one read of a socket. Their requests to a broker leave together in the loop's next turn;
nothing waits longer than that.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Hashable
from functools import partial
from typing import Final, Generic, TypeVar

from sparrowmq.client.base.tasks import TaskGroup
from sparrowmq.core.errors import ConnectionLostError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.proxy.cluster.brokers import Brokers

ENTRIES_MAX: Final = 64
"""Calls that share one request."""
BATCH_BYTES_MAX: Final = 128 * 1024
"""A batch of more bytes than this takes no further entry."""
WAITING_BYTES_MAX: Final = 8 * 1024 * 1024
"""What batches may keep until brokers have answered; calls beyond that ask alone."""

E = TypeVar("E")


class SharedRequest(Generic[E]):
    """Entries that share a request; `key` is what they must have in common."""

    __slots__ = ("entries", "key", "size")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.entries: list[E] = []
        self.size = 0


class SharedRequests(ABC, Generic[E]):
    """Requests of one kind. A subclass makes them and tells each entry its outcome."""

    def __init__(self, brokers: Brokers, tasks: TaskGroup) -> None:
        """`tasks` runs requests that cannot be sent at once, because the broker is not connected."""
        self._brokers = brokers
        self._tasks = tasks
        self._open: dict[Hashable, SharedRequest[E]] = {}
        self._waiting = 0

    @abstractmethod
    def _request(self, batch: SharedRequest[E]) -> tuple[str, Command]:
        """The address of the broker, and what it is asked. Raises `SparrowError`."""

    @abstractmethod
    def _tell(self, batch: SharedRequest[E], outcome: Command | Exception) -> None:
        """Tell each entry what the broker answered, or why there is no answer."""

    @abstractmethod
    def _size(self, entry: E) -> int:
        """How many bytes an entry keeps."""

    def _fits(self, batch: SharedRequest[E], entry: E) -> bool:
        """Whether an entry may join a batch that has room."""
        return True

    @property
    def waiting(self) -> int:
        """Bytes that are kept for requests without an answer."""
        return self._waiting

    def _put(self, key: Hashable, entry: E) -> bool:
        """Add an entry to a batch that leaves in the next turn; False when too much waits already."""
        size = self._size(entry)
        if self._waiting + size > WAITING_BYTES_MAX:
            return False
        batch = self._open.get(key)
        if (
            batch is None
            or len(batch.entries) >= ENTRIES_MAX
            or batch.size + size > BATCH_BYTES_MAX
            or not self._fits(batch, entry)
        ):
            batch = self._open[key] = SharedRequest(key)
            asyncio.get_running_loop().call_soon(self._leave, batch)
        batch.entries.append(entry)
        batch.size += size
        self._waiting += size
        return True

    def _alone(self, batch: SharedRequest[E]) -> None:
        """Ask again for each entry of an answered batch."""
        for entry in batch.entries:
            one = SharedRequest[E](batch.key)
            one.entries.append(entry)
            one.size = self._size(entry)
            self._waiting += one.size
            self._ask(one)

    def _leave(self, batch: SharedRequest[E]) -> None:
        if self._open.get(batch.key) is batch:
            del self._open[batch.key]
        self._ask(batch)

    def _ask(self, batch: SharedRequest[E]) -> None:
        try:
            address, asked = self._request(batch)
            answer = self._brokers.begin(address, asked)
        except Exception as error:
            self._end(batch, error)
            return
        if answer is None:
            self._tasks.start(self._ask_later(batch, address, asked), "batch")
        else:
            answer.add_done_callback(partial(self._answered, batch, address, asked))

    def _answered(
        self, batch: SharedRequest[E], address: str, asked: Command, done: asyncio.Future[Command]
    ) -> None:
        if done.cancelled():
            self._end(batch, _stopped(address))
        elif (error := done.exception()) is not None:
            self._end(batch, error if isinstance(error, Exception) else _stopped(address))
        elif done.result().code == ResponseCode.GO_AWAY:  # the broker has not done it
            self._tasks.start(self._ask_later(batch, address, asked), "batch")
        else:
            self._end(batch, done.result())

    async def _ask_later(self, batch: SharedRequest[E], address: str, asked: Command) -> None:
        outcome: Command | Exception = _stopped(address)
        try:
            outcome = await self._brokers.call(address, asked)
        except Exception as error:
            outcome = error
        finally:
            self._end(batch, outcome)

    def _end(self, batch: SharedRequest[E], outcome: Command | Exception) -> None:
        self._waiting -= batch.size
        self._tell(batch, outcome)


def _stopped(address: str) -> ConnectionLostError:
    return ConnectionLostError(
        "the proxy stops; the request may or may not have been executed", address=address
    )
