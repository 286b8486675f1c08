"""An audit of messages whose fate is known: all is named that is wrong, and nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.support import Topics
from tests.support import about

import sparrowmq as mq
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.trace import PubTrace, SubAfterTrace, Trace, encode_trace
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.archive.archive import ArchiveSettings, archive
from sparrowmq.spark.pipelines.audit.audit import audit, dry_run_audit, plan_audit
from sparrowmq.spark.pipelines.audit.settings import AuditedGroup, AuditSettings
from sparrowmq.spark.pipelines.audit.verdict import Status, Verdict
from sparrowmq.spark.pipelines.common.queries import PipelineError
from sparrowmq.spark.pipelines.common.watch import Progress, Watch
from sparrowmq.spark.pipelines.query import stored


class Scene:
    """A topic, its messages, and traces of them that are written by hand."""

    def __init__(self, topics: Topics, topic: str, where: Path) -> None:
        self.topics = topics
        self.topic = topic
        self.traces = f"{topic}_traces"[-100:]
        self.where = where
        self.began = int(time.time() * 1000)
        topics.cluster.create_topic(self.traces, queues=2)

    def send(self, count: int, tags: str = "x") -> list[mq.SendResult]:
        """Messages with keys `k0`, `k1`, …"""
        return [
            self.topics.producer.send(mq.Message(self.topic, b"m", tags=tags, keys=[f"k{number}"]))
            for number in range(count)
        ]

    def trace(self, traces: Iterable[Trace]) -> None:
        """Write records as clients do."""
        body = "".join(map(encode_trace, traces)).encode()
        self.topics.producer.send(mq.Message(self.traces, body))

    def sent(self, *ids: str) -> list[Trace]:
        """Records of sends, now."""
        now = int(time.time() * 1000)
        return [
            PubTrace(time=now, region="R", group="p", topic=self.topic, message_id=name, keys=f"key-{name}")
            for name in ids
        ]

    def consumed(self, *ids: str, ok: bool = True, after: float = 0.0) -> list[Trace]:
        """Records of the group g."""
        now = int((time.time() + after) * 1000)
        return [
            SubAfterTrace(request_id=f"r{number}{ok}", message_id=name, success=ok, time=now, group="g")
            for number, name in enumerate(ids)
        ]

    def settings(self, **more: Any) -> AuditSettings:
        values = {
            "directory": self.where,
            "topics": (self.topic,),
            "name_server": self.topics.cluster.namesrv,
            "since": self.began - 1000,
            "trace_topic": self.traces,
            "late_seconds": 0.0,
            "margin_seconds": 0.0,
            **more,
        }
        return AuditSettings(**values)


@pytest.fixture
def scene(topics: Topics, topic: str, tmp_path: Path) -> Scene:
    return Scene(topics, topic, tmp_path / "audit")


def later() -> float:
    """Some seconds ahead: what is stored now is long ago."""
    return time.time() + 5


def named(verdict: Verdict) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one in verdict.shown:
        found.setdefault(one["kind"], set()).add(one["id"])
    return found


def test_all_is_well(spark: SparkSession, scene: Scene) -> None:
    ids = [result.message_id for result in scene.send(6)]
    scene.trace(scene.sent(ids[0], f"{ids[1]},{ids[2]}", *ids[3:]))
    scene.trace(scene.consumed(*ids))
    settings = scene.settings(groups=(AuditedGroup("g"),), late_seconds=2.0)
    seen: list[Progress] = []
    assert plan_audit(settings, later).rows == 8
    assert dry_run_audit(spark, settings, later) == {"stored": 6, "traces": 2}
    assert not scene.where.exists()
    verdict = audit(spark, settings, Watch(seen.append), later)
    assert verdict.status is Status.WHOLE and verdict.found == {}
    assert (verdict.sent, verdict.stored, verdict.consumed) == (6, 6, {"g": 6})
    assert sum(one.messages for one in verdict.ranges) == 6
    written = json.loads((scene.where / "verdict.json").read_text())
    assert written == verdict.to_json() and written["status"] == 0
    assert (seen[-1].rows, seen[-1].lag) == (8, 0) and {one.lag for one in seen} >= {8, 0}


def test_everything_that_is_wrong_is_named(spark: SparkSession, scene: Scene) -> None:
    ids = [result.message_id for result in scene.send(6)]
    well, missed, twice, failed, late, stranger = ids
    scene.trace(scene.sent(well, missed, twice, failed, late, "GONE"))
    scene.trace(scene.consumed(well, twice, stranger))
    scene.trace([*scene.consumed(failed, ok=False), *scene.consumed(late, after=4)])
    again = [
        replace(one, request_id="again") for one in scene.consumed(twice) if isinstance(one, SubAfterTrace)
    ]
    scene.trace(again)
    settings = scene.settings(groups=(AuditedGroup("g"),), late_seconds=2.0)
    verdict = audit(spark, settings, None, later)
    assert named(verdict) == {
        "lost": {"GONE"},
        "unknown": {stranger},
        "missed": {missed},
        "consumed_twice": {twice},
        "failed": {failed},
        "late": {late},
    }
    assert verdict.status is Status.BROKEN
    assert verdict.consumed == {"g": 4}
    found = spark.read.parquet(str(scene.where / "findings"))
    assert found.count() == 6
    lost = found.where("kind = 'lost'").first()
    assert lost is not None and lost["topic"] == scene.topic and lost["stored_at"] is None

    allow = {"lost": 1, "missed": 1, "consumed_twice": 1}
    few = audit(spark, replace(settings, allow=allow, shown=2), None, later)
    assert few.status is Status.WHOLE and len(few.shown) == 2 and sum(few.found.values()) == 6
    assert spark.read.parquet(str(scene.where / "findings")).count() == 6, "the earlier findings are replaced"


def test_by_offsets_of_a_group_and_of_queues(spark: SparkSession, scene: Scene) -> None:
    results = scene.send(8)
    queue = results[0].queue
    mine = [result.message_id for result in results if result.queue == queue]
    tail = Span(queue, 0, len(mine))
    scene.topics.admin.groups.create("audited")
    scene.topics.admin.groups.commit("audited", queue, 1)
    settings = scene.settings(
        since=None, spans=(tail,), with_sent=False, groups=(AuditedGroup("audited"),), margin_seconds=9.0
    )
    assert f"{queue}: offsets 0 to before {len(mine)}" in str(plan_audit(settings))
    verdict = audit(spark, settings, None, later)
    assert verdict.sources["consumed by audited"] == "offsets of the group"
    assert (verdict.stored, verdict.consumed) == (len(mine), {"audited": 1})
    assert named(verdict) == {"missed": set(mine[1:])}
    tagged = replace(settings, groups=(AuditedGroup("audited", frozenset({"y"})),))
    assert audit(spark, tagged, None, later).found == {}
    beyond = replace(settings, spans=(Span(queue, 0, len(mine) + 1),))
    with pytest.raises(PipelineError, match=f"endingOffsets gives offset {len(mine) + 1} for"):
        audit(spark, beyond, None, later)
    with pytest.raises(SettingsError, check=about(setting="groups", value="nobody")):
        audit(spark, replace(settings, groups=(AuditedGroup("nobody"),)), None, later)


def test_dead_letters(spark: SparkSession, scene: Scene) -> None:
    (result,) = scene.send(1)
    reader = "spark_tests_reader"
    scene.topics.admin.groups.create(reader)
    (message,) = scene.topics.read(scene.topic)
    scene.topics.consumer.send_back(message, delay_level=-1)
    scene.topics.admin.groups.commit(reader, result.queue, 1)
    settings = scene.settings(with_sent=False, groups=(AuditedGroup(reader),))
    for chosen, name in ((settings, result.message_id), (replace(settings, match="keys"), "k0")):
        verdict = audit(spark, chosen, None, later)
        assert named(verdict) == {"failed": {name}}
        assert verdict.shown[0]["detail"] == "dead letter"
    assert verdict.status is Status.WHOLE, "failures are allowed unless told otherwise"
    assert audit(spark, replace(settings, allow={"failed": 0}), None, later).status is Status.BROKEN


def test_a_ledger(spark: SparkSession, scene: Scene, tmp_path: Path) -> None:
    scene.send(3)
    now = int(time.time() * 1000)
    ledger = tmp_path / "sent.csv"
    ledger.write_text("key,at\n" + "".join(f"k{number},{now - number}\n" for number in (0, 1, 7)))
    settings = scene.settings(
        ledger=str(ledger),
        ledger_columns={"topic": f"'{scene.topic}'", "id": "key", "time": "at"},
        match="keys",
    )
    verdict = audit(spark, settings, None, later)
    assert named(verdict) == {"lost": {"k7"}, "unknown": {"k2"}}
    assert verdict.status is Status.BROKEN and verdict.sources["sent"] == f"ledger {ledger}"


def test_what_cannot_be_judged(
    spark: SparkSession, scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (result, *_) = scene.send(2)
    untraced = audit(spark, scene.settings(), None, later)
    assert untraced.status is Status.NOT_JUDGED
    assert "traces: no sent message is recorded for that time" in "\n".join(untraced.lines())
    nowhere = audit(spark, scene.settings(trace_topic="NoTracesHere"), None, later)
    assert "there is no topic NoTracesHere with traces" in "\n".join(nowhere.lines())
    scene.trace(scene.sent(result.message_id, "GONE"))
    monkeypatch.setattr(stored, "_live_gaps", lambda where, *_: [f"{where.topics[0]} was cut"])
    cut = audit(spark, scene.settings(), None, later)
    assert cut.status is Status.NOT_JUDGED, "what is deleted may be what is missing"
    assert f"{scene.topic} was cut" in "\n".join(cut.lines())


def in_space(topics: Topics, space: str, topic: str, traces: str, count: int) -> list[str]:
    """Traced messages of a name space, all read by its group `g`; their ids."""
    topics.cluster.create_topic(f"{space}%{topic}", queues=1)
    shared: dict[str, Any] = {"namesrv": topics.cluster.namesrv, "namespace": space, "trace": True}
    with mq.Producer("p", settings=mq.ProducerSettings(**shared, trace_topic=traces)) as producer:
        sent = [producer.send(mq.Message(topic, b"m", keys=[f"k{number}"])) for number in range(count)]
    pulling = mq.PullSettings(**shared, trace_topic=traces, consume_from="first")
    with mq.PullConsumer("g", settings=pulling) as consumer:
        consumer.assign([sent[0].queue])
        read: list[str] = []
        while len(read) < count:
            read += [message.message_id for message in consumer.poll(5.0)]
    assert read == [result.message_id for result in sent]
    return read


@pytest.mark.proves("client:B-123")
def test_name_spaces_are_told_apart_though_traces_have_no_word_of_them(
    spark: SparkSession, scene: Scene
) -> None:
    """Two name spaces have a topic and a group of one name; all traces go to one topic."""
    mine = in_space(scene.topics, "A", scene.topic, scene.traces, 3)
    other = in_space(scene.topics, "B", scene.topic, scene.traces, 2)
    settings = scene.settings(topics=(f"A%{scene.topic}",), groups=(AuditedGroup("A%g"),), late_seconds=2.0)
    verdict = audit(spark, settings, None, later)
    assert verdict.status is Status.WHOLE and verdict.found == {}, verdict.lines()
    assert (verdict.sent, verdict.stored, verdict.consumed) == (3, 3, {"A%g": 3})
    assert verdict.sources["consumed by A%g"].startswith("traces in")

    both = replace(settings, topics=(f"A%{scene.topic}", f"B%{scene.topic}"))
    verdict = audit(spark, both, None, later)
    assert (verdict.status, verdict.sent, verdict.consumed) == (Status.WHOLE, 5, {"A%g": 3})
    scene.trace(scene.sent("GONE"))
    verdict = audit(spark, settings, None, later)
    assert named(verdict) == {"undecided": {"GONE"}} and verdict.status is Status.NOT_JUDGED
    assert "1 traced sends are stored in none of " in "\n".join(verdict.lines())
    assert len({*mine, *other}) == 5


def test_in_an_archive(spark: SparkSession, scene: Scene, tmp_path: Path) -> None:
    ids = [result.message_id for result in scene.send(4)]
    scene.trace(scene.sent(*ids, "GONE"))
    where, namesrv = tmp_path / "archive", scene.topics.cluster.namesrv
    archive(spark, ArchiveSettings(directory=where, topics=(scene.topic, scene.traces), name_server=namesrv))
    until = int(time.time() * 1000)
    more = scene.send(1)
    scene.trace(scene.sent(more[0].message_id))
    both = audit(spark, scene.settings(archive=where), None, later)
    assert (both.sent, both.stored, named(both)) == (6, 5, {"lost": {"GONE"}})
    assert both.sources["stored"] == f"archive {where} and the live log"
    alone = audit(spark, scene.settings(archive=where, live=False, until=until), None, later)
    assert (alone.sent, alone.stored) == (5, 4)
    assert alone.status is Status.NOT_JUDGED and "ends before" in "\n".join(alone.lines())
    queue = MessageQueue(scene.topic, both.ranges[0].broker, both.ranges[0].queue_id)
    part = scene.settings(archive=where, since=None, spans=(Span(queue, 0, 1),), margin_seconds=9.0)
    one = audit(spark, part, None, later)
    assert [(found.queue_id, found.first, found.last) for found in one.ranges] == [(queue.queue_id, 0, 0)]
