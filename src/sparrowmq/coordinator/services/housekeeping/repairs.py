"""Repairs of findings of the consistency check: named actions that users run, each with its audit entries.

A repair is valid only for the state it was proposed for: it checks the state again, and refuses if it has
changed. A change at a broker cannot be part of a database transaction, so there is one entry before it begins
and one with the result. A change in the database is one transaction with its entry.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection

from sparrowmq.coordinator.cluster.survey import SurveyView
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.records import findings
from sparrowmq.coordinator.records.audit import Actor, record
from sparrowmq.coordinator.records.findings import FindingRow, Repair
from sparrowmq.coordinator.services.groups import limits
from sparrowmq.coordinator.upkeep.consistency_rules import plain
from sparrowmq.coordinator.upkeep.landscape import BrokerTables, Landscape
from sparrowmq.coordinator.users import people
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.errors import RefusedError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from sparrowmq.protocol.bodies.base import convert

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Action:
    """One kind of repair: its description, the required permission, how to read the state and change it."""

    text: Callable[[Arguments], str]
    right: RoleRight
    state: Callable[[Landscape, Arguments], Mapping[str, Any]] | None = None
    act: Callable[[SurveyView, Arguments], Awaitable[None]] | None = None
    store: Callable[[Connection, Arguments, Actor], None] | None = None


def needs(row: FindingRow) -> tuple[RoleRight, list[tuple[str, str]]]:
    """The permission that a finding's repair needs, and its objects. Raises `RefusedError` (409) if there is
    no repair.
    """
    action = _action(row)[0]
    finding = row.finding
    things = [("group", finding.group)] if finding.group else []
    # Offsets belong to the group; a topic's data on brokers belongs to the topic's owners.
    things += [("topic", finding.topic)] if finding.topic and not finding.group else []
    return action.right, things


def words(repair: Repair) -> str:
    """What a repair would do."""
    return ACTIONS[repair.action].text(repair.arguments)


async def run(
    database: Database, survey: SurveyView, number: int, actor: Actor, check: Callable[[Connection], None]
) -> dict[str, Any]:
    """Run the repair of a finding; returns the states before and after.

    `check` runs in the first transaction and raises if the caller has lost the permission. Raises
    `RefusedError`: 404 for a deleted finding, 409 when its state changed or another repair is running, 502
    with the broker's error.
    """
    row = await database.run(lambda: _read(database, number))
    action, repair = _action(row)
    if action.store is not None:
        store = action.store
        await database.run(lambda: _stored(database, number, store, repair.arguments, actor, check))
        return {"before": dict(repair.arguments), "after": None}
    assert action.state is not None and action.act is not None
    before = action.state(await survey.landscape(ends=False), repair.arguments)
    if dict(before) != dict(repair.before):
        raise RefusedError(
            f"finding {number} is out of date: it found {dict(repair.before)}, now it is {dict(before)}; "
            f"run the consistency check again",
            status=409,
            what="finding",
            value=number,
        )
    await database.run(lambda: _begun(database, row, repair, actor, check))
    after: Mapping[str, Any] | None = None
    try:
        await action.act(survey, repair.arguments)
        after = action.state(await survey.landscape(ends=False), repair.arguments)
    except SparrowError as error:
        why = str(error)
        await database.run(lambda: _ended(database, row, actor, {"error": why}, done=False))
        text = f"finding {number} was not repaired: {why}"
        raise RefusedError(text, status=502, what="finding", value=number) from error
    done = dict(after) != dict(before)
    await database.run(lambda: _ended(database, row, actor, dict(after), done=done))
    if not done:
        text = f"the repair of finding {number} changed nothing; the broker cannot do it, or reverted it"
        raise RefusedError(text, status=502, what="repair", value=number)
    return {"before": dict(before), "after": dict(after)}


def _action(row: FindingRow) -> tuple[Action, Repair]:
    repair = row.finding.repair
    if repair is None or repair.action not in ACTIONS:
        text = f"finding {row.id} has no repair: {row.finding.text}"
        raise RefusedError(text, status=409, what="repair", value=row.id)
    return ACTIONS[repair.action], repair


def _read(database: Database, number: int) -> FindingRow:
    with database.read() as connection:
        return findings.one(connection, number)


def _object(row: FindingRow) -> tuple[str, str]:
    finding = row.finding
    return ("group", finding.group) if finding.group else ("topic", finding.topic)


def _begun(
    database: Database, row: FindingRow, repair: Repair, actor: Actor, check: Callable[[Connection], None]
) -> None:
    with database.write() as connection:
        check(connection)
        findings.begin_repair(connection, row.id)
        plan = {"action": repair.action, "finding": row.id, **repair.arguments}
        record(connection, actor, "repair.begin", _object(row), before=repair.before, after=plan)


def _ended(
    database: Database, row: FindingRow, actor: Actor, after: Mapping[str, Any], *, done: bool
) -> None:
    repair = row.finding.repair
    assert repair is not None
    with database.write() as connection:
        findings.end_repair(connection, row.id, done=done)
        name = "repair.done" if done else "repair.failed"
        record(connection, actor, name, _object(row), before=repair.before, after=after)


def _stored(
    database: Database,
    number: int,
    store: Callable[[Connection, Arguments, Actor], None],
    arguments: Arguments,
    actor: Actor,
    check: Callable[[Connection], None],
) -> None:
    with database.write() as connection:
        check(connection)
        findings.begin_repair(connection, number)
        store(connection, arguments, actor)
        findings.end_repair(connection, number, done=True)


# What each action does


def _tables(land: Landscape, arguments: Arguments) -> BrokerTables:
    name = arguments["broker"]
    for broker in land.brokers:
        if broker.name == name:
            return broker
    why = land.failed.get(name, "it no longer exists")
    raise RefusedError(f"{name} could not be checked: {why}", status=409, what="broker", value=name)


def _topic_state(land: Landscape, arguments: Arguments) -> Mapping[str, Any]:
    config = _tables(land, arguments).topics.get(arguments["topic"])
    return {"config": None if config is None else plain(config)}


async def _set_topic(survey: SurveyView, arguments: Arguments) -> None:
    await survey.put_topic(arguments["broker"], convert(arguments["config"], TopicConfig))


def _group_state(land: Landscape, arguments: Arguments) -> Mapping[str, Any]:
    config = _tables(land, arguments).groups.get(arguments["group"])
    return {"config": None if config is None else plain(config)}


async def _set_group(survey: SurveyView, arguments: Arguments) -> None:
    await survey.put_group(arguments["broker"], convert(arguments["config"], SubscriptionGroupConfig))


def _listed_state(land: Landscape, arguments: Arguments) -> Mapping[str, Any]:
    topic = arguments["topic"]
    for broker in land.brokers:
        if topic in broker.topics:
            text = f"{broker.name} now has the topic {topic}"
            raise RefusedError(text, status=409, what="topic", value=topic)
    return {"listed": sorted(address for address, topics in land.listed.items() if topic in topics)}


async def _unlist_topic(survey: SurveyView, arguments: Arguments) -> None:
    await survey.unlist_topic(arguments["topic"])


def _offsets_state(land: Landscape, arguments: Arguments) -> Mapping[str, Any]:
    tables, topic = _tables(land, arguments), arguments["topic"]
    if topic in tables.topics:
        text = f"{tables.name} has the topic {topic} again"
        raise RefusedError(text, status=409, what="topic", value=topic)
    found: dict[str, dict[str, int]] = {}
    for group, offsets in tables.offsets.items():
        of_topic = {str(one.queue_id): offset for one, offset in offsets.items() if one.topic == topic}
        if of_topic:
            found[group] = of_topic
    return {"offsets": found}


async def _clear_topic(survey: SurveyView, arguments: Arguments) -> None:
    await survey.clear_topic(arguments["broker"], arguments["topic"])


def _queue(arguments: Arguments) -> MessageQueue:
    return MessageQueue(arguments["topic"], arguments["broker"], arguments["queue_id"])


def _offset_state(land: Landscape, arguments: Arguments) -> Mapping[str, Any]:
    offsets = _tables(land, arguments).offsets.get(arguments["group"], {})
    return {"offset": offsets.get(_queue(arguments))}


async def _set_offset(survey: SurveyView, arguments: Arguments) -> None:
    await survey.set_offset(arguments["group"], _queue(arguments), arguments["offset"])


def _drop_role(connection: Connection, arguments: Arguments, actor: Actor) -> None:
    people.grant(connection, arguments["person"], (arguments["kind"], arguments["object"]), None, actor)


def _drop_limit(connection: Connection, arguments: Arguments, actor: Actor) -> None:
    limits.remove(connection, arguments["group"], arguments["topic"], actor)


ACTIONS: Final[Mapping[str, Action]] = {
    "set-topic": Action(
        lambda a: f"set the topic {a['topic']} on {a['broker']} to {a['config']}",
        RoleRight.EDIT,
        _topic_state,
        _set_topic,
    ),
    "set-group": Action(
        lambda a: f"set the group {a['group']} on {a['broker']} to {a['config']}",
        RoleRight.EDIT,
        _group_state,
        _set_group,
    ),
    "unlist-topic": Action(
        lambda a: f"remove the topic {a['topic']} from the name servers",
        RoleRight.OPERATE,
        _listed_state,
        _unlist_topic,
    ),
    "clear-topic": Action(
        lambda a: f"delete all offsets of the topic {a['topic']} on {a['broker']}",
        RoleRight.OPERATE,
        _offsets_state,
        _clear_topic,
    ),
    "set-offset": Action(
        lambda a: (
            f"commit offset {a['offset']} for {a['group']} on queue {a['queue_id']} of {a['topic']} on "
            f"{a['broker']}"
        ),
        RoleRight.EDIT,
        _offset_state,
        _set_offset,
    ),
    "drop-role": Action(
        lambda a: f"remove {a['person']}'s role for the {a['kind']} {a['object']}",
        RoleRight.ADMINISTER,
        store=_drop_role,
    ),
    "drop-limit": Action(
        lambda a: f"remove the limit of the group {a['group']} on {a['topic']}",
        RoleRight.EDIT,
        store=_drop_limit,
    ),
}
"""All repairs, by the name that findings use."""
