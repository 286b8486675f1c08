from __future__ import annotations

import time

from sparrowmq.console.pages.columns import disk_rows, lag_rows, service_rows
from sparrowmq.console.texts import words


def test_ages_are_unknown_without_data() -> None:
    now = time.time_ns() // 1_000_000
    groups = [
        {"group": "none", "messages": 0, "oldest_ms": 0},
        {"group": "some", "messages": 3, "oldest_ms": now - 60_000},
        {"group": "ahead", "messages": 3, "oldest_ms": now + 3_600_000},
        {"group": "unknown", "messages": 3, "oldest_ms": None},
        {"group": "silent", "messages": None, "oldest_ms": None},
    ]
    ages = [row["age_ms"] for row in lag_rows({"groups": groups})]
    assert ages[0] == 0 and ages[1] is not None and ages[1] >= 60_000
    assert ages[2:] == [0, None, None], "of clocks that differ no age is below nothing"


def test_disks_show_when_they_are_full_and_which_could_not_be_queried() -> None:
    disk = {"broker": "a", "total_bytes": 200, "free_bytes": 50}
    found = {
        "disks": [disk, disk | {"broker": "b"}, disk | {"broker": "c", "total_bytes": 0}],
        "failed": {"d": "down"},
    }
    forecasts = [
        {"numbers": {"brokers": ["a"], "first_in": 2}},
        {"numbers": {"brokers": ["b"], "first_in": None}},
    ]
    rows = disk_rows(found, forecasts)
    assert [row["full_in"] for row in rows] == [7_200_000, "none", None, None]
    assert [row["used"] for row in rows] == [75, 75, None, None]


def test_services_show_paused_leader_or_no_leader() -> None:
    one = {"name": "lag-alarm", "paused": False, "leader": "me", "last_run": None}
    rows = service_rows(
        [one, one | {"paused": True}, one | {"leader": None, "last_run": {"ended_at": 5, "outcome": "done"}}],
        words("en"),
    )
    assert [row["state"] for row in rows] == ["leads", "paused", "leaderless"]
    assert [(row["last_ms"], row["outcome"]) for row in rows] == [(0, "never"), (0, "never"), (5, "done")]
