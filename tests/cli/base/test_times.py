"""Every command shows times with their zone: UTC, or that of the environment."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests import support

from sparrowmq.cli.base.common import UsageError
from sparrowmq.cli.base.times import about, millis, moment, span, when

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow

    from sparrowmq.testing import LocalCluster


@pytest.fixture
def far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fourteen hours before UTC, where no machine that runs this is."""
    monkeypatch.setenv("TZ", "EAST-14")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_east")
def test_times_have_their_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    at = 1_795_326_484_715
    assert when(at) == "2026-11-22 05:48:04+00:00"
    assert when(None) == when(0) == "–"
    monkeypatch.setenv("SPARROW_TIME_ZONE", "Europe/Berlin")
    assert when(at, "milliseconds") == "2026-11-22 06:48:04.715+01:00"
    monkeypatch.setenv("SPARROW_TIME_ZONE", "Nowhere")
    with pytest.raises(UsageError, check=support.about(what="zone", value="Nowhere")):
        when(at)


@pytest.mark.usefixtures("far_east")
def test_times_without_a_zone_are_in_the_same_one(monkeypatch: pytest.MonkeyPatch) -> None:
    at = 1_795_326_484_000
    assert millis(when(at)) == millis("2026-11-22T05:48:04") == at
    assert moment("2026-11-22T05:48:04").timestamp() * 1000 == at
    monkeypatch.setenv("SPARROW_TIME_ZONE", "Europe/Berlin")
    assert millis(when(at)) == millis("2026-11-22T06:48:04") == millis("2026-11-22T05:48:04Z") == at


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0 ms"), (1500, "1500 ms"), (90_000, "90 s"), (3_600_000, "1 h"), (86_400_000, "1 d")],
)
def test_spans_are_in_whole_units(milliseconds: int, text: str) -> None:
    assert span(milliseconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.44, "0.4 s"),
        (10, "10 s"),
        (61.9, "1 min 1 s"),
        (3_725, "1 h 2 min"),
        (86_400 * 30 + 3_600, "30 d 1 h"),
    ],
)
def test_durations_have_their_two_biggest_units(seconds: float, text: str) -> None:
    assert about(seconds) == text


@pytest.mark.usefixtures("far_east")
def test_ends_of_pauses_and_oldest_messages_have_it_too(sparrow: Sparrow, cluster: LocalCluster) -> None:
    policy = ("group", "policy", "resting", "--pause", "Naps", "--minutes", "5")
    (made,) = sparrow(*policy, "--json").values
    assert when(made["pauses"][0]["until"]) in sparrow("group", "policy", "resting").out
    cluster.create_topic("Naps", queues=1)
    sparrow("send", "Naps", "z")
    sparrow("hold", "set", "Naps", "resting")
    (held,) = sparrow("hold", "list", "--json").values
    assert when(held["oldest_ms"]) in sparrow("hold", "list").out
    sparrow("hold", "release", "Naps")
    (queue,) = sparrow("topic", "status", "Naps", "--json").values
    assert when(queue["last_update_ms"]) in sparrow("topic", "status", "Naps").out
