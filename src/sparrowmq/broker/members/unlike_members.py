"""Notices that members of one group subscribe differently, which loses messages or leaves them unread.

RocketMQ keeps one set of subscriptions for a group. If its members ask for different topics or tags, a member
gets queues of topics that it does not read, and messages that another one asked for are filtered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.core.names import RETRY_PREFIX
from sparrowmq.core.subscription import SubscriptionData

PAIRS_MAX: Final = 8
"""Pairs of different subscriptions that are reported for one group within `AGAIN_SECONDS`."""
AGAIN_SECONDS: Final = 3600.0
"""What still holds is reported again after this time."""
TEXT_CHARS: Final = 200
"""Characters of one member's subscriptions in a report."""


def asked_text(wanted: Iterable[SubscriptionData]) -> str:
    """What a member asks for, without retry topics. Pure."""
    asked = sorted(
        f"{one.topic} {' || '.join(sorted(one.tags)) or one.expression}"
        for one in wanted
        if not one.topic.startswith(RETRY_PREFIX)
    )
    return ", ".join(asked) or "nothing"


@dataclass(slots=True)
class _Last:
    """The last member that sent subscriptions, and the pairs reported since the monotonic time `since`."""

    client_id: str
    asked: int
    text: str
    since: float
    told: set[frozenset[int]] = field(default_factory=set)


class UnlikeMembers:
    """Compares each member of a group with the one whose heartbeat came before."""

    def __init__(self) -> None:
        self._groups: dict[str, _Last] = {}

    def seen(
        self,
        group: str,
        client_id: str,
        wanted: Iterable[SubscriptionData],
        members: Collection[str],
        seconds: float,
    ) -> str:
        """What to report about a heartbeat with subscriptions at `seconds`, monotonic; empty if nothing, or
        if it was reported within `AGAIN_SECONDS`. `members` are the client ids of the group.
        """
        whole = asked_text(wanted)
        text = whole if len(whole) <= TEXT_CHARS else whole[:TEXT_CHARS] + "…"
        now, last = _Last(client_id, hash(whole), text, seconds), self._groups.get(group)
        self._groups[group] = now
        if last is None:
            return ""
        if seconds - last.since < AGAIN_SECONDS:
            now.told, now.since = last.told, last.since
        pair = frozenset((last.asked, now.asked))
        if len(pair) == 1 or last.client_id == client_id or last.client_id not in members:
            return ""
        if pair in now.told or len(now.told) >= PAIRS_MAX:
            return ""
        now.told.add(pair)
        return (
            f"members of group {group} subscribe differently: {last.client_id} asks for {last.text}; "
            f"{client_id} asks for {now.text}; some of these messages are lost or stay unread: give all "
            f"members of a group the same subscriptions"
        )

    def forget(self, group: str) -> None:
        """The group has no members any more."""
        self._groups.pop(group, None)
