"""`sparrow service|alarm|audit`: what a coordinator watches, what it found, and who changed what."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final

import typer

from sparrowmq.cli.base.common import AsJson, UsageError, print_json, print_table, say, tell
from sparrowmq.cli.base.remote import Url, Why, call, part
from sparrowmq.cli.base.times import span, when

NUMBER_CHARS_MAX: Final = 19
ENTRIES_MAX: Final = 500
"""Entries of the audit log in one answer."""
service_app = typer.Typer(
    help="The coordinator's services: list, show, runs, findings, set, pause, run, hand-over.",
    no_args_is_help=True,
)
alarm_app = typer.Typer(
    help="Alarms: list, acknowledge, silence, wake; notices; limits of groups.", no_args_is_help=True
)

Service = Annotated[str, typer.Argument(help="Name of the service.")]
Number = Annotated[int, typer.Argument(metavar="ID", help="Id of the alarm.")]
Group = Annotated[str, typer.Argument(help="Consumer group.")]
Topic = Annotated[str, typer.Option(help="Only for this topic; *: all topics of the group.")]


@service_app.command("list")
def list_services(coordinator: Url = None, as_json: AsJson = False) -> None:
    """List services with leader, last and next run."""
    services = call(coordinator, "GET", "/services")
    if as_json:
        print_json(*services)
        return
    print_table(
        ("service", "leader", "epoch", "every", "last run", "outcome", "next run"), map(_row, services)
    )


@service_app.command("show")
def show_service(name: Service, coordinator: Url = None, as_json: AsJson = False) -> None:
    """Show a service and its options."""
    found = call(coordinator, "GET", f"/services/{part(name)}")
    if as_json:
        print_json(found)
        return
    last = found["last_run"]
    for label, value in (
        ("what", found["title"]),
        ("leader", found["leader"] or "nobody"),
        ("epoch", found["epoch"]),
        ("interval", f"{span(found['interval_ms'])} (at least {span(found['interval_min_ms'])})"),
        ("paused", (found["pause_reason"] or "yes") if found["paused"] else "no"),
        ("next run", when(found["next_run_ms"])),
        ("last run", f"{when(last['ended_at'])}: {_outcome(last)}" if last else "–"),
    ):
        say(f"{label + ':':10}{value!s}")
    rows = [
        (one["name"], one["value"], f"{one['low']} to {one['high']}", one["help"]) for one in found["options"]
    ]
    if rows:
        say()
        print_table(("option", "value", "range", "meaning"), rows, right=("value",))


@service_app.command("runs")
def service_runs(
    name: Service,
    count: Annotated[int, typer.Option(min=1, max=200, help="Maximum number.")] = 20,
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the runs of a service, newest first."""
    runs = call(coordinator, "GET", f"/services/{part(name)}/runs", query={"count": count})
    if as_json:
        print_json(*runs)
        return
    rows = [
        (when(run["started_at"]), run["ended_at"] - run["started_at"], run["epoch"], _outcome(run))
        for run in runs
    ]
    print_table(("started", "ms", "epoch", "outcome"), rows, right=("ms", "epoch"))


