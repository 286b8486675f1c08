"""The broker check: brokers that do not answer, do not accept messages or have the same name; drains (pmq:4).

The setting `brokerPermission` stops sends to a drained broker. Name servers get it with the topics, so
producers choose other brokers with their next refresh of routes, and no send is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, select

from sparrowmq.coordinator.alarms.table import AlarmCheck, Condition
from sparrowmq.coordinator.cluster.asking import each
from sparrowmq.coordinator.cluster.fleet import FleetBroker, FleetView
from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.services.base.runner import Work
from sparrowmq.coordinator.services.base.schedule import RunReport, ServiceKind, ServiceOption
from sparrowmq.coordinator.services.base.watch import CALM, WatchService, policy_of
from sparrowmq.coordinator.services.brokers import drains
from sparrowmq.coordinator.services.brokers.drains import MASTER, OVER, Drain, DrainState, Known, Left
from sparrowmq.core.errors import CoordinatorError, SparrowError
from sparrowmq.core.route import PERM_READ, PERM_WRITE
from sparrowmq.protocol.codes import ResponseCode

UNREACHABLE: Final = "broker-unreachable"
NOT_WRITABLE: Final = "broker-not-writable"
SAME_NAME: Final = "broker-same-name"
NAME_SERVERS: Final = "name servers"
TOPICS_NAMED: Final = 10
KIND: Final = ServiceKind(
    "broker-check",
    "Brokers that do not answer, do not accept messages, or have the same name; drains",
    30_000,
    1_000,
    120.0,
    (
        ServiceOption("checks", 2, 1, 100, "consecutive checks that must see it before it fires"),
        ServiceOption("canary", 1, 0, 1, "1: each check writes a small message to each master"),
        ServiceOption(
            "settle_seconds",
            60,
            0,
            3600,
            "how long a broker must receive no messages before it counts as drained",
        ),
        CALM,
        ServiceOption("reminder_seconds", 3600, 0, 604_800, "how often a firing alarm is repeated; 0: never"),
    ),
)


def conditions(
    rows: Iterable[Known], under_way: Mapping[str, Drain]
) -> tuple[list[Condition], list[Condition]]:
    """Brokers that do not answer, and those that are unexpectedly not writable. Pure."""
    silent, full = [], []
    for row in rows:
        drain = under_way.get(row.broker)
        if drain is not None and drain.state is DrainState.REMOVED:
            continue
        if row.error:
            what = "master" if row.id == MASTER else f"slave {row.id}"
            text = f"the {what} of broker {row.broker} at {row.address} {_says(row.error)}"
            silent.append(Condition(f"{row.broker} {row.id}", text))
        elif row.write_error and (drain is None or drain.state in OVER):
            full.append(
                Condition(row.broker, f"the broker {row.broker} does not accept messages: {row.write_error}")
            )
    return silent, full


def same_names(brokers: Iterable[FleetBroker]) -> list[Condition]:
    """Brokers whose name and id another live broker claims, too. Pure."""
    return [
        Condition(
            f"{one.name} {one.id}",
            f"two brokers claim the name {one.name} and the id {one.id}: {one.address} and {one.rival}; "
            "clients see one of them at a time. Give one another brokerName or brokerId",
        )
        for one in brokers
        if one.rival
    ]


def _says(error: str) -> str:
    """The problem of a broker that cannot be queried."""
    if error.startswith(f"answer {ResponseCode.NO_PERMISSION.value} "):
        return (
            "answers, but refuses the account of this coordinator, so its state is unknown; grant the "
            "account Get on the cluster, or start the coordinator with another SPARROW_ACCESS_KEY: "
            f"{error}"
        )
    return f"does not answer: {error}"


def ready(drain: Drain, left: Left, settle_ms: int, now: int) -> DrainState:
    """The next state of a drain after this check. Pure."""
    if drain.state is DrainState.REMOVING:
        return DrainState.REMOVED if left.nothing else DrainState.DRAINING
    settled = drain.state is DrainState.DRAINED or now - drain.changed_at >= settle_ms
    return DrainState.DRAINED if left.nothing and settled else DrainState.DRAINING


class BrokerCheck(WatchService[FleetView]):
    """Queries all brokers, updates their alarms, and advances the drains."""

    kind = KIND

    async def step(self, work: Work) -> RunReport:
        """One check of every broker. Raises `CoordinatorError` when no name server lists any."""
        under_way = await work.read(drains.all_drains)
        try:
            brokers = await self._view.brokers()
        except SparrowError as error:
            text = f"no name server returned the list of brokers: {error}"
            await self._bring(work, [Condition(NAME_SERVERS, text)], None)
            raise CoordinatorError(text, what=NAME_SERVERS) from error
        errors = await self._write_errors(brokers, under_way, canary=bool(work.options["canary"]))
        rows = await work.write(partial(drains.note, brokers=brokers, write_errors=errors))
        counts = await self._bring(work, *conditions(rows, under_way), same_names(brokers))
        counts |= {"brokers": len(brokers), "drains": 0}
        for drain in under_way.values():
            if drain.state not in OVER:
                counts["drains"] += 1
                await self._advance(work, drain, brokers)
        return RunReport(counts, next((f"{row.broker}: {row.error}" for row in rows if row.error), ""))

    async def _bring(
        self,
        work: Work,
        silent: list[Condition],
        full: list[Condition] | None,
        same: Iterable[Condition] = (),
    ) -> dict[str, int]:
        """Without `full` the check was incomplete: alarms of brokers stay unchanged."""
        policy = policy_of(work.options)
        unknown = () if full is not None else ("",)
        checks = [AlarmCheck(UNREACHABLE, policy, tuple(silent), unknown)]
        if full is not None:
            checks.append(AlarmCheck(NOT_WRITABLE, policy, tuple(full)))
            checks.append(AlarmCheck(SAME_NAME, policy, tuple(same)))
        return await work.write(partial(self._observe, work=work, checks=checks))

    async def _write_errors(
        self, brokers: list[FleetBroker], under_way: Mapping[str, Drain], *, canary: bool
    ) -> dict[str, str]:
        """Why masters that answer and are not being drained do not accept messages."""
        found: dict[str, str] = {}

        async def look(name: str) -> None:
            permission = await self._view.permission(name)
            if not permission & PERM_WRITE:
                found[name] = f"its brokerPermission is {permission}; writing requires {PERM_WRITE}"
            elif canary:
                await self._view.write(name)

        drained = {name for name, drain in under_way.items() if drain.state not in OVER}
        masters = (one.name for one in brokers if one.id == MASTER and not one.error)
        await each((name for name in masters if name not in drained), look, found)
        return found

    async def _advance(self, work: Work, drain: Drain, brokers: list[FleetBroker]) -> None:
        """Advance a drain as far as possible now."""
        here = [one for one in brokers if one.name == drain.broker]
        if drain.state is DrainState.REMOVED and not here:
            await work.write(partial(drains.end, found=drain, actor=work.actor))
            return
        state, values = await self._next(work, drain, here)
        noted = await work.write(partial(_move, before=drain, state=state, work=work, values=values))
        if noted and drain.state is DrainState.ASKED and state is DrainState.DRAINING:
            await self._advance(work, (await work.read(drains.all_drains))[drain.broker], brokers)

    async def _next(
        self, work: Work, drain: Drain, here: list[FleetBroker]
    ) -> tuple[DrainState, dict[str, Any]]:
        """The drain's next state and the values to record; the same state if the broker refuses the
        change.
        """
        master = next((one for one in here if one.id == MASTER), None)
        if master is None or master.error:
            why = drains.NOT_REGISTERED if master is None else master.error
            return drain.state, {"message": f"waiting, because the broker does not answer: {why}"[:500]}
        try:
            return await self._changed(work, drain, master)
        except SparrowError as error:
            return drain.state, {"message": f"will be retried: {error}"[:500]}

    async def _changed(
        self, work: Work, drain: Drain, master: FleetBroker
    ) -> tuple[DrainState, dict[str, Any]]:
        name, cluster = drain.broker, self._view
        if drain.state is DrainState.ASKED:
            alone = [] if drain.forced else await cluster.only_at(name)
            if alone:
                return DrainState.REFUSED, {"message": _refusal(alone)}
            # Saved before anything is changed: the next leader must know which permission to restore.
            return DrainState.DRAINING, {"permission": await cluster.permission(name), "message": ""}
        if drain.state is DrainState.CANCELLING:
            await self._permit(work, name, drain.permission)
            return DrainState.CANCELLED, {"message": ""}
        if await cluster.permission(name) & PERM_WRITE:
            await self._permit(work, name, PERM_READ)
        if drain.state is DrainState.REMOVED:
            return DrainState.REMOVED, {}
        backlog = await cluster.backlog(name)
        left = Left(backlog.groups, master.delayed, next(iter(backlog.failed.values()), ""))
        now = await work.read(lambda connection: int(connection.execute(select(now_ms())).scalar_one()))
        state = ready(drain, left, work.options["settle_seconds"] * 1000, now)
        return state, drains.measured(left)

    async def _permit(self, work: Work, broker: str, permission: int) -> None:
        """Change a broker unless another process leads now, which may have cancelled this drain.

        Raises `LeaseLostError`.
        """
        await work.write(lambda connection: None)
        await self._view.set_permission(broker, permission)


def _move(
    connection: Connection, before: Drain, state: DrainState, work: Work, values: Mapping[str, Any]
) -> bool:
    return drains.move(connection, before, state, work.actor, **values)


def _refusal(topics: list[str]) -> str:
    named = ", ".join(topics[:TOPICS_NAMED]) + (", …" if len(topics) > TOPICS_NAMED else "")
    return (
        f"{len(topics)} topics have no other broker that accepts messages: {named}; create them on another "
        f"broker first, or force the drain"
    )[:500]
