"""`sparrow setting …`, `sparrow group pause|resume`: dynamic settings of groups, kept by the coordinator.

`sparrow knob …` is the old name of `sparrow setting …`; it works until the release after 0.1.
"""

from __future__ import annotations

import math
import time
from typing import Annotated, Any, Final

import typer

from sparrowmq.cli.base.common import AsJson, UsageError, print_json, print_table, say, tell
from sparrowmq.cli.base.remote import Url, Why, call, part
from sparrowmq.cli.base.times import moment, when
from sparrowmq.core.dynamic_settings import DYNAMIC_SETTINGS

app = typer.Typer(
    help="Dynamic settings of groups: list, show, set, unset, offset, undo.", no_args_is_help=True
)
WAIT_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.25
MINUTES_MAX: Final = 366 * 1440

Group = Annotated[str, typer.Argument(help="Consumer group.")]
Name = Annotated[str, typer.Argument(metavar="SETTING", help="Name; see sparrow setting list.")]
Place = Annotated[str, typer.Option(help="Scope: *, TOPIC, TOPIC/QUEUE or TOPIC/BROKER/QUEUE.")]
At = Annotated[str, typer.Argument(metavar="PLACE", help="*, TOPIC, TOPIC/QUEUE or TOPIC/BROKER/QUEUE.")]
Minutes = Annotated[
    float, typer.Option(min=0, max=MINUTES_MAX, help="How long the value applies; 0: until it is unset.")
]
Seen = Annotated[
    int | None, typer.Option("--if-revision", help="Only if the group is still at this revision.")
]


@app.command("list")
def list_settings(coordinator: Url = None, as_json: AsJson = False) -> None:
    """List all dynamic settings: range, scopes, and who applies them."""
    settings = call(coordinator, "GET", "/settings")
    if as_json:
        print_json(*settings)
        return
    rows = [
        (
            setting["name"],
            setting["range"],
            setting["default"],
            ", ".join(setting["places"]),
            setting["obeyed_by"],
            setting["help"],
            setting["pull_consumers"] or "-",
        )
        for setting in settings
    ]
    print_table(("setting", "range", "default", "scopes", "applied by", "meaning", "pull consumers"), rows)


