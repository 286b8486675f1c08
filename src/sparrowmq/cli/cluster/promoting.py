"""`sparrow broker promote`: makes a slave the master, by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparrowmq.cli.base.common import AsJson, Namesrv, complain, print_json, print_table, say, with_admin

if TYPE_CHECKING:
    from sparrowmq import aio


def promote(
    broker: Annotated[str, typer.Argument(help="HOST:PORT of the slave.")],
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Continue even if messages may be lost.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the brokers and what would be lost.")
    ] = False,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Make a slave the master of its name. The master, if it answers, first hands its log over."""

    async def work(admin: aio.Admin) -> aio.PromotionPlan:
        if dry_run:
            return await admin.replicas.plan(broker)
        return await admin.replicas.promote(broker, unclean=unclean)

    plan = with_admin(namesrv, work)
    if as_json:
        print_json(as_facts(plan, done=not dry_run))
    else:
        show(plan, done=not dry_run)
    if dry_run and (plan.refusals or plan.doubts):
        raise typer.Exit(1)


def as_facts(plan: aio.PromotionPlan, *, done: bool) -> dict[str, Any]:
    """The plan as one value of JSON. `lostBytes` is null when nobody knows."""
    replicas = [plan.candidate, *([plan.master] if plan.master else []), *plan.followers]
    return {
        "broker": plan.candidate.address,
        "brokerName": plan.candidate.broker_name,
        "done": done or plan.is_done,
        "wasMaster": plan.is_done,
        "epoch": plan.candidate.epoch if plan.is_done else plan.epoch,
        "oldMaster": None if plan.master is None else plan.master.address,
        "lostBytes": plan.lost_bytes,
        "refusals": list(plan.refusals),
        "doubts": list(plan.doubts),
        "silent": dict(plan.silent),
        "replicas": [
            {
                "address": one.address,
                "role": one.role,
                "state": one.state,
                "epoch": one.epoch,
                "logEpoch": one.log_epoch,
                "minOffset": one.min_offset,
                "maxOffset": one.max_offset,
            }
            for one in replicas
        ],
    }


def show(plan: aio.PromotionPlan, *, done: bool) -> None:
    """The plan for people: the brokers as they were before, then what was done or stands against it."""
    facts = as_facts(plan, done=done)
    columns = ("address", "role", "state", "epoch of its log", "end of its log")
    rows = [
        (one["address"], one["role"], one["state"], one["logEpoch"], one["maxOffset"])
        for one in facts["replicas"]
    ]
    rows += [(address, "?", "does not answer", "-", "-") for address in plan.silent]
    print_table(columns, rows, right=columns[3:])
    for text in (*plan.refusals, *plan.doubts):
        complain(text)
    if plan.is_done:
        say(f"{plan.candidate.address} is already the master of {plan.candidate.broker_name}")
        return
    lost = "unknown" if plan.lost_bytes is None else f"{plan.lost_bytes} bytes of the log"
    say(f"lost: {lost}")
    if done:
        say(f"{plan.candidate.address} is now the master of {plan.candidate.broker_name}, epoch {plan.epoch}")
        if plan.silent:
            say("make sure that the brokers that did not answer do not run as masters")
