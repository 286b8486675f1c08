"""Times that are given and printed, in the zone of a command."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import types
from tests.support import about

from sparrowmq.cli.base.common import UsageError
from sparrowmq.cli.base.times import millis, zone_of
from sparrowmq.cli.pipes.zones import in_zone

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The zone of this machine."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


def test_given_times(tokyo: None) -> None:
    assert millis(None, UTC) is None
    assert millis("2026-11-21T08:00:00+00:00", BERLIN) == 1795248000000
    assert millis("2026-11-21T08:00", UTC) == 1795248000000
    assert millis("2026-11-21T09:00", BERLIN) == 1795248000000
    with pytest.raises(UsageError, check=about(what="time", value="noon")):
        millis("noon", UTC)


def test_zones() -> None:
    assert zone_of("Europe/Berlin") == BERLIN
    assert zone_of("+05:45") == zone_of("GMT+5:45") == timezone(timedelta(hours=5, minutes=45))
    assert zone_of("-03") == timezone(timedelta(hours=-3))
    for wrong in ("Nowhere", "", "../UTC"):
        with pytest.raises(UsageError, check=about(what="zone", value=wrong)):
            zone_of(wrong)


def test_printed_times(tokyo: None) -> None:
    at, local = datetime(2026, 11, 21, 17, 0), types.TimestampNTZType()
    kind = types.StructType(
        [
            types.StructField("t", types.ArrayType(types.TimestampType())),
            types.StructField("m", types.MapType(types.StringType(), types.TimestampType())),
            types.StructField("n", local),
        ]
    )
    shown = in_zone(([at, None], {"k": at}, at), kind, BERLIN)
    assert str(shown["t"][0]) == str(shown["m"]["k"]) == "2026-11-21 09:00:00+01:00"
    assert shown["t"][1] is None
    assert shown["n"] == at, "this type has no zone"
    again = datetime(2026, 10, 25, 9, 30), datetime(2026, 10, 25, 10, 30)
    assert [str(in_zone(one, types.TimestampType(), BERLIN)) for one in again] == [
        "2026-10-25 02:30:00+02:00",
        "2026-10-25 02:30:00+01:00",
    ]
    first = datetime(1, 1, 1)
    assert in_zone(first, types.TimestampType(), BERLIN) == first