@app.command("show")
def show(
    group: Annotated[str | None, typer.Argument(help="Consumer group. Default: all.")] = None,
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show the settings of a group and which members apply them, or the settings of all groups."""
    if group is None:
        found = call(coordinator, "GET", "/settings/set")
        if as_json:
            print_json(*found)
            return
        columns = ("group", *_COLUMNS)
        print_table(columns, [(one["group"], *_row(one)) for one in found])
        return
    table = call(coordinator, "GET", f"/groups/{part(group)}/settings")
    if as_json:
        print_json(table)
        return
    say(f"{group}: revision {table['revision']}")
    if table["settings"]:
        print_table(_COLUMNS, map(_row, table["settings"]))
    if table["members"]:
        rest = f"; not yet: {', '.join(table['older'])}" if table["older"] else ""
        say(f"{table['newest']} of {table['members']} managed members apply these{rest}")
    told = set()
    for one in table["settings"]:
        for member, why in one["unable"].items():
            if (one["setting"], member) not in told:
                told.add((one["setting"], member))
                say(f"{member} cannot apply {one['setting']}: {why}")


@app.command("set")
def set_setting(
    group: Group,
    name: Name,
    value: Annotated[str, typer.Argument(help="Value; separate addresses and networks with commas.")],
    place: Place = "*",
    minutes: Minutes = 0,
    revision: Seen = None,
    reason: Why = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Change a setting of a group. Running clients apply it within five seconds.

    For example: `sparrow setting set billing delay 30 --place Orders --minutes 120`
    """
    setting = DYNAMIC_SETTINGS.get(name)
    parsed: Any = value if setting is None else setting.parse(value)
    made = _put(coordinator, group, name, parsed, place, minutes, reason, revision)
    _tell(made, f"{name} of {group} set to {value}{'' if place == '*' else f' for {place}'}", as_json)


@app.command("unset")
def unset(
    group: Group,
    name: Name,
    place: Place = "*",
    revision: Seen = None,
    reason: Why = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Remove a value; the default applies again."""
    query = {"place": place, "reason": reason, "revision": revision}
    answer = call(coordinator, "DELETE", f"/groups/{part(group)}/settings/{part(name)}", query=query)
    tell(answer, f"{name} of {group} unset{'' if place == '*' else f' for {place}'}", as_json)


@app.command("offset")
def offset(
    group: Group,
    place: Annotated[str, typer.Argument(metavar="PLACE", help="TOPIC, TOPIC/QUEUE or TOPIC/BROKER/QUEUE.")],
    to: Annotated[
        str | None, typer.Option(help="first, last, a time (2024-05-01T12:30) or epoch milliseconds.")
    ] = None,
    number: Annotated[int | None, typer.Option(min=0, help="Offset to continue from.")] = None,
    reason: Why = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Move a group to another offset. Commits from before the move are rejected.

    For example: `sparrow setting offset billing Orders/3 --to 2024-05-01T12:30`
    """
    if (to is None) == (number is None):
        raise UsageError("give a target: --to first, last or a time, or --number N")
    body: dict[str, Any] = {"place": place, "reason": reason}
    if number is not None:
        body["offset"] = number
    elif to in ("first", "last"):
        body["to"] = to
    else:
        body["time_ms"] = _milliseconds(to or "")
    made = call(coordinator, "POST", f"/groups/{part(group)}/resets", body)
    _show_ended(coordinator, group, made["id"], as_json)


@app.command("undo")
def undo(
    group: Group,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the effect; change nothing.")] = False,
    reason: Why = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Undo the last move of a group to another offset: restore the offsets from before it.

    An undo can be undone. For example: `sparrow setting undo billing --dry-run`
    """
    seen = call(coordinator, "GET", f"/cluster/groups/{part(group)}/undo-preview")
    number = seen["undoes"]["id"]
    if not dry_run:
        path = f"/groups/{part(group)}/resets/{number}/undo"
        made = call(coordinator, "POST", path, {"reason": reason})
        _show_ended(coordinator, group, made["id"], as_json)
        return
    if as_json:
        print_json(seen)
        return
    say(f"move {number}, {seen['undoes']['place']} to {seen['undoes']['to']}, would be undone")
    rows = [
        (f"{seen['topic']}/{one['broker']}/{one['queue']}", _known(one["before"]), one["after"],
         _known(one["again"]), _known(one["never"]))
        for one in seen["steps"]
    ]  # fmt: skip
    columns = ("queue", "now", "then", "read again", "skipped")
    print_table(columns, rows, right=columns[1:])


def _known(number: int | None) -> int | str:
    return "unknown" if number is None else number


def _show_ended(url: str | None, group: str, number: int, as_json: bool) -> None:
    found = _ended(url, group, number)
    if as_json:
        print_json(found)
        return
    if found["state"] != "done":
        raise UsageError(f"reset {found['id']} of {group}: {found['message'] or found['state']}")
    rows = [
        (queue, found["before"].get(queue, "–"), after) for queue, after in sorted(found["after"].items())
    ]
    print_table(("queue", "before", "now"), rows, right=("before", "now"))


@app.command("offsets")
def offsets(group: Group, coordinator: Url = None, as_json: AsJson = False) -> None:
    """List the moves of a group, newest first."""
    found = call(coordinator, "GET", f"/groups/{part(group)}/resets")
    if as_json:
        print_json(*found)
        return
    rows = [
        (
            one["id"],
            when(one["asked_ms"]),
            one["place"],
            one["to"],
            one["message"] or one["state"],
            one["asked_by"],
            one["reason"],
        )
        for one in found
    ]
    print_table(("id", "asked", "place", "to", "state", "who", "reason"), rows, right=("id",))


def pause(
    group: Group,
    place: At = "*",
    minutes: Minutes = 0,
    reason: Why = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Stop the delivery to a group, of all topics, one topic or one queue. Running handlers finish.

    For example: `sparrow group pause billing Orders --minutes 15 --reason repair`
    """
    made = _put(coordinator, group, "pause", True, place, minutes, reason, None)
    what = f"{group} {'' if place == '*' else f'{place} '}paused"
    _tell(made, what + (f" for {minutes:g} min" if minutes else ""), as_json)


def resume(
    group: Group, place: At = "*", reason: Why = "", coordinator: Url = None, as_json: AsJson = False
) -> None:
    """End a pause. Delivery continues with the first message that was not delivered."""
    query = {"place": place, "reason": reason}
    answer = call(coordinator, "DELETE", f"/groups/{part(group)}/settings/pause", query=query)
    tell(answer, f"{group} {'' if place == '*' else f'{place} '}resumed", as_json)


_COLUMNS: Final = (
    "setting",
    "scope",
    "value",
    "unit",
    "until",
    "applied by",
    "changed by",
    "since",
    "reason",
)


def _row(one: dict[str, Any]) -> tuple[object, ...]:
    value = one["value"]
    return (
        one["setting"],
        one["place"],
        ", ".join(value) if isinstance(value, list) else str(value).lower() if value is True else value,
        one["unit"],
        when(one["until_ms"]),
        one["obeyed_by"],
        one["changed_by"],
        when(one["changed_ms"]),
        one["reason"],
    )


knob_app = typer.Typer(hidden=True)
knob_app.add_typer(app)


@knob_app.callback()
def warn_of_the_old_name() -> None:
    """Warn that `sparrow knob` was renamed."""
    say("sparrow knob is deprecated: use sparrow setting, which has the same subcommands", err=True)


def _put(
    url: str | None,
    group: str,
    name: str,
    value: Any,
    place: str,
    minutes: float,
    reason: str,
    revision: int | None,
) -> Any:
    body = {"value": value, "place": place, "seconds": math.ceil(minutes * 60), "reason": reason}
    if revision is not None:
        body["revision"] = revision
    return call(url, "PUT", f"/groups/{part(group)}/settings/{part(name)}", body)


def _tell(made: Any, text: str, as_json: bool) -> None:
    if made["note"] and not as_json:
        say(made["note"], err=True)
    tell(made, text, as_json)


def _ended(url: str | None, group: str, number: int) -> dict[str, Any]:
    """A reset once it has ended, or its state after a minute."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        found = call(url, "GET", f"/groups/{part(group)}/resets", query={"count": 100})
        mine: dict[str, Any] = next(one for one in found if one["id"] == number)
        if mine["state"] != "waiting":
            return mine
        if time.monotonic() >= end:
            text = "it is still waiting; sparrow setting offsets shows when the coordinator has done it"
            return {**mine, "message": text}
        time.sleep(LOOK_SECONDS)


def _milliseconds(text: str) -> int:
    try:
        return int(text) if text.isdecimal() else round(moment(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{text!r} is not a valid target; give first, last, a time like 2024-05-01T12:30 or epoch "
            "milliseconds"
        ) from None
