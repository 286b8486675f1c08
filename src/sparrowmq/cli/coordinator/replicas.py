"""`sparrow replicas …`: groups of brokers with a second copy, and who of them is the master."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sparrowmq.cli.base.common import AsJson, UsageError, print_json, print_table, say, tell
from sparrowmq.cli.base.remote import Url, Why, call, part
from sparrowmq.cli.base.times import when

app = typer.Typer(help="Brokers with a second copy: who is the master, what is in sync, elections.")

Name = Annotated[str, typer.Argument(metavar="BROKER", help="Name of the brokers (brokerName).")]
Address = Annotated[str, typer.Argument(metavar="ADDRESS", help="The broker that becomes master: host:port.")]


@app.command("list")
def list_groups(
    broker: Annotated[
        str | None,
        typer.Argument(metavar="[BROKER]", help="Only these brokers, with what each would lack as master."),
    ] = None,
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show groups whose master the coordinator elects: epoch, in-sync set, how far each copy is behind."""
    path = "/replica-groups" if broker is None else f"/replica-groups/{part(broker)}"
    answer = call(coordinator, "GET", path)
    found = [answer] if broker is not None else answer
    if as_json:
        print_json(*found)
        return
    if not found:
        say("No groups; begin with: sparrow replicas manage BROKER")
        return
    titles = ("broker", "address", "role", "state", "in sync", "epoch", "behind", "")
    rows = [_row(group, one) for group in found for one in group["brokers"] or [{}]]
    print_table(titles, rows, right=("epoch", "behind"))
    for group in found:
        for text in group["problems"]:
            say(text)
    if broker is not None:
        _print_group(answer)


@app.command()
def manage(broker: Name, reason: Why = "", coordinator: Url = None, as_json: AsJson = False) -> None:
    """Elect the master of these brokers from now on. They keep the one they have."""
    answer = _do(coordinator, broker, "manage", {"reason": reason})
    tell(answer, f"masters of {broker} are elected from now on; see: sparrow replicas list {broker}", as_json)


@app.command()
def release(broker: Name, reason: Why = "", coordinator: Url = None, as_json: AsJson = False) -> None:
    """Leave these brokers alone: the master goes on, and nobody takes over when it is gone."""
    answer = _do(coordinator, broker, "release", {"reason": reason})
    tell(answer, f"{broker} will be left alone; see: sparrow replicas list", as_json)


@app.command()
def elect(
    broker: Name,
    address: Address,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Even if it is not in sync: what it lacks is lost, acknowledged messages too. Needs "
            "--reason and --yes.",
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do an unclean election; without it, see what would be lost.")
    ] = False,
    reason: Why = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make another broker the master; takes a few seconds, in which sends wait."""
    body = {"reason": reason, "target": address}
    if not unclean:
        answer = _do(coordinator, broker, "elect", body)
        tell(answer, f"{address} will be the master; see: sparrow replicas list {broker}", as_json)
        return
    if not reason.strip():
        raise UsageError("an unclean election may lose messages and needs --reason")
    if not yes:
        group = call(coordinator, "GET", f"/replica-groups/{part(broker)}")
        lost = {one["address"]: one["would_lose"] for one in group["brokers"]}
        if as_json:
            print_json({"target": address, "would_lose": lost.get(address)})
            return
        say(f"as master, {address} would lose: {lost.get(address, {}).get('text', 'unknown')}")
        say("nothing was changed; add --yes to do it")
        return
    answer = _do(coordinator, broker, "elect-unclean", body)
    tell(answer, f"{address} will be the master; messages may be lost", as_json)


def _do(url: str | None, broker: str, what: str, body: dict[str, Any]) -> Any:
    return call(url, "POST", f"/replica-groups/{part(broker)}/{what}", body)


def _row(group: dict[str, Any], one: dict[str, Any]) -> tuple[str, ...]:
    if not one:
        return (group["name"], "–", "–", "no broker was found yet", "–", "–", "–", "")
    behind = one["behind"]
    return (
        group["name"],
        one["address"],
        one["role"].lower() or "–",
        one["state"].lower() or "–",
        "yes" if one["in_sync"] else "no",
        str(one["epoch"]),
        "unknown" if behind is None else str(behind),
        one["error"],
    )


def _print_group(group: dict[str, Any]) -> None:
    say()
    for label, value in (
        ("epoch", f"{group['epoch']}, master {group['master'] or 'none yet'}"),
        ("in sync", f"{', '.join(group['in_sync']) or 'none'} (set {group['in_sync_number']})"),
        ("changed", f"{when(group['changed_at'])} {group['text']}".rstrip()),
        ("checked", when(group["seen_at"])),
    ):
        say(f"{label + ':':11}{value}")
    if group["wish"]:
        wish = group["wish"]
        say(f"requested: {wish['kind']} {wish['target']} by {wish['asked_by']} {wish['reason']}".rstrip())
    say()
    rows = [(one["address"], one["would_lose"]["text"]) for one in group["brokers"]]
    print_table(("as master", "would lose"), rows)
