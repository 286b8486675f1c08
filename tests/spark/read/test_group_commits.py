"""A stream commits to a group that is its own, and never moves one that others consume in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest
from tests.spark.stubs import StubBroker

from sparrowmq.core.errors import ConnectionLostError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import StreamOffset
from sparrowmq.spark.options.table import ReadOptions
from sparrowmq.spark.read.group_commits import CHECK_SECONDS, GroupProgress
from sparrowmq.spark.read.lookup import Lookup

T = TypeVar("T")


class Query:
    """One query's reports, over its starts, with a clock by hand."""

    def __init__(self, mode: str = "unused", group: str | None = "g") -> None:
        self.broker = StubBroker()
        self.queue = self.broker.add(0, 100)
        self.time = 0.0
        given = {"nameServer": "stub:1", "subscribe": "t", "commitToGroup": mode}
        self.options = ReadOptions.parse(given | ({"groupId": group} if group else {}), "stream", {})
        self.offset = StreamOffset({self.queue: 0}, initial=True)
        self.start()

    def start(self) -> None:
        lookup = Lookup(self.broker, self.broker.admin, self.options)

        def ask(question: Callable[[Lookup], Awaitable[T]], timeout: float) -> T:
            async def work() -> T:
                return await question(lookup)

            return asyncio.run(work())

        self.progress = GroupProgress(ask, self.options, lambda: self.time)

    def batch(self, end: int) -> int | None:
        """Plan a batch and, when it is done, report it; what the group is at then."""
        own = self.progress.own_group(self.offset, {self.queue: 100})
        self.offset = StreamOffset.from_json(StreamOffset({self.queue: end}, own_group=own).to_json())
        self.time += CHECK_SECONDS
        self.progress.report(self.offset)
        return self.broker.commits.get(self.queue)


@pytest.fixture(autouse=True)
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.WARNING, "sparrowmq.spark"):
        yield caplog


def test_a_query_with_an_exclusive_group_commits_to_it_across_restarts(
    warnings: pytest.LogCaptureFixture,
) -> None:
    query = Query()
    query.progress.report(query.offset)
    assert query.broker.commits == {}, "where a query starts is nothing that was read"
    assert [query.batch(end) for end in (10, 20)] == [10, 20]
    query.start()
    assert query.batch(30) == 30
    calls = query.broker.calls
    query.progress.report(query.offset)
    assert query.broker.calls == calls, "nothing new"
    assert not warnings.records


@pytest.mark.parametrize("committed", [5, 70])
def test_a_group_with_offsets_is_never_moved(committed: int, warnings: pytest.LogCaptureFixture) -> None:
    query = Query()
    query.broker.commits[query.queue] = committed
    assert [query.batch(end) for end in (10, 20)] == [committed, committed]
    query.start()
    assert query.batch(30) == committed
    text = warnings.records[0].message
    assert f"groupId='g': others committed there, offset {committed} in queue {query.queue}" in text
    assert "commitToGroup=always" in text and len(warnings.records) == 2, "once for each start"


def test_an_offset_of_zero_is_what_brokers_answer_for_none() -> None:
    query = Query()
    query.broker.commits[query.queue] = 0
    assert query.batch(10) == 10


def test_a_group_with_members_is_never_moved(warnings: pytest.LogCaptureFixture) -> None:
    query = Query()
    query.broker.members = ["10.0.0.1@billing", "10.0.0.2@billing"]
    assert query.batch(10) is None
    query.broker.members = []
    assert query.batch(20) is None
    assert "others consume there, 10.0.0.1@billing first (2 online)" in warnings.records[0].message


def test_a_member_that_comes_later_ends_the_commits_for_good(warnings: pytest.LogCaptureFixture) -> None:
    query = Query()
    assert query.batch(10) == 10
    query.broker.members = ["10.0.0.1@billing"]
    assert [query.batch(20), query.batch(30)] == [10, 10]
    query.broker.members = []
    query.start()
    assert query.batch(40) == 10, "the checkpoint does not call the group its own any more"
    assert len(warnings.records) == 2


def test_what_somebody_else_commits_is_not_taken_back(warnings: pytest.LogCaptureFixture) -> None:
    query = Query()
    assert query.batch(10) == 10
    query.broker.commits[query.queue] = 50
    assert query.batch(20) == 50
    assert "others committed there, offset 50" in warnings.text


def test_a_broker_that_forgot_the_last_commits_is_told_again() -> None:
    query = Query()
    query.batch(10)
    query.broker.commits[query.queue] = 3
    assert query.batch(20) == 20


def test_asked_twice_it_moves_any_group(warnings: pytest.LogCaptureFixture) -> None:
    query = Query("always")
    query.broker.commits[query.queue] = 70
    query.broker.members = ["10.0.0.1@billing"]
    assert query.batch(10) == 10
    assert not warnings.records


@pytest.mark.parametrize(("mode", "group"), [("never", "g"), ("unused", None), ("always", None)])
def test_without_a_group_or_when_told_so_nothing_is_asked_or_committed(mode: str, group: str | None) -> None:
    query = Query(mode, group)
    assert query.batch(10) is None
    assert query.broker.calls == 0


def test_faults_end_no_query_and_commits_go_on_behind_them(warnings: pytest.LogCaptureFixture) -> None:
    query = Query()
    query.batch(10)
    fault = ConnectionLostError("gone")
    query.broker.fault = lambda queue, offset: fault
    assert query.batch(20) == 10
    assert "cannot check now whether others consume in group g" in warnings.text
    query.broker.fault = lambda queue, offset: None
    assert query.batch(30) == 30


def test_a_checkpoint_keeps_whose_group_it_is() -> None:
    offset = StreamOffset({MessageQueue("t", "b", 0): 3}, own_group="g")
    assert offset.to_json()["group"] == "g"
    assert StreamOffset.from_json(offset.to_json()).own_group == "g"
    assert "group" not in StreamOffset({}).to_json()
