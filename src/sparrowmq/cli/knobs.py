"""`sparrow knob …`, `sparrow group pause|resume`: live knobs of groups, kept by the coordinator."""

from __future__ import annotations

import math
import sys
import time
from datetime import datetime
from typing import Annotated, Any, Final

import typer

from sparrowmq.cli.common import AsJson, UsageError, print_json, print_table
from sparrowmq.cli.remote import Url, Why, call, part, tell
from sparrowmq.cli.times import when
from sparrowmq.core.knobs import KNOBS

app = typer.Typer(help="Live knobs of groups: list, show, set, unset, offset.", no_args_is_help=True)
WAIT_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.25
MINUTES_MAX: Final = 366 * 1440

Group = Annotated[str, typer.Argument(help="Consumer group.")]
Name = Annotated[str, typer.Argument(metavar="KNOB", help="Name; see sparrow knob list.")]
Place = Annotated[str, typer.Option(help="What of the group: *, TOPIC, TOPIC/QUEUE or TOPIC/BROKER/QUEUE.")]
At = Annotated[str, typer.Argument(metavar="PLACE", help="*, TOPIC, TOPIC/QUEUE or TOPIC/BROKER/QUEUE.")]
Minutes = Annotated[
    float, typer.Option(min=0, max=MINUTES_MAX, help="How long it counts; 0: until it is unset.")
]
Seen = Annotated[
    int | None, typer.Option("--if-revision", help="Only if the group is still at this revision.")
]


@app.command("list")
def list_knobs(coordinator: Url = None, as_json: AsJson = False) -> None:
    """Print all knobs: range, where they can be set, who obeys them."""
    knobs = call(coordinator, "GET", "/knobs")
    if as_json:
        for knob in knobs:
            print_json(knob)
        return
    rows = [
        (
            knob["name"],
            knob["range"],
            knob["default"],
            ", ".join(knob["places"]),
            knob["obeyed_by"],
            knob["help"],
            knob["pull_consumers"] or "-",
        )
        for knob in knobs
    ]
    print_table(("knob", "range", "default", "of a", "obeyed by", "what", "pull consumers"), rows)


