"""Which masters a slave refuses to follow, and with which error."""

from __future__ import annotations

import pytest
from tests.support import about

from sparrowmq.broker.replication.comparison import (
    CannotFollowError,
    MasterFacts,
    SlaveFacts,
    check,
    check_same_record,
)

MASTER = MasterFacts("c", "broker-a", "ASYNC_MASTER", 4096, 4096, 9000)
SLAVE = SlaveFacts("c", "broker-a", 4096, 8000, is_empty=False)


def test_slave_that_is_behind_follows() -> None:
    check(SLAVE, MASTER)
    check(SLAVE._replace(end=9000), MASTER)
    check(SLAVE._replace(end=4096), MASTER)


def test_empty_slave_follows_any_master() -> None:
    check(SLAVE._replace(end=0, is_empty=True), MASTER)


def test_master_that_reports_nothing_is_followed() -> None:
    check(SLAVE, MasterFacts())


@pytest.mark.parametrize(
    ("slave", "master", "what"),
    [
        (SLAVE, MASTER._replace(cluster="other"), "brokerClusterName"),
        (SLAVE, MASTER._replace(name="broker-b"), "brokerName"),
        (SLAVE, MASTER._replace(role="SLAVE"), "brokerRole"),
        (SLAVE, MASTER._replace(file_bytes=8192), "mappedFileSizeCommitLog"),
        (SLAVE._replace(end=9001), MASTER, "end"),
        (SLAVE._replace(end=4095), MASTER, "start"),
    ],
)
def test_incompatible_masters_are_refused(slave: SlaveFacts, master: MasterFacts, what: str) -> None:
    with pytest.raises(CannotFollowError, check=about(what=what)):
        check(slave, master)


def test_diverged_logs_are_refused() -> None:
    check_same_record(5, b"one", b"one")
    with pytest.raises(CannotFollowError, check=about(what="record", value=5)):
        check_same_record(5, b"one", b"two")


def test_facts_come_from_two_answers() -> None:
    config = {
        "brokerClusterName": "c",
        "brokerName": "n",
        "brokerRole": "SLAVE",
        "mappedFileSizeCommitLog": "x",
    }
    runtime = {"commitLogMinOffset": "0", "commitLogMaxOffset": "77"}
    assert MasterFacts.of(config, runtime) == MasterFacts("c", "n", "SLAVE", None, 0, 77)
    assert MasterFacts.of({}, {}) == MasterFacts()
