"""The in-sync set of a managed master: which replicas acknowledgements wait for, and what the master
proposes. Pure.

Only the coordinator changes the set; it saves the set in its database before it sends it. Every set that it
may have written must have all acknowledged messages. So a proposal counts from the moment it is made:
acknowledgements wait for the members of the set and for all replicas proposed since, until a set with a
higher number arrives.

Members are replicas' addresses; positions are bytes of the log, times seconds of any one clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class InSyncSet:
    """The set as one master knows it. `own` is its address; `patience` is how long a member may be behind."""

    def __init__(self, own: str, *, patience: float) -> None:
        self._own = own
        self._patience = patience
        self.members: frozenset[str] = frozenset((own,))
        """The set as last ordered."""
        self.number = 0
        self._added: frozenset[str] = frozenset()
        self._removed: frozenset[str] = frozenset()
        self._near: frozenset[str] = frozenset()
        self._up_to_date: dict[str, float] = {}
        self._end_before = 2**63 - 1
        self.waited_for: frozenset[str] = frozenset()
        """The other replicas that must have a message before it is acknowledged."""

    def ordered(self, members: Iterable[str], number: int, now: float) -> None:
        """The coordinator's set. Proposals made under an earlier number can no longer be accepted."""
        if number > self.number:
            self._added = self._removed = frozenset()
        self.number = number
        self.members = frozenset(members) | {self._own}
        for one in self.members:
            self._up_to_date.setdefault(one, now)
        self._settle()

    @property
    def wanted(self) -> tuple[str, ...]:
        """The set that this master proposes, itself first."""
        others = (self.members | self._added) - self._removed - {self._own}
        return (self._own, *sorted(others))

    def look(self, positions: Mapping[str, int], end: int, promised: int, now: float) -> None:
        """Decide about proposals.

        `positions` are those of the connected replicas, `end` is the end of the log, and `promised` the
        position up to which messages were acknowledged or read. A replica is proposed when it has all of
        these, and everything that the log had at the previous call. If it has only the latter,
        messages wait for it until the next call, so that it can catch up however many are sent. A member is
        given up when it has lacked what the log had at the previous call for longer than the patience, or was
        disconnected that long.
        """
        before, self._end_before = min(self._end_before, end), end
        self._near = frozenset()
        for address, position in positions.items():
            if position < before:
                continue
            self._up_to_date[address] = now
            if address in self.members:
                continue
            if position >= promised:
                self._added |= {address}
            else:
                self._near |= {address}
        for address in self.members - {self._own}:
            if now - self._up_to_date.get(address, now) > self._patience:
                self._removed |= {address}
            else:
                self._removed -= {address}
        for gone in [one for one in self._up_to_date if one not in positions and one not in self.members]:
            del self._up_to_date[gone]
        self._settle()

    def _settle(self) -> None:
        self.waited_for = (self.members | self._added | self._near) - {self._own}
