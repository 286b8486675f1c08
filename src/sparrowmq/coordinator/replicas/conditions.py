"""What is wrong with a group of brokers, and which messages another master would lack. Pure.

`seen` has the last answer of each broker by address, as `group_watch.seen` writes it: numbers and texts for
JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparrowmq.coordinator.replicas.decisions import MASTER, SERVING, ReplicaGroup

Seen = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Lack:
    """What a broker would lack as master, in bytes of the log; None: unknown.

    `acknowledged`: bytes of messages that were acknowledged to producers. `text` is the same in words.
    """

    bytes: int | None
    acknowledged: int | None
    text: str


def no_master(group: ReplicaGroup, seen: Seen) -> str:
    """Why no broker accepts messages, or an empty text."""
    if not group.epoch:
        masters = sorted(address for address, one in seen.items() if one["role"] == MASTER)
        what = (
            f"several brokers claim to be master: {', '.join(masters)}"
            if masters
            else "none of its brokers answers as master"
        )
        return f"{group.name} has no master yet: {what}"
    one = seen.get(group.master, {})
    if one.get("state") == SERVING and one.get("epoch") == group.epoch:
        return ""
    why = one.get("error") or one.get("trouble") or str(one.get("state", "it does not answer")).lower()
    text = f"{group.name} has no master: {group.master} in epoch {group.epoch}: {why}"
    ready = [address for address in group.in_sync if address != group.master and is_heard(seen, address)]
    if not ready:
        text += "; no other broker in sync answers, see: sparrow replicas list " + group.name
    return text


def one_copy(group: ReplicaGroup, seen: Seen) -> str:
    """Why only one broker has every acknowledged message, or an empty text."""
    if not group.epoch or len(group.in_sync) > 1:
        return ""
    others = []
    for address in sorted(group.members):
        if address in group.in_sync:
            continue
        one = seen.get(address, {})
        why = one.get("error") or one.get("trouble") or f"{behind(group, seen, address)} bytes behind"
        others.append(f"{address}: {why}")
    who = group.in_sync[0] if group.in_sync else "no broker"
    return f"only {who} of {group.name} has every message" + (f"; {'; '.join(others)}" if others else "")


def ahead(group: ReplicaGroup, seen: Seen) -> str:
    """A broker that got later orders from elsewhere, or an empty text."""
    for address, one in sorted(seen.items()):
        if group.epoch and (one.get("epoch", 0), one.get("number", 0)) > (group.epoch, group.number):
            return (
                f"{address} of {group.name} has orders of epoch {one['epoch']}, set {one['number']}, the "
                f"database ends at epoch {group.epoch}, set {group.number}: it was promoted by hand, or the "
                "database is an old copy. No master is elected; compare their messages, then release the "
                "group and manage it again"
            )
    return ""


def is_heard(seen: Seen, address: str) -> bool:
    """Whether a broker answered the last request."""
    one = seen.get(address)
    return one is not None and not one.get("error")


def behind(group: ReplicaGroup, seen: Seen, address: str) -> int | None:
    """How many bytes of the log a broker lacks compared to the master; None: unknown."""
    master, one = seen.get(group.master), seen.get(address)
    if not master or not one or "end" not in master or "end" not in one:
        return None
    return max(0, int(master["end"]) - int(one["end"]))


def lack(group: ReplicaGroup, seen: Seen, address: str) -> Lack:
    """What would be lost if this broker became master now."""
    master, one = seen.get(group.master), seen.get(address)
    if address == group.master:
        return Lack(0, 0, "it is the master")
    missing = behind(group, seen, address)
    if master is None or one is None or missing is None:
        return Lack(None, None, "what it lacks is unknown")
    safe_to = int(master["confirmed"]) if master.get("is_sync") else int(master["end"])
    at_risk = max(0, safe_to - int(one["end"]))
    if address in group.in_sync and master.get("is_sync"):
        return Lack(missing, 0, f"nothing acknowledged; {missing} bytes that not every broker had confirmed")
    parted = int(one["log_epoch"]) < int(master["log_epoch"])
    text = f"{missing} bytes, {at_risk} of them acknowledged, as of the master's last answer"
    return Lack(missing, at_risk, f"at least {text}: its log is of an earlier epoch" if parted else text)
