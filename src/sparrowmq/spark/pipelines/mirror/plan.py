"""The plan and the guarantees of a mirror. Starts no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sparrowmq.core.message import MessageQueue
from sparrowmq.loops.event_loop import loop_thread
from sparrowmq.spark.options.table import WriteOptions
from sparrowmq.spark.pipelines.common import reading
from sparrowmq.spark.pipelines.common.steps import Plan, Step, offsets
from sparrowmq.spark.pipelines.mirror.clusters import Side, check_sides
from sparrowmq.spark.pipelines.mirror.directory import MirrorDirectory
from sparrowmq.spark.pipelines.mirror.group_sync import GroupMover
from sparrowmq.spark.pipelines.mirror.settings import MirrorSettings
from sparrowmq.spark.pipelines.mirror.state import MirrorState
from sparrowmq.spark.write.guarantees import broker_without_states

NAME: Final = "mirror"
AT_LEAST_ONCE: Final = "at least once"
NOT_MIRRORED: Final = (
    "system and retry topics, dead letters unless their topic is named, delayed and timed messages before "
    "they are due, open transactions, messages that came from the target"
)


def plan_mirror(settings: MirrorSettings) -> Plan:
    """What `mirror` would do now. Queries both clusters, starts no Spark, changes nothing."""
    home = MirrorDirectory(settings.directory)
    state = home.load(settings.source, settings.target)
    source, target = checked_sides(settings)
    found = reading.queues_of(settings.source_options)
    spans = reading.unread(settings, state.done, found)
    steps = []
    for topic in sorted({queue.topic for queue in found.ends}):
        there = loop_thread().run(target.writable(topic))
        queues = sorted(queue for queue in found.ends if queue.topic == topic)
        steps += _topic_steps(settings, state, topic, queues, there)
        mine = offsets(span for span in spans if span.queue.topic == topic)
        steps.append(Step("send", f"{topic} to {target.name}", mine))
    promised = promise(settings, {queue.topic for queue in found.ends})
    end = f"a batch every {settings.every:g} s until stopped" if settings.follow else "then the end"
    steps.append(
        Step(
            "deliver",
            promised,
            {"batches": f"of at most {settings.batch_rows:,} messages, {end}", "left out": NOT_MIRRORED},
        )
    )
    if settings.groups or settings.group_pattern:
        mover = group_mover(settings, source, target)
        names = ", ".join(loop_thread().run(mover.groups())) or "none yet"
        steps.append(Step("move", f"groups at {target.name} that are not online there", {"groups": names}))
    return Plan(NAME, tuple(steps), sum(map(len, spans)))


def _topic_steps(
    settings: MirrorSettings,
    state: MirrorState,
    topic: str,
    queues: Sequence[MessageQueue],
    there: Sequence[MessageQueue],
) -> list[Step]:
    wanted = len({*queues, *(queue for queue in state.queues if queue.topic == topic)})
    if len(there) >= wanted or not settings.create_topics:
        return []
    action = "grow" if there else "create"
    return [Step(action, f"{topic} at {settings.target}", {"queues": f"{len(there)} now, {wanted} then"})]


def promise(settings: MirrorSettings, topics: Iterable[str]) -> str:
    """The guarantees for the target in its current state."""
    for topic in sorted(topics):
        options = WriteOptions.parse({**settings.sink_options, "topic": topic})
        if not options.idempotent or (other := broker_without_states(options)):
            why = (
                "option delivery is atLeastOnce"
                if not options.idempotent
                else f"broker {other} stores repeated messages again"
            )
            return f"{AT_LEAST_ONCE}, with stable message ids: {why}"
    return "exactly once on SparrowMQ's brokers, at least once with stable message ids on others"


def checked_sides(settings: MirrorSettings) -> tuple[Side, Side]:
    """Both clusters. Raises `SettingsError` when they are the same, or other mirrors use other names for
    them.
    """
    sides = settings.sides
    ask = loop_thread().run
    check_sides(sides, [ask(side.brokers()) for side in sides], [ask(side.known_name()) for side in sides])
    return sides


def group_mover(settings: MirrorSettings, source: Side, target: Side) -> GroupMover:
    """What limits the position of the requested groups at the target."""
    return GroupMover(source, target, settings.groups, settings.group_pattern)