@service_app.command("set")
def set_service(
    name: Service,
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=NUMBER]...", help="Options to set.")
    ] = None,
    interval: Annotated[float | None, typer.Option(help="Seconds between runs.")] = None,
    reason: Why = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Change a service's interval or options; takes effect within two seconds.

    For example: `sparrow service set lag-alarm messages=5000 --interval 30`
    """
    body: dict[str, Any] = {"reason": reason, "options": dict(map(_pair, options or ()))}
    if interval is not None:
        if not math.isfinite(interval):
            raise UsageError(f"--interval {interval} is not a number of seconds")
        body["interval_ms"] = round(interval * 1000)
    if interval is None and not options:
        raise UsageError(
            "nothing to set: give --interval or NAME=NUMBER; sparrow service show names the options"
        )
    tell(call(coordinator, "PATCH", f"/services/{part(name)}", body), f"{name} set", as_json)


@service_app.command("pause")
def pause(name: Service, reason: Why = "", coordinator: Url = None, as_json: AsJson = False) -> None:
    """Pause a service until it is resumed."""
    tell(_do(coordinator, name, "pause", reason), f"{name} paused", as_json)


@service_app.command("resume")
def resume(name: Service, reason: Why = "", coordinator: Url = None, as_json: AsJson = False) -> None:
    """Resume a paused service."""
    tell(_do(coordinator, name, "resume", reason), f"{name} resumed", as_json)


@service_app.command("run")
def run_now(name: Service, reason: Why = "", coordinator: Url = None, as_json: AsJson = False) -> None:
    """Run a service now, even if it is paused."""
    tell(_do(coordinator, name, "run", reason), f"{name} will run", as_json)


@service_app.command("hand-over")
def hand_over(name: Service, reason: Why = "", coordinator: Url = None, as_json: AsJson = False) -> None:
    """Take a service from its leader. Another coordinator takes over, or the same one after one lease."""
    tell(_do(coordinator, name, "hand-over", reason), f"{name} handed over", as_json)


@alarm_app.command("list")
def list_alarms(
    state: Annotated[
        list[str] | None,
        typer.Option(help="pending, firing, acknowledged, silenced or resolved; default: all but resolved."),
    ] = None,
    rule: Annotated[str, typer.Option(help="Only of this rule.")] = "",
    group: Annotated[str, typer.Option(help="Only of this group.")] = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """List alarms, the latest change first."""
    alarms = call(coordinator, "GET", "/alarms", query={"state": state, "rule": rule, "group": group})
    if as_json:
        print_json(*alarms)
        return
    rows = [(one["id"], one["state"], one["rule"], when(one["since_ms"]), one["text"]) for one in alarms]
    print_table(("id", "state", "rule", "since", "what"), rows, right=("id",))


@alarm_app.command("acknowledge")
def acknowledge(number: Number, reason: Why = "", coordinator: Url = None, as_json: AsJson = False) -> None:
    """Acknowledge an alarm: no more reminders."""
    answer = call(coordinator, "POST", f"/alarms/{number}/acknowledge", {"reason": reason})
    tell(answer, f"alarm {number} acknowledged", as_json)


@alarm_app.command("silence")
def silence(
    number: Number,
    minutes: Annotated[int, typer.Option(help="Duration.")] = 60,
    reason: Why = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Silence an alarm for some minutes; then it fires again if its cause persists.

    For example: `sparrow alarm silence 12 --minutes 90 --reason 'known, see ticket 7'`
    """
    body = {"minutes": minutes, "reason": reason}
    answer = call(coordinator, "POST", f"/alarms/{number}/silence", body)
    tell(answer, f"alarm {number} silenced for {minutes} min", as_json)


@alarm_app.command("wake")
def wake(number: Number, reason: Why = "", coordinator: Url = None, as_json: AsJson = False) -> None:
    """End a silence early."""
    answer = call(coordinator, "POST", f"/alarms/{number}/wake", {"reason": reason})
    tell(answer, f"alarm {number} is no longer silenced", as_json)