@app.command("show")
def show(
    group: Annotated[str | None, typer.Argument(help="Consumer group; all without it.")] = None,
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Print what is set of a group and who goes by it, or what is set of all."""
    if group is None:
        found = call(coordinator, "GET", "/knobs/set")
        if as_json:
            for one in found:
                print_json(one)
            return
        columns = ("group", *_COLUMNS)
        print_table(columns, [(one["group"], *_row(one)) for one in found])
        return
    table = call(coordinator, "GET", f"/groups/{part(group)}/knobs")
    if as_json:
        print_json(table)
        return
    print(f"{group}: revision {table['revision']}")
    if table["knobs"]:
        print_table(_COLUMNS, map(_row, table["knobs"]))
    if table["members"]:
        rest = f"; not yet: {', '.join(table['older'])}" if table["older"] else ""
        print(f"{table['newest']} of {table['members']} managed members go by this{rest}")
    told = set()
    for one in table["knobs"]:
        for member, why in one["unable"].items():
            if (one["knob"], member) not in told:
                told.add((one["knob"], member))
                print(f"{member} cannot go by {one['knob']}: {why}")


@app.command("set")
def set_knob(
    group: Group,
    name: Name,
    value: Annotated[str, typer.Argument(help="Value; addresses and networks are joined by commas.")],
    place: Place = "*",
    minutes: Minutes = 0,
    revision: Seen = None,
    reason: Why = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Set a knob of a group; in force in running clients within five seconds.

    For example: `sparrow knob set billing delay 30 --place Orders --minutes 120`
    """
    knob = KNOBS.get(name)
    parsed: Any = value if knob is None else knob.parse(value)
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
    """Take a value back: what counts without it counts again."""
    query = {"place": place, "reason": reason, "revision": revision}
    answer = call(coordinator, "DELETE", f"/groups/{part(group)}/knobs/{part(name)}", query=query)
    tell(answer, f"{name} of {group} unset{'' if place == '*' else f' for {place}'}", as_json)


@app.command("offset")
def offset(
    group: Group,
    place: Annotated[str, typer.Argument(metavar="PLACE", help="TOPIC, TOPIC/QUEUE or TOPIC/BROKER/QUEUE.")],
    to: Annotated[
        str | None, typer.Option(help="first, last, a time (2024-05-01T12:30) or epoch milliseconds.")
    ] = None,
    number: Annotated[int | None, typer.Option(min=0, help="Offset to go on from.")] = None,
    reason: Why = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Have a group go on elsewhere; nothing of where it was is committed afterwards.

    For example: `sparrow knob offset billing Orders/3 --to 2024-05-01T12:30`
    """
    if (to is None) == (number is None):
        raise UsageError("say where to go on: --to first, last or a time, or --number N")
    body: dict[str, Any] = {"place": place, "reason": reason}
    if number is not None:
        body["offset"] = number
    elif to in ("first", "last"):
        body["to"] = to
    else:
        body["time_ms"] = _milliseconds(to or "")
    made = call(coordinator, "POST", f"/groups/{part(group)}/resets", body)
    found = _ended(coordinator, group, made["id"])
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
    """Print where a group was moved, the newest first."""
    found = call(coordinator, "GET", f"/groups/{part(group)}/resets")
    if as_json:
        for one in found:
            print_json(one)
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
    """Deliver nothing more of a group, topic or queue; what is in hand is finished.

    For example: `sparrow group pause billing Orders --minutes 15 --reason repair`
    """
    made = _put(coordinator, group, "pause", True, place, minutes, reason, None)
    what = f"{group} {'' if place == '*' else f'{place} '}paused"
    _tell(made, what + (f" for {minutes:g} min" if minutes else ""), as_json)


def resume(
    group: Group, place: At = "*", reason: Why = "", coordinator: Url = None, as_json: AsJson = False
) -> None:
    """End such a pause: it goes on with the first message that was not delivered."""
    query = {"place": place, "reason": reason}
    answer = call(coordinator, "DELETE", f"/groups/{part(group)}/knobs/pause", query=query)
    tell(answer, f"{group} {'' if place == '*' else f'{place} '}resumed", as_json)


_COLUMNS: Final = ("knob", "of", "value", "unit", "until", "obeyed by", "who", "since", "reason")


def _row(one: dict[str, Any]) -> tuple[object, ...]:
    value = one["value"]
    return (
        one["knob"],
        one["place"],
        ", ".join(value) if isinstance(value, list) else str(value).lower() if value is True else value,
        one["unit"],
        when(one["until_ms"]),
        one["obeyed_by"],
        one["changed_by"],
        when(one["changed_ms"]),
        one["reason"],
    )


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
    return call(url, "PUT", f"/groups/{part(group)}/knobs/{part(name)}", body)


def _tell(made: Any, text: str, as_json: bool) -> None:
    if made["note"] and not as_json:
        print(made["note"], file=sys.stderr)
    tell(made, text, as_json)


def _ended(url: str | None, group: str, number: int) -> dict[str, Any]:
    """A reset once it has ended; as it is after a minute."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        found = call(url, "GET", f"/groups/{part(group)}/resets", query={"count": 100})
        mine: dict[str, Any] = next(one for one in found if one["id"] == number)
        if mine["state"] != "waiting":
            return mine
        if time.monotonic() >= end:
            text = "it waits still; sparrow knob offsets shows whether the coordinator has carried it out"
            return {**mine, "message": text}
        time.sleep(LOOK_SECONDS)


def _milliseconds(text: str) -> int:
    try:
        return int(text) if text.isdecimal() else round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{text!r} is no place to go to; give first, last, a time like 2024-05-01T12:30 or epoch "
            "milliseconds"
        ) from None
