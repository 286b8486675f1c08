"""`sparrow broker checks|drain|undrain|remove|forget`: brokers as a coordinator sees them, and drains."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sparrowmq.cli.base.common import AsJson, print_json, print_table, say, tell
from sparrowmq.cli.base.remote import Url, Why, call, part
from sparrowmq.cli.base.times import when

Name = Annotated[str, typer.Argument(metavar="BROKER", help="Name of the broker.")]


def checks(
    broker: Annotated[
        str | None,
        typer.Argument(
            metavar="[BROKER]", help="Only this broker, with the messages that groups have not read."
        ),
    ] = None,
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show brokers as of the coordinator's last check, and the progress of drains."""
    path = "/brokers" if broker is None else f"/brokers/{part(broker)}"
    found = call(coordinator, "GET", path)
    if as_json:
        print_json(*found)
        return
    print_table(
        ("broker", "id", "address", "answers", "takes messages", "last seen", "drain"), map(_row, found)
    )
    if broker is not None and found[0]["drain"]:
        _print_drain(found[0]["drain"])


def drain(
    broker: Name,
    force: Annotated[
        bool,
        typer.Option("--force", help="Drain even if some topics then have no broker that accepts messages."),
    ] = False,
    reason: Why = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Drain a broker: producers use other brokers, groups read the remaining messages."""
    answer = _do(coordinator, broker, "drain", {"reason": reason, "forced": force})
    tell(answer, f"{broker} will be drained; see the progress with: sparrow broker checks {broker}", as_json)


def undrain(broker: Name, reason: Why = "", coordinator: Url = None, as_json: AsJson = False) -> None:
    """Cancel a drain: the broker accepts messages again."""
    answer = _do(coordinator, broker, "cancel", {"reason": reason})
    tell(answer, f"{broker} will accept messages again", as_json)


def remove(broker: Name, reason: Why = "", coordinator: Url = None, as_json: AsJson = False) -> None:
    """Remove a drained broker from the cluster; then you can stop it."""
    answer = _do(coordinator, broker, "remove", {"reason": reason})
    tell(
        answer,
        f"{broker} is checked once more; stop it when sparrow broker checks {broker} shows removed",
        as_json,
    )


def forget(broker: Name, reason: Why = "", coordinator: Url = None, as_json: AsJson = False) -> None:
    """Forget a broker that is lost permanently, with all its data."""
    answer = _do(coordinator, broker, "forget", {"reason": reason})
    tell(answer, f"{broker} is forgotten", as_json)


def _do(url: str | None, broker: str, what: str, body: dict[str, Any]) -> Any:
    return call(url, "POST", f"/brokers/{part(broker)}/{what}", body)


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    writes = "–" if one["error"] or one["id"] else one["write_error"] or "yes"
    drain = one["drain"]
    return (
        one["broker"],
        str(one["id"]),
        one["address"],
        one["error"] or "yes",
        "no" if drain and drain["state"] not in ("asked", "refused", "cancelled") else writes,
        when(one["last_seen"]),
        drain["state"] if drain else "–",
    )


def _nothing(drain: dict[str, Any]) -> str:
    if not drain["measured_at"]:
        return "–"
    waits = drain["state"] == "draining"
    return "nothing" + (", waiting for settle_seconds of the service broker-check" if waits else "")


def _print_drain(drain: dict[str, Any]) -> None:
    say()
    for label, value in (
        ("drain", f"{drain['state']} since {when(drain['changed_at'])}"),
        ("asked by", f"{drain['asked_by']}, {when(drain['asked_at'])} {drain['reason']}".rstrip()),
        ("looked at", when(drain["measured_at"])),
        ("left", drain["message"] or _nothing(drain)),
    ):
        say(f"{label + ':':11}{value!s}")
    rows = sorted(drain["left"]["groups"].items(), key=lambda pair: (-pair[1], pair[0]))
    if rows:
        say()
        print_table(("group", "unread"), rows, right=("unread",))