@alarm_app.command("notices")
def notices(
    failed: Annotated[
        bool, typer.Option("--failed", help="Only notices that a receiver did not accept, with the reason.")
    ] = False,
    count: Annotated[int, typer.Option(min=1, max=500, help="Maximum number.")] = 50,
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the notices of alarms and their receivers, newest first."""
    query = {"failed": "true" if failed else None, "count": count}
    found = call(coordinator, "GET", "/notices", query=query)
    if as_json:
        print_json(*found)
        return
    rows = [
        (
            one["id"],
            when(one["created_at"]),
            f"{one['kind']} of {one['alarm']}",
            " ".join(filter(None, (one["channel"], one["target"]))),
            one["attempts"],
            _sending(one),
        )
        for one in found
    ]
    print_table(("id", "since", "notice", "to", "tries", "outcome"), rows, right=("id", "tries"))


@alarm_app.command("limits")
def limits(coordinator: Url = None, as_json: AsJson = False) -> None:
    """List the limits of groups."""
    found = call(coordinator, "GET", "/limits")
    if as_json:
        print_json(*found)
        return
    rows = [
        (
            one["group"],
            one["topic"],
            one["messages"],
            one["age_ms"] // 1000,
            "yes" if one["enabled"] else "no",
        )
        for one in found
    ]
    print_table(("group", "topic", "messages", "age (s)", "alarms"), rows, right=("messages", "age (s)"))


@alarm_app.command("limit")
def limit(
    group: Group,
    messages: Annotated[int, typer.Option(help="Unread messages; 0: no limit.")] = 0,
    age: Annotated[
        int, typer.Option(help="Maximum age of the oldest unread message, in seconds; 0: no limit.")
    ] = 0,
    topic: Topic = "*",
    alarms: Annotated[bool, typer.Option("--alarms/--no-alarms", help="Whether to raise alarms.")] = True,
    reason: Why = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Set the maximum lag of a group before an alarm is raised; without a value there is no limit.

    For example: `sparrow alarm limit billing --messages 10000 --age 600`
    """
    if alarms and not messages and not age:
        raise UsageError(
            "nothing to limit: give --messages, --age, both, or --no-alarms; sparrow alarm unlimit "
            "restores the default"
        )
    body = {"topic": topic, "messages": messages, "age_ms": age * 1000, "enabled": alarms, "reason": reason}
    tell(call(coordinator, "PUT", f"/limits/{part(group)}", body), f"limit of {group} set", as_json)


@alarm_app.command("unlimit")
def unlimit(
    group: Group, topic: Topic = "*", reason: Why = "", coordinator: Url = None, as_json: AsJson = False
) -> None:
    """Remove a group's limit: the service's default applies again."""
    query = {"topic": topic, "reason": reason}
    answer = call(coordinator, "DELETE", f"/limits/{part(group)}", query=query)
    tell(answer, f"limit of {group} deleted", as_json)


def audit(
    actor: Annotated[str, typer.Option(help="Only by this user or service.")] = "",
    action: Annotated[str, typer.Option(help="Only of this kind of change.")] = "",
    kind: Annotated[str, typer.Option(help="Only of objects of this kind.")] = "",
    object_: Annotated[str, typer.Option("--object", help="Only of this object.")] = "",
    before: Annotated[int | None, typer.Option(help="Only entries before this id.")] = None,
    count: Annotated[int, typer.Option(min=1, max=500, help="Maximum number.")] = 50,
    every: Annotated[bool, typer.Option("--all", help="All entries that match; needs --json.")] = False,
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """List changes at the coordinator and their authors, newest first.

    For example: `sparrow audit --kind group --object billing --count 10`
    """
    query = {
        "actor": actor,
        "action": action,
        "kind": kind,
        "object": object_,
        "before_id": before,
        "count": count,
    }
    if every:
        if not as_json:
            raise UsageError("--all prints each entry as a line of JSON; add --json")
        _print_all(coordinator, query)
        return
    entries = call(coordinator, "GET", "/audit", query=query)
    if as_json:
        print_json(*entries)
        return
    rows = [
        (one["id"], when(one["at"]), one["actor"], one["action"], f"{one['kind']} {one['object']}",
         _change(one), one["reason"])
        for one in entries
    ]  # fmt: skip
    print_table(("id", "at", "who", "action", "object", "change", "reason"), rows, right=("id",))


def _print_all(coordinator: str | None, query: dict[str, Any]) -> None:
    """Print all entries, page by page."""
    while True:
        entries = call(coordinator, "GET", "/audit", query=query | {"count": ENTRIES_MAX})
        for entry in entries:
            print_json(entry)
        if len(entries) < ENTRIES_MAX:
            return
        query["before_id"] = entries[-1]["id"]


def _do(url: str | None, name: str, what: str, reason: str) -> Any:
    return call(url, "POST", f"/services/{part(name)}/{what}", {"reason": reason})


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    last = one["last_run"]
    return (
        one["name"],
        one["leader"] or "nobody",
        str(one["epoch"]),
        span(one["interval_ms"]),
        when(last["ended_at"]) if last else "–",
        _outcome(last) if last else "–",
        "paused" if one["paused"] else when(one["next_run_ms"]),
    )


def _outcome(run: dict[str, Any]) -> str:
    counts = ", ".join(f"{name} {value}" for name, value in run["counts"].items() if value)
    return ": ".join(filter(None, (run["outcome"], counts or run["message"])))


def _sending(one: dict[str, Any]) -> str:
    if one["sent_at"]:
        return f"sent {when(one['sent_at'])}"
    if one["given_up_at"]:
        return f"given up: {one['error']}"
    return f"next try {when(one['next_try_at'])}" + (f": {one['error']}" if one["error"] else "")


def _change(entry: dict[str, Any]) -> str:
    before, after = entry["before"] or {}, entry["after"] or {}
    changes = [
        (name, _value(name, before.get(name)), _value(name, after.get(name)))
        for name in dict.fromkeys((*before, *after))
    ]
    return ", ".join(f"{name}: {old} → {new}" for name, old, new in changes if old != new)


def _value(name: str, value: object) -> str:
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    return when(value) if name.endswith("_at") and isinstance(value, int) else str(value)


def _pair(text: str) -> tuple[str, int]:
    name, sign, value = text.partition("=")
    if not sign or not value.removeprefix("-").isdecimal() or len(value) > NUMBER_CHARS_MAX:
        raise UsageError(f"{text!r} is not an option; write NAME=NUMBER")
    return name, int(value)
