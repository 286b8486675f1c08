"""Which members apply the dynamic settings of a group: compares their reports with the settings. Read only.

The leader saves what members reported (`managed_group.seen`), and the table has what is set. So every process
can compare both, whichever process leads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, func, select

from sparrowmq.coordinator.database.tables import member_seen
from sparrowmq.coordinator.groups import dynamic_settings
from sparrowmq.coordinator.groups import table as managed_groups
from sparrowmq.coordinator.groups.table import MemberView
from sparrowmq.core.dynamic_settings import DYNAMIC_SETTINGS, Obeyed, Unable, fingerprint

SHOWN_MAX: Final = 20
"""Maximum number of members listed by name; the others are counted."""


@dataclass(frozen=True, slots=True)
class Followers:
    """The members of a managed group: their number, how many apply the current settings, the first of those
    that do not yet, and for each setting the first of those that cannot apply it, with the reason.
    """

    members: int = 0
    newest: int = 0
    older: tuple[str, ...] = ()
    unable: Mapping[str, tuple[tuple[str, str], ...]] | None = None


def number(connection: Connection, group: str) -> int:
    """The revision that members of a group should apply now."""
    return fingerprint(row.setting for row in dynamic_settings.read(connection, group))


def why_unable(word: str) -> str:
    """The description of a member's reason code; a newer release may have other codes."""
    return Unable(word).text if word in set(Unable) else word


def followers(connection: Connection, group: str) -> Followers:
    """Which members apply the dynamic settings of a group."""
    return followers_of(managed_groups.member_views(connection, group), number(connection, group))


def followers_of(views: Iterable[MemberView], wanted: int) -> Followers:
    """The same from the members' reports."""
    found = list(views)
    older = [one.member for one in found if one.applied_revision != wanted]
    unable: dict[str, list[tuple[str, str]]] = {}
    for one in found:
        for setting, word in one.unable.items():
            unable.setdefault(setting, []).append((one.member, why_unable(word)))
    named = {setting: tuple(members[:SHOWN_MAX]) for setting, members in sorted(unable.items())}
    return Followers(len(found), len(found) - len(older), tuple(older[:SHOWN_MAX]), named)


def note(connection: Connection, group: str, name: str) -> str:
    """A warning for the user who sets a dynamic setting if no member applies it; else empty."""
    managed = len(managed_groups.member_views(connection, group))
    if managed:
        return ""
    mine = select(func.count()).select_from(member_seen).where(member_seen.c.group_name == group)
    others = int(connection.execute(mine).scalar_one())
    if DYNAMIC_SETTINGS[name].obeyed is Obeyed.MEMBERS and others:
        return f"group {group} has no managed members now; its unmanaged members do not apply {name}"
    if others:
        return ""
    return f"group {group} has no known members now; {name} applies to members that join later"
