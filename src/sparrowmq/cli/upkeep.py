"""`sparrow repair` and `sparrow service findings`: what the coordinator's services found, and mending it."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from sparrowmq.cli.common import AsJson, print_json, print_table, printable
from sparrowmq.cli.remote import Url, Why, call, part, tell
from sparrowmq.cli.times import when

app = typer.Typer(
    help="Repairs of what brokers, name servers and the coordinator disagree about.", no_args_is_help=True
)
Number = Annotated[int, typer.Argument(metavar="ID", help="Id of the finding.")]


@app.command("list")
def list_repairs(
    kind: Annotated[str, typer.Option(help="Only findings of this kind.")] = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Print the repairs that the consistency check proposes."""
    found = call(coordinator, "GET", "/findings", query={"kind": kind, "repairs": "true"})
    if as_json:
        for one in found:
            print_json(one)
        return
    rows = [(one["id"], one["kind"], one["text"], one["repair"]["text"]) for one in found if one["repair"]]
    print_table(("id", "kind", "what", "repair"), rows, right=("id",))


@app.command("show")
def show_repair(number: Number, coordinator: Url = None, as_json: AsJson = False) -> None:
    """Print one finding, the state it is about, and what its repair would do."""
    one = call(coordinator, "GET", f"/findings/{number}")
    if as_json:
        print_json(one)
        return
    repair = one["repair"]
    lines: list[tuple[str, Any]] = [
        ("what", one["text"]),
        ("kind", one["kind"]),
        ("found by", f"{one['service']}, first {when(one['first_ms'])}, last {when(one['seen_ms'])}"),
        ("repair", repair["text"] if repair else "none; it is for people to mend"),
    ]
    if repair:
        lines += [("now", json.dumps(repair["before"], sort_keys=True)), ("needs", repair["right"])]
    for label, value in lines:
        print(f"{label + ':':10}{printable(str(value))}")


@app.command("run")
def run_repair(number: Number, reason: Why = "", coordinator: Url = None, as_json: AsJson = False) -> None:
    """Do what is proposed for a finding."""
    done = call(coordinator, "POST", f"/findings/{number}/repair", {"reason": reason})
    tell(done, f"finding {number} repaired", as_json)


def findings(
    name: Annotated[str, typer.Argument(help="Name of the service.")],
    kind: Annotated[str, typer.Option(help="Only of this kind.")] = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Print what a service found at its last look: forecasts, losses, verdicts, disagreements."""
    call(coordinator, "GET", f"/services/{part(name)}")  # an unknown name is an error, not an empty table
    found = call(coordinator, "GET", "/findings", query={"service": name, "kind": kind})
    if as_json:
        for one in found:
            print_json(one)
        return
    rows = [(one["id"], one["kind"], when(one["first_ms"]), one["text"]) for one in found]
    print_table(("id", "kind", "since", "what"), rows, right=("id",))
