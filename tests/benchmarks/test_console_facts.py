"""Facts of the console beside mqadmin: what Apache's files say, what both show, and who is right."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.console_facts import ENTRY, ApacheStore, Values, verdict

from benchmarks import console_facts as facts


@pytest.fixture
def store(tmp_path: Path) -> ApacheStore:
    """A queue of five messages, the first two of which are deleted, and two groups."""
    queue, log, config = (tmp_path / name for name in ("consumequeue/T/0", "commitlog", "config"))
    for directory in (queue, log, config):
        directory.mkdir(parents=True)
    positions = (500, 700, 1000, 1100, 1200)
    entries = b"".join(ENTRY.pack(position, 100, 7) for position in positions)
    (queue / f"{0:020}").write_bytes(entries + bytes(3 * ENTRY.size))
    (log / f"{1000:020}").touch()
    offsets = '{"dataVersion":{"counter":1},"offsetTable":{"T@late":{0:1},"T@ahead":{0:4,1:0}}}'
    (config / "consumerOffset.json").write_text(offsets)
    return ApacheStore(tmp_path)


def test_queues_begin_with_the_first_message_that_the_log_still_has(store: ApacheStore) -> None:
    assert (store.log_begin, store.log_end) == (1000, 1300)
    assert store.topic("T") == {"0": (2, 5)}
    assert store.queue("T", 1) == (0, 0), "it never had a message"


def test_deleted_messages_are_no_lag(store: ApacheStore) -> None:
    assert store.progress("late", "T") == {"0": (5, 1, 3)}
    assert store.progress("nobody", "T") == {}
    assert store.lags() == {"late": 3, "ahead": 1}


@pytest.mark.parametrize(
    ("mqadmin", "console", "stored", "said"),
    [
        (1, 1, None, "equal"),
        (1, 2, None, "different"),
        (1, 1, 1, "equal; right: mqadmin and console"),
        (1, 2, 2, "different; right: console"),
        (1, None, None, "different; right: console"),
        (1, 1, 2, "equal; right: neither"),
    ],
)
def test_the_files_decide_who_is_right(
    mqadmin: int, console: int | None, stored: int | None, said: str
) -> None:
    known: Values | None = {"lag": stored} if "right" in said else None
    assert verdict({"lag": mqadmin}, {"lag": console}, known) == said


def test_what_mqadmin_prints_about_a_cluster_is_read() -> None:
    listed = """
        #Cluster Name   #Broker Name #BID  #Addr           #Version  #InTPS(LOAD)  #OutTPS(LOAD)
        DefaultCluster  broker-a     0     127.0.0.1:22694 V5_5_0    0.00(0,0ms)   3.19(0,0ms|0,0ms)
    """
    assert facts.brokers_printed(facts.words_of(listed)) == {"127.0.0.1:22694": ("broker-a", "0", "V5_5_0")}
    state = "commitLogMaxOffset  : 3151737\ncommitLogMinOffset  : 2097152\n"
    assert facts.log_printed(facts.words_of(state)) == {"bytes": 1_054_585}
    queues = """
        #Broker Name  #QID  #Min Offset  #Max Offset  #Last Updated
        broker-a      0     20           30           2026-11-29 16:59:46,651
        broker-a      1     0            0
    """
    assert facts.topic_printed(facts.words_of(queues)) == {"0": (20, 30)}
    found = """
        #Message ID                       #QID  #Offset  #IndexKey
        C0000202519B2ABBA23C93D8BA79002A  4     0        1795971600000@T@K@k0-3@C000
    """
    assert facts.found_printed(facts.words_of(found)) == {"C0000202519B2ABBA23C93D8BA79002A": (4, 0)}


def test_what_mqadmin_prints_about_groups_is_read() -> None:
    every = """
        #Group  #Count  #Version  #Type  #Model      #TPS  #Diff Total
        reader  1       V5_3_1    PUSH   CLUSTERING  0     3
    """
    assert facts.lags_printed(facts.words_of(every)) == {"reader": 3}
    one = """
        #Topic   #Broker Name  #QID  #Broker Offset  #Consumer Offset  #Diff  #Inflight  #LastTime
        Expired  broker-a      0     30              1                 29     0          N/A

        Consume TPS: 0.00
        Consume Diff Total: 29
        Consume Inflight Total: 0
    """
    assert facts.progress_printed("Expired", facts.words_of(one)) == {"0": (30, 1, 29)}
    assert facts.lag_printed("late", facts.words_of(one)) == {"late": 29}
    assert facts.lag_printed("late", facts.words_of("no such group")) == {"late": None}
    member = """
        #Consumer Offset#
        #Topic         #Broker Name  #QID  #Consumer Offset
        %RETRY%reader  broker-a      0     0
        Topic0000      broker-a      5     1

        #Consumer MQ Detail#
        Topic0000      broker-a      6     ProcessQueueInfo [commitOffset=1]
    """
    assert facts.held_printed("Topic0000", facts.words_of(member)) == {"5": "broker-a"}
