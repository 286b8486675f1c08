"""`sparrow group show|members|plans`: what a coordinator knows about the groups that it plans."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sparrowmq.cli.base.common import AsJson, print_json, print_table, say
from sparrowmq.cli.base.remote import Url, call, part
from sparrowmq.cli.base.times import when

Group = Annotated[str, typer.Argument(help="Name of the group.")]


def show(
    group: Annotated[
        str | None, typer.Argument(help="Name of the group. Default: all managed groups.")
    ] = None,
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show which member has which queue of a managed group, since when and why; or list all such groups."""
    if group is None:
        _show_all(call(coordinator, "GET", "/groups"), as_json)
        return
    found = call(coordinator, "GET", f"/groups/{part(group)}")
    if as_json:
        print_json(found)
        return
    state = "in force" if found["settled"] else "on its way"
    say(f"generation {found['generation']} under epoch {found['epoch']}, {state}; {found['members']} members")
    say(
        f"queues given up: {found['released']} released, {found['lease_over']} after a lease expired, "
        f"{found['drained_too_long']} not drained in time; {found['late']} late results refused"
    )
    for one in found["pauses"]:
        until = f" until {when(one['until_ms'])}" if one["until_ms"] else ""
        why = f": {one['reason']}" if one["reason"] else ""
        place = "all of it" if one["place"] == "*" else one["place"]
        say(f"paused by {one['who']}{until}: {place}{why}")
    if found["problem"]:
        say(f"problem: {found['problem']}")
    rows = [
        (one["topic"], one["broker"], one["queue"], one["owner"] or "-", one["generation"], _phase(one),
         when(one["since_ms"]), one["why"] or "-")
        for one in found["queues"]
    ]  # fmt: skip
    columns = ("topic", "broker", "queue", "owner", "generation", "phase", "since", "why")
    print_table(columns, rows, right=("queue", "generation"))


def members(group: Group, coordinator: Url = None, as_json: AsJson = False) -> None:
    """List the members of a managed group, oldest first. Two with the same client id are two members."""
    found = call(coordinator, "GET", f"/groups/{part(group)}/members")
    if as_json:
        print_json(*found)
        return
    rows = [
        (one["member"], one["address"], one["version"], one["standing"] or "-", one["queues"], one["late"],
         "-" if one["knows"] is None else one["knows"], _settings(one), when(one["joined_ms"]),
         when(one["heard_ms"]), when(one["lease_ends_ms"]), one["reason"] or "-")
        for one in found
    ]  # fmt: skip
    columns = ("member", "address", "version", "standing", "queues", "late", "knows", "settings", "joined",
               "heard", "lease ends", "why")  # fmt: skip
    print_table(columns, rows, right=("queues", "late", "knows"))


def plans(
    group: Group,
    count: Annotated[int, typer.Option(min=1, max=500, help="Maximum number.")] = 20,
    before: Annotated[int | None, typer.Option(help="Only plans before this id.")] = None,
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the plans of a managed group with their reasons, newest first."""
    query = {"count": count, "before_id": before}
    found = call(coordinator, "GET", f"/groups/{part(group)}/plans", query=query)
    if as_json:
        print_json(*found)
        return
    rows = [
        (one["id"], one["generation"], one["epoch"], when(one["made_ms"]), when(one["in_force_ms"]),
         one["members"], f"{one['moved']} of {one['queues']}", one["cause"])
        for one in found
    ]  # fmt: skip
    columns = ("id", "generation", "epoch", "made", "in force", "members", "moved", "why")
    print_table(columns, rows, right=("id", "generation", "epoch", "members", "moved"))


def _settings(member: dict[str, Any]) -> str:
    """Whether a member applies the newest dynamic settings, and those it cannot apply."""
    unable = ", ".join(member["unable"])
    return (member["settings"] or "-") + (f", not {unable}" if unable else "")


def _show_all(groups: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(*groups)
        return
    rows = [
        (one["group"], one["members"], one["queue_count"], one["generation"],
         "in force" if one["settled"] else "on its way", one["late"], one["problem"] or "-")
        for one in groups
    ]  # fmt: skip
    columns = ("group", "members", "queues", "generation", "plan", "late", "in the way")
    print_table(columns, rows, right=("members", "queues", "generation", "late"))


def _phase(queue: dict[str, Any]) -> str:
    return str(queue["phase"]) + (f" for {queue['target']}" if queue["target"] else "")
