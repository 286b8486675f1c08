"""`sparrow repair` and `sparrow service findings`: findings of the coordinator's services, and their repairs.

Both read `/findings` of the coordinator's API. A finding with a `repair` (from the service `consistency`) can
be repaired; the others are only shown. `cli.main` registers `app` as `sparrow repair`, and `findings` as a
command of `sparrow service`.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from sparrowmq.cli.base.common import AsJson, print_json, print_table, say, tell
from sparrowmq.cli.base.remote import Url, Why, call, part
from sparrowmq.cli.base.times import when

app = typer.Typer(
    help="Repairs of inconsistencies between brokers, name servers and the coordinator.", no_args_is_help=True
)
Number = Annotated[int, typer.Argument(metavar="ID", help="Id of the finding.")]


@app.command("list")
def list_repairs(
    kind: Annotated[str, typer.Option(help="Only findings of this kind.")] = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the repairs that the consistency check proposes."""
    found = call(coordinator, "GET", "/findings", query={"kind": kind, "repairs": "true"})
    if as_json:
        print_json(*found)
        return
    rows = [(one["id"], one["kind"], one["text"], one["repair"]["text"]) for one in found if one["repair"]]
    print_table(("id", "kind", "what", "repair"), rows, right=("id",))


@app.command("show")
def show_repair(number: Number, coordinator: Url = None, as_json: AsJson = False) -> None:
    """Show one finding, the state it concerns, and the effect of its repair."""
    one = call(coordinator, "GET", f"/findings/{number}")
    if as_json:
        print_json(one)
        return
    repair = one["repair"]
    lines: list[tuple[str, Any]] = [
        ("what", one["text"]),
        ("kind", one["kind"]),
        ("found by", f"{one['service']}, first {when(one['first_ms'])}, last {when(one['seen_ms'])}"),
        ("repair", repair["text"] if repair else "none; it needs a manual fix"),
    ]
    if repair:
        lines += [("now", json.dumps(repair["before"], sort_keys=True)), ("needs", repair["right"])]
    for label, value in lines:
        say(f"{label + ':':10}{value!s}")


@app.command("run")
def run_repair(number: Number, reason: Why = "", coordinator: Url = None, as_json: AsJson = False) -> None:
    """Carry out the repair of a finding."""
    done = call(coordinator, "POST", f"/findings/{number}/repair", {"reason": reason})
    tell(done, f"finding {number} repaired", as_json)


def findings(
    name: Annotated[str, typer.Argument(help="Name of the service.")],
    kind: Annotated[str, typer.Option(help="Only of this kind.")] = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show the findings of a service's last run: forecasts, losses, verdicts, inconsistencies."""
    call(coordinator, "GET", f"/services/{part(name)}")  # an unknown name is an error, not an empty table
    found = call(coordinator, "GET", "/findings", query={"service": name, "kind": kind})
    if as_json:
        print_json(*found)
        return
    rows = [(one["id"], one["kind"], when(one["first_ms"]), one["text"]) for one in found]
    print_table(("id", "kind", "since", "what"), rows, right=("id",))
