"""The replay: every message of a settled range once, in order, cleaned, whatever happens in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.support import Topics, numbered
from tests.support import about, until_sync

import sparrowmq as mq
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark import ArchiveSettings, Watch, archive
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.common.queries import PipelineError
from sparrowmq.spark.pipelines.replay.directory import Place, ReplayDirectory, ReplayError
from sparrowmq.spark.pipelines.replay.job import FIRST_ROWS, PART_BYTES, rows_of_next
from sparrowmq.spark.pipelines.replay.plan import plan_replay, promises
from sparrowmq.spark.pipelines.replay.replay import dry_run_replay, replay
from sparrowmq.spark.pipelines.replay.settings import ReplaySettings
from sparrowmq.spark.pipelines.replay.settled import _within

Q = MessageQueue("T", "b", 0)


@pytest.fixture
def settings(topics: Topics, topic: str, tmp_path: Path) -> ReplaySettings:
    topics.cluster.create_topic(f"{topic}_out", queues=2)
    return ReplaySettings(
        home=tmp_path / "replay",
        to=f"{topic}_out",
        topics=(topic,),
        name_server=topics.cluster.namesrv,
        batch_rows=10,
    )


def bodies(topics: Topics, topic: str) -> Counter[str]:
    return Counter(message.body.decode() for message in topics.read(topic))


def once(first: int, end: int) -> Counter[str]:
    return Counter(numbered(first, end))


def numbers(messages: list[mq.ReceivedMessage], queue: int) -> list[int]:
    return [int(one.body[1:]) for one in messages if one.queue.queue_id == queue]


def test_every_message_once_in_order_with_what_it_carries(
    spark: SparkSession, topics: Topics, topic: str, settings: ReplaySettings
) -> None:
    topics.send(topic, 32)
    plan = str(plan_replay(settings))
    assert "32 messages wait" in plan
    assert f"{topic}/broker-a/0: offsets 0 to before 8" in plan
    assert "promise: exactly once\n" in plan and "messages of one queue keep their order" in plan
    assert promises(settings)[0].startswith(f"{topic}_out: exactly once; ")
    assert dry_run_replay(spark, settings) == 32
    assert not topics.read(f"{topic}_out") and not Path(settings.home).exists()

    lags: list[int | None] = []
    done = replay(spark, settings, Watch(lambda progress: lags.append(progress.lag)))
    assert (done.rows, done.batches, done.lag) == (32, 4, 0)
    assert done.size == sum(len(text) for text in numbered(0, 32))
    assert lags == sorted(lags, key=lambda lag: 99 if lag is None else lag, reverse=True)
    sent, stored = topics.read(topic), topics.read(f"{topic}_out")
    assert Counter(one.body.decode() for one in stored) == once(0, 32)
    for number, queue in ((0, 0), (1, 1), (2, 0), (3, 1)):
        # Queue 0 and 2 go to queue 0: each keeps its order there.
        mine = [n for n in numbers(stored, queue) if n % 4 == number]
        assert mine == numbers(sent, number)
    before = {one.body: one for one in sent}
    name = settings.replay_directory.replay()
    assert name is not None
    for one in stored:
        old = before[one.body]
        assert (one.tags, one.keys, one.properties["n"]) == (old.tags, old.keys, old.properties["n"])
        assert one.properties["SPARROW_REPLAY"] == name.id
        assert one.properties["SPARROW_ORIGIN"] == f"{old.queue}/{old.queue_offset}"
        assert one.message_id != old.message_id
    assert len({one.message_id for one in stored}) == 32

    topics.send(topic, 5, first=32)
    assert replay(spark, settings).rows == 0, "what came after the first start does not belong to it"
    assert "0 messages wait" in str(plan_replay(settings))
    with pytest.raises(ReplayError, check=about(setting="where", value="true", limit="")):
        replay(spark, replace(settings, where="true"))


def test_a_topic_replayed_into_itself_ends_and_nothing_is_sent_twice(
    spark: SparkSession,
    topics: Topics,
    topic: str,
    settings: ReplaySettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process dies after a part is sent and before that is noted; then while a task sends."""
    topics.send(topic, 30)
    itself = replace(settings, to="{topic}", ids="keep", mark=False, batch_rows=12)
    saves: list[Place] = []
    save: Callable[[ReplayDirectory, Place], None] = ReplayDirectory.save

    def dying(home: ReplayDirectory, place: Place) -> None:
        saves.append(place)
        if len(saves) == 4:
            raise SettingsError("died")
        save(home, place)

    monkeypatch.setattr(ReplayDirectory, "save", dying)
    with pytest.raises(SettingsError, check=about(args=("died",))):
        replay(spark, itself)
    monkeypatch.setattr(ReplayDirectory, "save", save)
    assert len(topics.read(topic)) == 30 + 24, "two parts are there, one is noted"
    assert itself.replay_directory.place().parts == 1
    done = replay(spark, replace(itself, batch_rows=1000, tasks=1))
    assert (done.rows, done.batches) == (18, 2)
    assert bodies(topics, topic) == Counter(dict.fromkeys(numbered(0, 30), 2))
    assert len({one.message_id for one in topics.read(topic)}) == 30


