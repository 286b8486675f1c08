"""SIGTERM while messages are in hand: what was begun ends, and the group's others get the rest, once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.crash

QUEUES = 4
MESSAGES = 48


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running:
        yield running


class Member:
    """A member in a process of its own, and its journal."""

    def __init__(self, cluster: LocalCluster, group: str, kind: str, directory: Path, seconds: float) -> None:
        self._journal = directory / "journal"
        self._journal.touch()
        arguments = [cluster.namesrv, group, kind, str(self._journal), str(seconds)]
        program = [sys.executable, "-m", "tests.crash.member_child", *arguments]
        self.process = subprocess.Popen(program, stderr=subprocess.PIPE, text=True)

    def noted(self, word: str) -> list[str]:
        """What stands behind `word`, line by line."""
        lines = [line.split() for line in self._journal.read_text().splitlines(keepends=False)]
        return [" ".join(line[1:]) for line in lines if line and line[0] == word]

    def wait(self) -> str:
        """What it said on standard error; it must end well."""
        _, said = self.process.communicate(timeout=30)
        assert self.process.returncode == 0, said
        return said


@contextmanager
def member(
    cluster: LocalCluster, group: str, kind: str, directory: Path, seconds: float = 0.2
) -> Iterator[Member]:
    running = Member(cluster, group, kind, directory, seconds)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()
        assert running.process.stderr is not None
        running.process.stderr.close()


def other(cluster: LocalCluster, group: str, got: list[str], *, ordered: bool = False) -> mq.PushConsumer:
    """The group's other member, in this process."""
    settings = mq.ConsumerSettings(
        namesrv=cluster.namesrv,
        consume_from="first",
        ordered=ordered,
        rebalance_interval_min=0.02,
        lock_interval=0.2,
    )
    consumer = mq.PushConsumer(group, settings=settings)
    consumer.subscribe(group, handler=lambda message: got.append(message.body.decode()))
    return consumer


def held(consumer: mq.PushConsumer) -> int:
    """How many queues of its topic it has; those of retries do not count."""
    return sum(not queue.topic.startswith("%RETRY%") for queue in consumer.assignment)


def send(cluster: LocalCluster, topic: str) -> set[str]:
    with mq.Producer("p", namesrv=cluster.namesrv) as producer:
        for number in range(MESSAGES):
            producer.send(mq.Message(topic, b"%d" % number))
    return {str(number) for number in range(MESSAGES)}


KINDS = ("plain", "async", "ordered", "ordered-async", "loop", "loop-async", "ordered-loop")


@pytest.mark.parametrize(
    ("kind", "number"),
    [*((kind, signal.SIGTERM) for kind in KINDS), ("plain", signal.SIGINT), ("async", signal.SIGINT)],
)
def test_running_handlers_finish_and_no_other_member_gets_their_messages(
    cluster: LocalCluster, kind: str, number: signal.Signals, tmp_path: Path
) -> None:
    group = f"Signals-{kind}-{number.name}"
    cluster.create_topic(group, QUEUES)
    got: list[str] = []
    with other(cluster, group, got, ordered="ordered" in kind) as here:
        until_sync(lambda: held(here) == QUEUES)
        with member(cluster, group, kind, tmp_path) as there:
            until_sync(lambda: held(here) == 2 and there.noted("has")[-1:] == ["2"])
            sent = send(cluster, group)
            until_sync(lambda: len(there.noted("begin")) > 2)
            there.process.send_signal(number)
            assert there.wait() == ""
            assert there.noted("closed") == [""]
            begun, ended = there.noted("begin"), there.noted("end")
        until_sync(lambda: set(got) | set(ended) >= sent)
        until_sync(lambda: not sum(here.lag.values()) and held(here) == QUEUES)
    assert sorted(begun) == sorted(ended)
    assert sorted(got + ended) == sorted(sent)  # each once
    assert 2 < len(ended) < MESSAGES // 2  # it did not do all its share first


def test_what_does_not_end_by_the_deadline_comes_again_elsewhere(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    group = "Signals-hung"
    cluster.create_topic(group, 1)
    with mq.Producer("p", namesrv=cluster.namesrv) as producer:
        producer.send(mq.Message(group, b"0"))
    with member(cluster, group, "hung", tmp_path) as there:
        until_sync(lambda: there.noted("begin"))
        there.process.send_signal(signal.SIGTERM)
        assert there.wait().startswith(f"handlers of group {group} were still running ")
        assert (there.noted("closed"), there.noted("end")) == ([""], [])
    got: list[str] = []
    with other(cluster, group, got):
        until_sync(lambda: got == ["0"])


def test_a_second_signal_ends_the_process_at_once(cluster: LocalCluster, tmp_path: Path) -> None:
    group = "Signals-twice"
    cluster.create_topic(group, 1)
    with mq.Producer("p", namesrv=cluster.namesrv) as producer:
        producer.send(mq.Message(group, b"0"))
    with member(cluster, group, "plain", tmp_path, seconds=3600) as there:
        until_sync(lambda: there.noted("begin"))
        there.process.send_signal(signal.SIGTERM)
        there.process.send_signal(signal.SIGCONT)
        until_sync(lambda: there.process.send_signal(signal.SIGTERM) or there.process.poll() is not None)
        assert there.process.returncode == -signal.SIGTERM
