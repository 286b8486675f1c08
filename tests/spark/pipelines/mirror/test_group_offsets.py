"""Groups that go from cluster to cluster read every message, whatever mirrors and they do when."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.conftest import EXAMPLES
from tests.support import run

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.pipelines.mirror import group_offsets
from sparrowmq.spark.pipelines.mirror.group_offsets import Budget, OriginPage, ReturnedOffsets, Translator
from sparrowmq.spark.pipelines.mirror.offset_map import QueuePlaces
from sparrowmq.spark.pipelines.mirror.rows import Origin

BROKERS = {"A": MessageQueue("T", "broker-a", 0), "B": MessageQueue("T", "broker-b", 3)}
OTHER = {"A": "B", "B": "A"}


@dataclass
class StubLog:
    """One queue; `rows` are messages and their origins. Messages before `first` are deleted.

    Pages may go beyond what was asked for.
    """

    rows: list[tuple[str, Origin | None]] = field(default_factory=list)
    first: int = 0
    page_max: int = 3
    read: int = 0

    @property
    def end(self) -> int:
        return len(self.rows)

    async def page(self, queue: MessageQueue, start: int, end: int) -> OriginPage:
        if start < self.first:
            return OriginPage((), self.first)
        stop = min(start + self.page_max, self.end)
        found = [(offset, self.rows[offset][1]) for offset in range(start, stop)]
        self.read += len(found)
        return OriginPage(found, max(start, stop))


class World:
    """Two clusters with a queue each, mirrors both ways, and a group that reads at one of them."""

    def __init__(self) -> None:
        self.logs = {"A": StubLog(), "B": StubLog()}
        self.mirrored = {"A": 0, "B": 0}
        self.places: dict[str, QueuePlaces] = {}
        self.committed: dict[str, int | None] = {"A": 0, "B": None}
        self.at = "A"
        self.seen: set[str] = set()
        self.sent: set[str] = set()
        self.translators = {
            name: Translator(name, self.logs[to], ReturnedOffsets(self.logs[name], to))
            for name, to in OTHER.items()
        }

    def produce(self, name: str, count: int) -> None:
        for _ in range(count):
            text = f"{name}{self.logs[name].end}"
            self.logs[name].rows.append((text, None))
            self.sent.add(text)

    def mirror(self, name: str, count: int, twice: bool) -> None:
        """A batch from `name` to the other one; its first part may come twice."""
        log, to = self.logs[name], OTHER[name]
        self.places.setdefault(to, QueuePlaces(self.logs[to].end))
        start, end = self.mirrored[name], min(self.mirrored[name] + count, self.logs[name].end)
        kept = [offset for offset in range(start, end) if log.rows[offset][1] is None]
        copies = [
            (log.rows[offset][0], Origin(name, BROKERS[name].broker_name, BROKERS[name].queue_id, offset))
            for offset in kept
        ]
        self.logs[to].rows += (copies[: len(copies) // 2] if twice else []) + copies
        places, grown = self.places[to], self.logs[to].end
        if len(kept) == end - start and grown - places.end == end - start:
            self.places[to] = places.grown(grown, BROKERS[name], start)
        else:
            self.places[to] = places.grown(grown)
        self.mirrored[name] = end

    def consume(self, count: int) -> None:
        log, start = self.logs[self.at], self.committed[self.at] or 0
        end = min(start + count, log.end)
        self.seen.update(text for text, _ in log.rows[start:end])
        self.committed[self.at] = end

    def move(self, budget: int = 10**6) -> None:
        """What the mirror from where the group reads does for it at the other cluster."""
        to = OTHER[self.at]
        read = self.committed[self.at]
        assert read is not None
        now = self.committed[to]
        offset = run(
            self.translators[self.at].position(
                BROKERS[to],
                self.places.get(to, QueuePlaces(0)),
                now or 0,
                {BROKERS[self.at]: read},
                Budget(budget),
            )
        )
        for text, _ in self.logs[to].rows[max(now or 0, self.logs[to].first) : offset]:
            assert text in self.seen
        self.committed[to] = max(offset, now or 0)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("produce"), st.sampled_from("AB"), st.integers(1, 6)),
        st.tuples(st.just("mirror"), st.sampled_from("AB"), st.integers(1, 8), st.booleans()),
        st.tuples(st.just("consume"), st.integers(1, 8)),
        st.tuples(st.just("move"), st.sampled_from([2, 7, 10**6])),
        st.tuples(st.just("switch")),
    ),
    max_size=40,
)


BEYOND = [
    ("produce", "A", 1),
    ("switch",),
    ("mirror", "A", 1, False),
    ("consume", 1),
    ("mirror", "B", 1, False),
    ("produce", "A", 1),
    ("switch",),
]
"""What is read at the target ends before a message that is unread, and the page has it, too."""


@settings(max_examples=EXAMPLES * 3 // 2)
@example(BEYOND)
@given(STEPS)
def test_a_group_that_goes_to_and_fro_misses_nothing(steps: list[tuple[object, ...]]) -> None:
    world = World()
    for name, *arguments in steps:
        if name == "switch":
            world.move()
            world.at = OTHER[world.at]
        else:
            getattr(world, str(name))(*arguments)
    for _ in range(2):
        world.mirror("A", 10**6, False)
        world.mirror("B", 10**6, False)
    world.consume(10**6)
    assert world.sent <= world.seen


def test_a_mirror_alone_is_translated_without_reading() -> None:
    world = World()
    for _ in range(5):
        world.produce("A", 20)
        world.mirror("A", 20, False)
    world.consume(73)
    world.move()
    assert world.committed["B"] == 73
    assert world.logs["B"].read == 0


def test_there_and_back_without_reading_anything_twice() -> None:
    world = World()
    world.produce("A", 100)
    world.mirror("A", 80, False)  # 20 are not there when A fails
    world.consume(60)
    world.move()
    world.at = "B"
    world.produce("B", 50)
    world.consume(70)  # 60 to 79 of A, then all of B's
    world.mirror("B", 10**6, False)
    world.move()
    assert world.committed["A"] == 80  # A's last 20 wait at both
    world.mirror("A", 10**6, False)
    world.consume(20)
    world.move()
    assert world.committed["A"] == 150
    assert world.seen == world.sent


def test_what_others_write_at_the_target_counts_as_unread() -> None:
    world = World()
    world.produce("A", 10)
    world.mirror("A", 5, False)
    world.produce("B", 2)
    world.mirror("A", 5, False)
    world.consume(10)
    world.move()
    assert world.committed["B"] == 5


def test_duplicates_at_the_target_are_passed_over() -> None:
    world = World()
    world.produce("A", 10)
    world.mirror("A", 8, True)
    world.consume(6)
    world.move()
    assert world.committed["B"] == 4 + 6


def test_deleted_messages_are_passed_over_and_deleted_copies_searched_no_further() -> None:
    world = World()
    world.produce("B", 3)
    world.produce("A", 10)
    world.mirror("A", 10, False)  # behind three of B's own
    world.logs["B"].first = 3
    world.consume(4)
    world.move()
    assert world.committed["B"] == 3 + 4
    world.logs["A"].first = 9
    assert run(ReturnedOffsets(world.logs["A"], "B").last(BROKERS["A"], 10, BROKERS["B"], Budget())) == -1


def test_a_search_backwards_reads_each_part_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "PAGE", 10)
    log = StubLog([("x", Origin("B", "broker-b", 3, 41))] + [("y", None)] * 200)
    returned = ReturnedOffsets(log, "B")

    def last(before: int, budget: int) -> int:
        return run(returned.last(BROKERS["A"], before, BROKERS["B"], Budget(budget)))

    assert last(100, 50) == -1  # the budget ends half-way
    read = log.read
    assert read <= 50 * 1.4
    assert last(100, 0) == -1
    assert last(100, 20) == -1
    assert log.read - read <= 20 * 1.4
    assert last(120, 1000) == 41
    assert log.read <= 121 * 1.4
    before = log.read
    assert last(150, 1000) == 41
    assert log.read - before <= 30 * 1.4
    assert last(120, 0) == 41


def test_own_messages_that_never_came_back_are_unread() -> None:
    world = World()
    world.produce("B", 1)
    world.produce("A", 3)
    world.mirror("A", 3, False)
    world.consume(3)
    world.move()
    assert world.committed["B"] == 0


def test_copies_from_a_third_cluster_are_the_targets_own() -> None:
    log = StubLog([("x", Origin("C", "broker-a", 0, 0)), ("y", Origin("A", "broker-a", 0, 0))])
    source = StubLog([("y", None), ("x", Origin("B", "broker-b", 3, 0))])
    translator = Translator("A", log, ReturnedOffsets(source, "B"))

    def position(read: int) -> int:
        work = translator.position(BROKERS["B"], QueuePlaces(0).grown(2), 0, {BROKERS["A"]: read}, Budget())
        return run(work)

    assert position(1) == 0
    assert position(2) == 2


def test_messages_that_were_not_read_are_given_back_to_the_budget() -> None:
    world = World()
    world.produce("A", 10)
    world.mirror("A", 10, True)
    world.consume(10)
    world.move(budget=15)
    assert world.committed["B"] == 15
    assert world.logs["B"].read <= 15


def test_an_end_that_cannot_be_read_stops_there() -> None:
    log = StubLog([("x", None)] * 4)
    places = QueuePlaces(0).grown(10)
    translator = Translator("A", log, ReturnedOffsets(log, "B"))
    known = {BROKERS["A"]: 10**6}
    log.rows = [("x", Origin("A", "broker-a", 0, offset)) for offset in range(4)]
    assert run(translator.position(BROKERS["B"], places, 0, known, Budget())) == 4
