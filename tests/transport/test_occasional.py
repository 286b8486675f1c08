"""At most one line of a kind in a period."""

from __future__ import annotations

import logging

import pytest

from sparrowmq.transport.occasional import KINDS_MAX, OccasionalLog

LOGGER = logging.getLogger("test.occasional")


def test_lines_of_a_kind_are_counted_and_told_later(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    log = OccasionalLog(LOGGER, period=60.0, monotonic=lambda: now[0])
    for second in (0.0, 1.0, 59.0):
        now[0] = second
        log.write(logging.WARNING, "a", f"a at {second}")
    log.write(logging.WARNING, "b", "another kind")
    now[0] = 60.0
    log.write(logging.WARNING, "a", "a later")
    now[0] = 120.0
    log.write(logging.WARNING, "a", "a last")
    assert caplog.messages == [
        "a at 0.0",
        "another kind",
        "a later (2 more of this kind since the last line)",
        "a last",
    ]


def test_the_error_is_logged_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("boom")
    OccasionalLog(LOGGER).write(logging.ERROR, "fault", "a fault", error=error)
    assert caplog.records[0].exc_info is not None
    assert caplog.records[0].exc_info[1] is error


def test_kinds_with_names_of_strangers_neither_grow_nor_flood_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    log = OccasionalLog(LOGGER, period=60.0, monotonic=lambda: now[0])
    for period in range(3):
        now[0] = 60.0 * period
        caplog.clear()
        for number in range(10_000):
            log.write(logging.WARNING, f"producer {period} {number}", f"no producer {number}")
        assert len(caplog.messages) == KINDS_MAX + 1
        assert len(log._last) <= KINDS_MAX + 1
        assert len(log._left_out) <= KINDS_MAX + 1
