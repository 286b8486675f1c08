"""`sparrow group policy`: shows, changes and deletes the policy that brokers enforce for a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparrowmq.cli.base.common import AsJson, Namesrv, UsageError, print_json, print_table, say, with_admin
from sparrowmq.cli.base.times import when

if TYPE_CHECKING:
    from sparrowmq import GroupPolicies, GroupPolicy, PauseRule, aio


def policy(
    group: Annotated[str, typer.Argument(help="Name of the group.")],
    maximum: Annotated[int | None, typer.Option(help="Maximum of members that may consume; 0: all.")] = None,
    member: Annotated[
        list[str] | None, typer.Option(help="Client id that may consume, in order of preference; repeatable.")
    ] = None,
    everybody: Annotated[bool, typer.Option("--everybody", help="All members may consume.")] = False,
    pause: Annotated[
        list[str] | None,
        typer.Option(help="Stop delivery of TOPIC, TOPIC/QUEUE or `all`; repeatable."),
    ] = None,
    minutes: Annotated[
        int, typer.Option(min=0, max=525_600, help="Duration of the pauses; 0: until resumed.")
    ] = 0,
    reason: Annotated[str, typer.Option(help="Reason, shown with the policy.")] = "",
    resume: Annotated[
        list[str] | None, typer.Option(help="End a pause of TOPIC, TOPIC/QUEUE or `all`; repeatable.")
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the policy of the group.")] = False,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Show the policy that brokers enforce for a group; with options, change it.

    It also applies to members that divide their queues themselves, such as Java's: those that may not consume
    get no queues, and pulls of what is paused wait. Only a coordinator grants fenced queues.
    """
    if everybody and member:
        raise UsageError("--everybody and --member exclude each other; give one of them")
    change = PolicyChange(
        maximum=maximum,
        members=member or None,
        everybody=everybody,
        pauses=[_rule(text, minutes, reason) for text in pause or ()],
        resumed=frozenset(_where(_rule(text, 0, "")) for text in resume or ()),
    )

    async def work(admin: aio.Admin) -> tuple[dict[str, GroupPolicies], list[str]]:
        if delete:
            await admin.policies.delete(group)
        elif change.is_any:
            await _apply(admin, group, change)
        found = await admin.policies.list(group)
        masters = [name for name, one in (await admin.brokers.cluster_info()).brokers.items() if one.master]
        return found, sorted(set(masters) - found.keys())

    tables, lease_only = with_admin(namesrv, work)
    nothing = "the policy of group {} is deleted" if delete else "no broker has a policy for group {}"
    _show(group, tables, lease_only, nothing.format(group), as_json)


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """The requested changes of a policy; other values stay."""

    maximum: int | None
    members: list[str] | None
    everybody: bool
    pauses: Sequence[PauseRule]
    resumed: frozenset[tuple[str, int]]
    """Topic and queue of the pauses to end."""

    @property
    def is_any(self) -> bool:
        """Whether any change was requested."""
        given = (self.members, self.everybody, self.pauses, self.resumed)
        return self.maximum is not None or any(given)

    def of(self, found: GroupPolicy) -> GroupPolicy:
        """The next revision of a policy. Raises `UsageError` for resuming what is not paused."""
        import msgspec

        missing = self.resumed - set(map(_where, found.pauses))
        if missing:
            place = _place(*min(missing))
            raise UsageError(f"{place} is not paused for group {found.group}; nothing was changed")
        replaced = self.resumed.union(map(_where, self.pauses))
        return msgspec.structs.replace(
            found,
            revision=found.revision + 1,
            members=None if self.everybody else self.members or found.members,
            maximum=found.maximum if self.maximum is None else self.maximum,
            pauses=[*(rule for rule in found.pauses if _where(rule) not in replaced), *self.pauses],
        )


async def _apply(admin: aio.Admin, group: str, change: PolicyChange) -> None:
    found = await _newest(admin, group)
    wanted = change.of(found)
    if found.epoch:
        raise UsageError(
            f"group {group!r} is managed: a coordinator sets its policies. Change the maximum with "
            f"`sparrow setting set {group} maximum N`, pause with `sparrow group pause {group}`"
        )
    await admin.policies.set(wanted)


def _where(rule: PauseRule) -> tuple[str, int]:
    return rule.topic, rule.queue_id


async def _newest(admin: aio.Admin, group: str) -> GroupPolicy:
    """The policy to start from; one with an epoch belongs to a coordinator."""
    from sparrowmq import GroupPolicy

    found = [one for table in (await admin.policies.list(group)).values() for one in table.policies]
    return max(found, key=lambda one: (one.epoch, one.revision), default=GroupPolicy(group=group, revision=0))


def _rule(text: str, minutes: int, reason: str) -> PauseRule:
    import time

    from sparrowmq import PauseRule

    until = (time.time_ns() // 1_000_000 + minutes * 60_000) if minutes else 0
    if text == "all":
        return PauseRule(until=until, reason=reason)
    topic, slash, queue = text.rpartition("/")
    if slash and queue.isdecimal() and topic:
        return PauseRule(topic, int(queue), until, reason)
    if slash or not text:
        raise UsageError(f"{text!r} cannot be paused; write TOPIC, TOPIC/QUEUE (Orders/3) or all")
    return PauseRule(text, until=until, reason=reason)


def _place(topic: str, queue_id: int) -> str:
    if not topic:
        return "all"
    return topic if queue_id < 0 else f"{topic}/{queue_id}"


def _value(broker: str, found: GroupPolicy) -> dict[str, Any]:
    return {
        "broker": broker,
        "group": found.group,
        "epoch": found.epoch,
        "revision": found.revision,
        "members": found.members,
        "maximum": found.maximum,
        "queues": [
            {
                "topic": one.topic,
                "broker": one.broker_name,
                "queue": one.queue_id,
                "owner": one.owner or None,
                "generation": one.generation,
                "fenced": one.fenced,
            }
            for one in found.queues
        ],
        "pauses": [
            {"place": _place(one.topic, one.queue_id), "until": one.until or None, "reason": one.reason}
            for one in found.pauses
        ],
    }


def _show(
    group: str, tables: dict[str, GroupPolicies], lease_only: list[str], nothing: str, as_json: bool
) -> None:
    found = [_value(name, one) for name, table in sorted(tables.items()) for one in table.policies]
    if as_json:
        for one in found:
            print_json(one)
        for name in lease_only:
            print_json({"broker": name, "group": group, "lease_only": True})
        return
    for name in lease_only:
        say(f"{name}: not a SparrowMQ broker, enforces nothing; there only leases protect a managed group")
    if not found:
        say(nothing)
        return
    for one in found:
        members = "everybody" if one["members"] is None else ", ".join(one["members"]) or "nobody"
        most = f", {one['maximum']} at once" if one["maximum"] else ""
        say(f"{one['broker']}: revision {one['epoch']}.{one['revision']}; {members}{most}")
        rows = [(pause["place"], _until(pause["until"]), pause["reason"] or "-") for pause in one["pauses"]]
        if rows:
            print_table(("paused", "until", "why"), rows)
        queues = [
            (*tuple(queue.values())[:3], queue["owner"] or "-", queue["generation"], _fence(queue["fenced"]))
            for queue in one["queues"]
        ]
        if queues:
            columns = ("topic", "broker", "queue", "owner", "generation", "fence")
            print_table(columns, queues, right=("queue", "generation"))


def _fence(fenced: bool) -> str:
    return "fenced" if fenced else "not fenced"


def _until(moment: int | None) -> str:
    return "resumed" if moment is None else when(moment)