def test_a_part_that_was_sent_is_done_although_its_messages_are_gone(
    spark: SparkSession,
    topics: Topics,
    topic: str,
    settings: ReplaySettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process dies after a part is sent and before that is noted; then the source loses the messages."""
    topics.send(topic, 12)
    one = replace(settings, batch_rows=100, options={"failOnDataLoss": "false"})
    save: Callable[[ReplayDirectory, Place], None] = ReplayDirectory.save

    def dying(home: ReplayDirectory, place: Place) -> None:
        if place.parts:
            raise SettingsError("died")
        save(home, place)

    monkeypatch.setattr(ReplayDirectory, "save", dying)
    with pytest.raises(SettingsError, check=about(args=("died",))):
        replay(spark, one)
    monkeypatch.setattr(ReplayDirectory, "save", save)
    topics.admin.topics.delete(topic)
    until_sync(lambda: topic not in topics.admin.topics.list())
    topics.cluster.create_topic(topic, queues=4)
    done = replay(spark, one)
    assert (done.rows, done.lag) == (12, 0)
    assert bodies(topics, f"{topic}_out") == once(0, 12)


def test_only_some_and_changed(
    spark: SparkSession, topics: Topics, topic: str, settings: ReplaySettings
) -> None:
    topics.send(topic, 20)
    topics.send(topic, 20, first=20, tags="TagB")
    taken = replace(
        settings,
        tags="TagB",
        where="text <> 'm39' and cast(properties['n'] as int) % 2 = 1",
        values={
            "body": "concat('again ', text)",
            "tags": "upper(tags)",
            "keys": "null",
            "properties": "map_concat(properties, map('was', topic))",
            "sharding_key": "'k'",
        },
        rate=100_000,
    )
    plan = str(plan_replay(taken))
    assert "where: text <> 'm39'" in plan and "100,000 messages a second at most" in plan
    assert "with the same sharding key keep their order" in plan
    assert replay(spark, taken).rows == 9
    stored = topics.read(f"{topic}_out")
    assert Counter(one.body.decode() for one in stored) == Counter(f"again m{n}" for n in range(21, 39, 2))
    assert len({one.queue for one in stored}) == 1
    assert {(one.tags, *one.keys, one.properties["was"]) for one in stored} == {("TAGB", topic)}


def test_an_archive_is_replayed_though_its_files_are_merged_meanwhile(
    spark: SparkSession,
    topics: Topics,
    topic: str,
    settings: ReplaySettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topics.send(topic, 40)
    kept = ArchiveSettings(
        directory=tmp_path / "archive",
        topics=(topic,),
        name_server=topics.cluster.namesrv,
        batch_rows=10,
        compact_batches=0,
    )
    archive(spark, kept)
    queue = topics.producer.queues(topic)[1]
    ranges = (*(Span(q, 2, 10) for q in topics.producer.queues(topic) if q != queue), Span(queue, 0, 10))
    again = replace(
        settings, topics=(), archive=kept.directory, ranges=ranges, ids="keep", tasks=3, batch_rows=15
    )
    save: Callable[[ReplayDirectory, Place], None] = ReplayDirectory.save

    def dying(home: ReplayDirectory, place: Place) -> None:
        if place.parts == 1:
            raise SettingsError("died")
        save(home, place)

    monkeypatch.setattr(ReplayDirectory, "save", dying)
    with pytest.raises(SettingsError, check=about(args=("died",))):
        replay(spark, again)
    monkeypatch.setattr(ReplayDirectory, "save", save)
    topics.send(topic, 1, first=40)
    archive(spark, replace(kept, compact_batches=2))
    assert len(kept.ledger().units) == 1
    assert replay(spark, again).rows == 34
    stored = topics.read(f"{topic}_out")
    left_out = {0, 2, 3, 4, 6, 7}
    assert Counter(int(one.body[1:]) for one in stored) == Counter(set(range(40)) - left_out)
    assert {one.message_id for one in stored} < {one.message_id for one in topics.read(topic)}
    mine = [n for n in numbers(stored, 1) if n % 4 == 1]
    assert mine == sorted(mine) and len(mine) == 10


def test_dead_letters_lose_their_past(
    spark: SparkSession, topics: Topics, topic: str, settings: ReplaySettings
) -> None:
    group = f"G_{topic}"[:100]
    given = mq.ConsumerSettings(namesrv=topics.cluster.namesrv, consume_from="first", max_reconsume_times=0)

    def fail(message: mq.ReceivedMessage) -> None:
        raise ValueError("it fails")

    topics.send(topic, 4)
    with mq.PushConsumer(group, settings=given) as consumer:
        consumer.subscribe(topic, handler=fail)
        until_sync(lambda: (group, 4) in [(s.group, s.messages) for s in topics.admin.dead_letters.groups()])
    letters = replace(settings, topics=(), dead_letters_of=group, mark=False, keep_order=False)
    assert "spread over all queues, without order" in str(plan_replay(letters))
    assert replay(spark, letters).rows == 4
    stored = topics.read(f"{topic}_out")
    assert Counter(one.body.decode() for one in stored) == once(0, 4)
    for one in stored:
        # What a user gave, what the sink sets, and what is set where it is read; nothing of the journey.
        user = {"KEYS", "TAGS", "n"}
        sink = {"UNIQ_KEY", "SPARROW_PRODUCER", "SPARROW_SEQUENCE", "CLUSTER"}
        assert set(one.properties) == user | sink | {"MIN_OFFSET", "MAX_OFFSET", "MSG_REGION", "TRACE_ON"}
        assert one.reconsume_times == 0
    with pytest.raises(ReplayError, check=about(setting="dead_letters_of", value="nobody")):
        plan_replay(replace(letters, home="elsewhere", dead_letters_of="nobody"))


@pytest.mark.parametrize(
    ("values", "error", "text"),
    [
        ({"where": "rand() > 0.5"}, SettingsError, "an expression in where or values is not deterministic"),
        ({"where": "nothing = 1"}, SettingsError, "where='nothing = 1': .*nothing"),
        ({"values": {"tags": "upper("}}, SettingsError, r"tags='upper\(': "),
        ({"values": {"body": "cast(null as string)"}}, PipelineError, "the body is null"),
    ],
)
def test_what_cannot_be_sent(
    spark: SparkSession,
    topics: Topics,
    topic: str,
    settings: ReplaySettings,
    values: dict[str, Any],
    error: type[Exception],
    text: str,
) -> None:
    topics.send(topic, 3)
    with pytest.raises(error, match=text):
        replay(spark, replace(settings, **values))
    assert not topics.read(f"{topic}_out")
    if error is PipelineError:
        with pytest.raises(ReplayError, check=about(what="messages", value=3)):
            dry_run_replay(spark, replace(settings, **values))
    else:
        assert not (Path(settings.home) / "replay.json").exists()


def test_parts_follow_what_the_parts_before_showed() -> None:
    given = ReplaySettings(home="h", to="Out", topics=("T",))
    assert rows_of_next(given, Place()) == FIRST_ROWS
    assert rows_of_next(replace(given, rate=7), Place()) == 70
    small = Place(parts=1, read=1000, sent=1000, bytes_sent=100_000)
    assert rows_of_next(given, small) == 100_000
    large = Place(parts=1, read=1000, sent=1000, bytes_sent=4 * 2**20 * 1000)
    assert rows_of_next(given, large) == PART_BYTES // (4 * 2**20)
    filtered = Place(parts=1, read=1000, sent=10, bytes_sent=1000)
    assert rows_of_next(replace(given, rate=50), filtered) == 50_000
    assert rows_of_next(replace(given, rate=50), small) == 500
    assert rows_of_next(given, Place(parts=1, read=1000)) == 100_000


def test_ranges_must_be_there_and_apart() -> None:
    stored = [Span(Q, 10, 20), Span(Q, 30, 40)]
    assert _within(stored, []) == stored
    assert _within(stored, [Span(Q, 12, 15), Span(Q, 15, 20)]) == [Span(Q, 12, 15), Span(Q, 15, 20)]
    for wrong, what in (
        ([Span(Q, 5, 12)], "offsets"),
        ([Span(Q, 15, 35)], "offsets"),
        ([Span(MessageQueue("T", "b", 7), 0, 1)], "offsets"),
        ([Span(Q, 12, 15), Span(Q, 14, 16)], "overlap"),
    ):
        with pytest.raises(ReplayError, check=about(setting="ranges", what=what)):
            _within(stored, wrong)
