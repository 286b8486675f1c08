"""Who goes by the live knobs of a group: what members said of it, beside what is set. Read only.

The leader writes down what members said (`managed_group.seen`); what is set is the table's, so whoever reads
both knows who is behind, whichever process leads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, func, select

from sparrowmq.coordinator.database.tables import member_seen
from sparrowmq.coordinator.groups import knobs
from sparrowmq.coordinator.groups import table as managed_groups
from sparrowmq.coordinator.groups.table import MemberView
from sparrowmq.core.knobs import KNOBS, Obeyed, Unable, fingerprint

SHOWN_MAX: Final = 20
"""Members that are named; the others are counted."""


@dataclass(frozen=True, slots=True)
class Followers:
    """The members of a managed group: how many there are, how many go by what is set now, the first of those
    who do not yet, and by knob the first of those who cannot go by it, with why.
    """

    members: int = 0
    newest: int = 0
    older: tuple[str, ...] = ()
    unable: Mapping[str, tuple[tuple[str, str], ...]] | None = None


def number(connection: Connection, group: str) -> int:
    """The number of what members of a group are to go by now."""
    return fingerprint(row.setting for row in knobs.read(connection, group))


def why_unable(word: str) -> str:
    """The words for people of a member's word, which a newer release may have others of."""
    return Unable(word).text if word in set(Unable) else word


def followers(connection: Connection, group: str) -> Followers:
    """Who goes by the knobs of a group."""
    return followers_of(managed_groups.member_views(connection, group), number(connection, group))


def followers_of(views: Iterable[MemberView], wanted: int) -> Followers:
    """The same from what members said."""
    found = list(views)
    older = [one.member for one in found if one.knobs != wanted]
    unable: dict[str, list[tuple[str, str]]] = {}
    for one in found:
        for knob, word in one.unable.items():
            unable.setdefault(knob, []).append((one.member, why_unable(word)))
    named = {knob: tuple(members[:SHOWN_MAX]) for knob, members in sorted(unable.items())}
    return Followers(len(found), len(found) - len(older), tuple(older[:SHOWN_MAX]), named)


def note(connection: Connection, group: str, name: str) -> str:
    """What somebody who sets a knob should know: that nobody is there whom it concerns; else empty."""
    managed = len(managed_groups.member_views(connection, group))
    if managed:
        return ""
    mine = select(func.count()).select_from(member_seen).where(member_seen.c.group_name == group)
    others = int(connection.execute(mine).scalar_one())
    if KNOBS[name].obeyed is Obeyed.MEMBERS and others:
        return f"group {group} has no managed members now, only others, which do not obey {name}"
    if others:
        return ""
    return f"nobody is known to be in group {group} now: {name} counts for those who come"
