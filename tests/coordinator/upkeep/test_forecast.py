from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.coordinator.upkeep.forecast import HORIZON_HOURS, Forecast, disks, forecast
from sparrowmq.coordinator.upkeep.logs import HOUR_MS, BrokerLog, CleaningRules, Held, LogSample

NOW = 1000 * 24 * HOUR_MS
"""Midnight of a day, by the hours of these tests."""
RULES = CleaningRules(reserved_hours=10, delete_hours=frozenset({4}), file_bytes=10)


def hour_of(at: int) -> int:
    return at // HOUR_MS % 24


def broker(
    written: int,
    free: int,
    *,
    begin: int = 0,
    total: int = 1000,
    name: str = "a",
    rules: CleaningRules = RULES,
) -> BrokerLog:
    return BrokerLog(name, "h", rules, LogSample(NOW, begin, written, total, free))


def grown(log: BrokerLog, an_hour: int, hours: int = 20) -> dict[str, list[LogSample]]:
    """Samples of a log that grew this much each hour until now."""
    now = log.now
    return {
        log.name: [
            LogSample(NOW - n * HOUR_MS, 0, max(0, now.log_max - n * an_hour), now.total, now.free)
            for n in range(hours, 0, -1)
        ]
    }


def foretold(*logs: BrokerLog, grows: int = 0, overhead: int = 0) -> Forecast:
    history: dict[str, list[LogSample]] = {}
    for log in logs:
        history |= grown(log, grows)
    return forecast(logs, history, window_hours=24, overhead_percent=overhead, hour_of=hour_of)


def test_constant_log_never_fills_the_disk() -> None:
    found = foretold(broker(500, 200))
    assert (found.early_in, found.full_in, found.first, found.bytes_an_hour) == (None, None, None, 0)


def test_without_cleaning_the_disk_fills_at_the_rate_of_the_log() -> None:
    never = replace(RULES, reserved_hours=10_000)
    found = foretold(broker(200, 500, rules=never), grows=10)
    assert found.bytes_an_hour == 10
    assert (found.early_in, found.full_in) == (36, 41), "above 85 % and above 90 % of 1000 bytes"
    assert foretold(broker(200, 500, rules=never), grows=10, overhead=100).full_in == 21


def test_retention_keeps_a_steady_log_from_filling_the_disk() -> None:
    found = foretold(broker(200, 600), grows=10)
    assert found.first is None, "at most 10 + 24 hours of log are there at 4 o'clock"
    none = replace(RULES, delete_hours=frozenset({4}), reserved_hours=100)
    assert foretold(broker(200, 600, rules=none), grows=10).first is not None


def test_nearly_full_disk_is_cleaned_at_any_hour() -> None:
    at_night = replace(RULES, reserved_hours=1, used_max=100)
    any_hour = replace(at_night, used_max=75)
    assert foretold(broker(200, 250, rules=at_night), grows=60).full_in == 3
    assert foretold(broker(200, 250, rules=any_hour), grows=60).full_in is None


@pytest.mark.proves("pmq:T4")
@pytest.mark.parametrize(("free", "full_in"), [(0, 0), (1, 0), (99, 0), (100, None), (1000, None)])
def test_full_disk_is_full_now(free: int, full_in: int | None) -> None:
    assert foretold(broker(0, free)).full_in == full_in


def test_messages_are_deleted_early_only_where_brokers_allow_it() -> None:
    assert foretold(broker(500, 120)).early_in == 0
    assert foretold(broker(500, 120, rules=replace(RULES, forcibly=False))).early_in is None
    assert foretold(broker(9, 120)).early_in is None, "the file that is written to stays"


def test_held_messages_are_not_deleted() -> None:
    log = broker(100, 500)
    held = replace(log, holds=(Held("t", "g", NOW - 10 * HOUR_MS, ends_ms=NOW * 2),))
    assert foretold(log, grows=10).full_in is None
    assert foretold(held, grows=10).full_in == 41
    giving_way = replace(log, holds=(Held("t", "g", NOW - 9 * HOUR_MS, ends_ms=NOW + 5 * HOUR_MS),))
    assert foretold(giving_way, grows=10).full_in is None


def test_new_coordinator_knows_how_old_the_log_is() -> None:
    """Without samples the log is assumed to have grown evenly since its oldest message."""
    log = replace(broker(340, 450), earliest_ms=NOW - 34 * HOUR_MS)
    found = forecast([log], {}, window_hours=48, overhead_percent=0, hour_of=hour_of)
    assert (found.bytes_an_hour, found.full_in) == (10, None)


def test_burst_of_the_last_hour_counts() -> None:
    log = broker(700, 450)
    history = grown(log, 0) | {"a": [*grown(log, 0)["a"][:-1], LogSample(NOW - HOUR_MS, 0, 600, 1000, 450)]}
    history["a"] = [one._replace(log_max=600) for one in history["a"]]
    assert forecast([log], history, window_hours=24, overhead_percent=0, hour_of=hour_of).bytes_an_hour == 100


def test_brokers_of_one_host_and_size_share_a_disk() -> None:
    one, two, other = broker(10, 500), broker(10, 500, name="b"), broker(10, 500, name="c", total=2000)
    silent = broker(10, 0, name="d", total=0)
    assert [[log.name for log in logs] for logs in disks([two, silent, other, one])] == [["a", "b"], ["c"]]
    never = replace(RULES, reserved_hours=10_000)
    pair = [replace(log, rules=never) for log in (one, two)]
    alone = foretold(pair[0], grows=1)
    assert alone.full_in is not None
    assert foretold(*pair, grows=1).full_in == -(-alone.full_in // 2)


@given(st.integers(0, 900), st.integers(0, 1000), st.integers(0, 60), st.integers(0, 200))
def test_more_free_space_never_fills_earlier(written: int, free: int, grows: int, more: int) -> None:
    less = foretold(broker(written, free, total=2000), grows=grows)
    roomy = foretold(broker(written, free + more, total=2000), grows=grows)
    for before, after in ((less.full_in, roomy.full_in), (less.early_in, roomy.early_in)):
        assert (HORIZON_HOURS + 1 if after is None else after) >= (
            HORIZON_HOURS + 1 if before is None else before
        )
