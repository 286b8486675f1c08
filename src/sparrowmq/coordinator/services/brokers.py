"""The broker check: brokers that do not answer or take no messages, and the drains that people ask for
(pmq:4).

Drained brokers take no messages by the setting `brokerPermission`, which name servers learn with the topics:
producers go elsewhere within their refresh of routes, and nobody's send is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, select

from sparrowmq.coordinator.alarms.table import Check, Condition
from sparrowmq.coordinator.cluster.asking import each
from sparrowmq.coordinator.cluster.fleet import Broker, FleetView
from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.services import drains
from sparrowmq.coordinator.services.drains import MASTER, OVER, Drain, Known, Left, State
from sparrowmq.coordinator.services.frame import Work
from sparrowmq.coordinator.services.schedule import Kind, Option, Report
from sparrowmq.coordinator.services.watch import CALM, Watch, policy_of
from sparrowmq.core.errors import CoordinatorError, SparrowError
from sparrowmq.core.route import PERM_READ, PERM_WRITE

UNREACHABLE: Final = "broker-unreachable"
NOT_WRITABLE: Final = "broker-not-writable"
NAME_SERVERS: Final = "name servers"
TOPICS_NAMED: Final = 10
KIND: Final = Kind(
    "broker-check",
    "Brokers that do not answer or take no messages; drains",
    30_000,
    1_000,
    120.0,
    (
        Option("checks", 2, 1, 100, "checks running that must see it before it fires"),
        Option("canary", 1, 0, 1, "1: each check writes a small message to each master"),
        Option(
            "settle_seconds", 60, 0, 3600, "how long nothing may be sent to a broker before it is drained"
        ),
        CALM,
        Option("reminder_seconds", 3600, 0, 604_800, "how often a firing alarm is told again; 0: once"),
    ),
)


def conditions(
    rows: Iterable[Known], under_way: Mapping[str, Drain]
) -> tuple[list[Condition], list[Condition]]:
    """Who does not answer, and who takes no messages though nobody asked for that. Pure."""
    silent, full = [], []
    for row in rows:
        drain = under_way.get(row.broker)
        if drain is not None and drain.state is State.REMOVED:
            continue
        if row.error:
            what = "master" if row.id == MASTER else f"slave {row.id}"
            text = f"the {what} of broker {row.broker} at {row.address} does not answer: {row.error}"
            silent.append(Condition(f"{row.broker} {row.id}", text))
        elif row.write_error and (drain is None or drain.state in OVER):
            full.append(
                Condition(row.broker, f"the broker {row.broker} takes no messages: {row.write_error}")
            )
    return silent, full


def ready(drain: Drain, left: Left, settle_ms: int, now: int) -> State:
    """Where a drain goes that found this left. Pure."""
    if drain.state is State.REMOVING:
        return State.REMOVED if left.nothing else State.DRAINING
    settled = drain.state is State.DRAINED or now - drain.changed_at >= settle_ms
    return State.DRAINED if left.nothing and settled else State.DRAINING


class BrokerCheck(Watch[FleetView]):
    """Looks at all brokers, brings their alarms up to date, and goes on with the drains."""

    kind = KIND

    async def step(self, work: Work) -> Report:
        """One look at every broker. Raises `CoordinatorError` when no name server tells of any."""
        under_way = await work.read(drains.all_drains)
        try:
            brokers = await self._view.brokers()
        except SparrowError as error:
            text = f"no name server tells which brokers there are: {error}"
            await self._bring(work, [Condition(NAME_SERVERS, text)], None)
            raise CoordinatorError(text) from error
        errors = await self._write_errors(brokers, under_way, canary=bool(work.options["canary"]))
        rows = await work.write(partial(drains.note, brokers=brokers, write_errors=errors))
        counts = await self._bring(work, *conditions(rows, under_way))
        counts |= {"brokers": len(brokers), "drains": 0}
        for drain in under_way.values():
            if drain.state not in OVER:
                counts["drains"] += 1
                await self._advance(work, drain, brokers)
        return Report(counts, next((f"{row.broker}: {row.error}" for row in rows if row.error), ""))

    async def _bring(
        self, work: Work, silent: list[Condition], full: list[Condition] | None
    ) -> dict[str, int]:
        """Without `full` nobody could look: alarms of brokers stay as they are."""
        policy = policy_of(work.options)
        unknown = () if full is not None else ("",)
        checks = [Check(UNREACHABLE, policy, tuple(silent), unknown)]
        if full is not None:
            checks.append(Check(NOT_WRITABLE, policy, tuple(full)))
        return await work.write(partial(self._observe, work=work, checks=checks))

    async def _write_errors(
        self, brokers: list[Broker], under_way: Mapping[str, Drain], *, canary: bool
    ) -> dict[str, str]:
        """Why masters that answer, and are not being emptied, take no messages."""
        found: dict[str, str] = {}

        async def look(name: str) -> None:
            permission = await self._view.permission(name)
            if not permission & PERM_WRITE:
                found[name] = f"its brokerPermission is {permission}; to write it needs {PERM_WRITE}"
            elif canary:
                await self._view.write(name)

        drained = {name for name, drain in under_way.items() if drain.state not in OVER}
        masters = (one.name for one in brokers if one.id == MASTER and not one.error)
        await each((name for name in masters if name not in drained), look, found)
        return found

    async def _advance(self, work: Work, drain: Drain, brokers: list[Broker]) -> None:
        """Go on with a drain as far as it goes now."""
        here = [one for one in brokers if one.name == drain.broker]
        if drain.state is State.REMOVED and not here:
            await work.write(partial(drains.end, found=drain, actor=work.actor))
            return
        state, values = await self._next(work, drain, here)
        noted = await work.write(partial(_move, before=drain, state=state, work=work, values=values))
        if noted and drain.state is State.ASKED and state is State.DRAINING:
            await self._advance(work, (await work.read(drains.all_drains))[drain.broker], brokers)

    async def _next(self, work: Work, drain: Drain, here: list[Broker]) -> tuple[State, dict[str, Any]]:
        """The drain's next state and what is noted with it; the same state when the broker does not obey."""
        master = next((one for one in here if one.id == MASTER), None)
        if master is None or master.error:
            why = drains.NOT_REGISTERED if master is None else master.error
            return drain.state, {"message": f"it waits, because the broker does not answer: {why}"[:500]}
        try:
            return await self._changed(work, drain, master)
        except SparrowError as error:
            return drain.state, {"message": f"it is tried again: {error}"[:500]}

    async def _changed(self, work: Work, drain: Drain, master: Broker) -> tuple[State, dict[str, Any]]:
        name, cluster = drain.broker, self._view
        if drain.state is State.ASKED:
            alone = [] if drain.forced else await cluster.only_at(name)
            if alone:
                return State.REFUSED, {"message": _refusal(alone)}
            # Kept before anything is changed: who leads next must know what to give back.
            return State.DRAINING, {"permission": await cluster.permission(name), "message": ""}
        if drain.state is State.CANCELLING:
            await self._permit(work, name, drain.permission)
            return State.CANCELLED, {"message": ""}
        if await cluster.permission(name) & PERM_WRITE:
            await self._permit(work, name, PERM_READ)
        if drain.state is State.REMOVED:
            return State.REMOVED, {}
        backlog = await cluster.backlog(name)
        left = Left(backlog.groups, master.delayed, next(iter(backlog.failed.values()), ""))
        now = await work.read(lambda connection: int(connection.execute(select(now_ms())).scalar_one()))
        state = ready(drain, left, work.options["settle_seconds"] * 1000, now)
        return state, drains.measured(left)

    async def _permit(self, work: Work, broker: str, permission: int) -> None:
        """Change a broker unless another process leads by now, and may have cancelled what is done here.

        Raises `LeaseLostError`.
        """
        await work.write(lambda connection: None)
        await self._view.set_permission(broker, permission)


def _move(connection: Connection, before: Drain, state: State, work: Work, values: Mapping[str, Any]) -> bool:
    return drains.move(connection, before, state, work.actor, **values)


def _refusal(topics: list[str]) -> str:
    named = ", ".join(topics[:TOPICS_NAMED]) + (", …" if len(topics) > TOPICS_NAMED else "")
    return (
        f"no other broker takes messages of {len(topics)} topics: {named}; make them on another one first, "
        "or force it"
    )[:500]
