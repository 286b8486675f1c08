"""The plan and the guarantees of a replay. Starts no Spark."""

from __future__ import annotations

from typing import Final

from sparrowmq.spark.offsets.offsets import describe
from sparrowmq.spark.options.table import WriteOptions
from sparrowmq.spark.pipelines.common import writing
from sparrowmq.spark.pipelines.common.steps import AT_MOST, WAIT, Plan, Step, reads
from sparrowmq.spark.pipelines.replay.settings import TOPIC, ReplaySettings
from sparrowmq.spark.pipelines.replay.settled import settled

NAME: Final = "replay"


def plan_replay(settings: ReplaySettings) -> Plan:
    """The current plan and guarantees of `replay`. Queries the clusters, starts no Spark, writes nothing."""
    home = settings.replay_directory
    replay, place = settled(settings, home), home.place()
    left = place.left(replay)
    steps = reads("read" if settings.archive is None else "read archive", left)
    filters = {"tags": settings.tags, "sql92": settings.sql92, "where": settings.where}
    if any(filters.values()):
        given = {name: text for name, text in filters.items() if text}
        steps.append(Step("take", "only some", given))
    if settings.values:
        steps.append(Step("change", ", ".join(settings.values), settings.values))
    for topic in sorted(replay.targets):
        target = writing.target(settings.sink_options(topic))
        details = {
            "queues": describe(replay.targets[topic]),
            "promise": _promise(settings, target),
            "order": _order(settings),
            "unique ids": "kept" if settings.ids == "keep" else "new ones, the same in every attempt",
        }
        if settings.rate is not None:
            details["rate"] = f"{settings.rate:,} messages a second at most"
        steps.append(Step("send to", target.topic, details))
    rows = sum(map(len, left))
    return Plan(NAME, tuple(steps), rows, AT_MOST if any(filters.values()) else WAIT)


def promises(settings: ReplaySettings) -> list[str]:
    """The guarantees of a run, a line for each target topic. Queries the clusters."""
    replay = settled(settings, settings.replay_directory)
    targets = {settings.to.replace(TOPIC, topic): topic for topic in sorted(replay.targets)}
    lines = []
    for name, topic in targets.items():
        target = writing.target(settings.sink_options(topic))
        lines.append(f"{name}: {_promise(settings, target)}; {_order(settings)}")
    return lines


def _promise(settings: ReplaySettings, target: writing.Target) -> str:
    if target.forgetful:
        return (
            f"at least once: broker {target.forgetful} does not support idempotent producers; messages "
            f"that a restart sends again keep their unique ids"
        )
    if not WriteOptions.parse(settings.sink_options(target.topic)).idempotent:
        return "at least once: option delivery is atLeastOnce"
    if settings.may_lose:
        return "exactly once, unless messages are deleted between two attempts of a part"
    return "exactly once"


def _order(settings: ReplaySettings) -> str:
    if "sharding_key" in settings.values:
        return "messages of one queue with the same sharding key keep their order"
    if settings.names_queues:
        return "messages of one queue keep their order, and go to one queue"
    return "spread over all queues, without order"
