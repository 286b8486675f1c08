"""The flights: order of departure, events, and the files they come from."""

from __future__ import annotations

import zipfile
from importlib.metadata import PackageNotFoundError
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support import about

from sparrowmq.cli.base.common import UsageError
from sparrowmq.cli.demo import ROWS, flights
from sparrowmq.cli.demo.flights import (
    COLUMNS,
    Departure,
    FlightEvent,
    data_directory,
    event,
    messages,
    read_departures,
    read_table,
)

FIRST = "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z"
CANCELLED = "2013,1,1,NA,600,NA,NA,901,NA,B6,125,NA,JFK,FLL,NA,1069,6,0,2013-01-01T11:00:00Z"
LATE = "2013,1,1,29,2359,30,500,444,16,DL,7,N1,LGA,ATL,100,762,23,59,2013-01-02T04:00:00Z"
MIDNIGHT = "2013,1,1,2400,2359,1,500,444,16,DL,8,N2,LGA,ATL,100,762,23,59,2013-01-02T04:00:00Z"


def source(directory: Path, *lines: str, head: str = COLUMNS) -> Path:
    with zipfile.ZipFile(directory / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", "\n".join([head, *lines]) + "\n")
    return directory


def test_the_real_data_are_there_and_whole() -> None:
    found = read_departures(data_directory(), ROWS)
    assert len(found) == ROWS == 336_776
    assert {departure.row for departure in found} == set(range(1, ROWS + 1))
    assert all(a.minute <= b.minute for a, b in pairwise(found))
    cancelled = sum(1 for departure in found if event(departure).departed is None)
    assert cancelled == 8255


def test_order_is_actual_then_scheduled_then_row(tmp_path: Path) -> None:
    found = read_departures(source(tmp_path, LATE, CANCELLED, FIRST, MIDNIGHT, CANCELLED), 100)
    assert [(departure.minute, departure.row) for departure in found] == [
        (5 * 60 + 17, 3),
        (6 * 60, 2),
        (6 * 60, 5),
        (24 * 60, 4),
        (24 * 60 + 29, 1),
    ]


def test_fewer_rows_are_the_first_of_the_file(tmp_path: Path) -> None:
    found = read_departures(source(tmp_path, LATE, FIRST, CANCELLED), 2)
    assert [departure.row for departure in found] == [2, 1]


def test_events() -> None:
    assert event(Departure(317, 1, FIRST)) == FlightEvent(
        row=1,
        scheduled="2013-01-01T05:15",
        departed="2013-01-01T05:17",
        dep_delay=2,
        arr_delay=11,
        carrier="UA",
        flight=1545,
        tailnum="N14228",
        origin="EWR",
        dest="IAH",
        air_time=227,
        distance=1400,
        hour=5,
    )
    cancelled = event(Departure(360, 2, CANCELLED))
    assert (cancelled.departed, cancelled.dep_delay, cancelled.air_time, cancelled.tailnum) == (None,) * 4
    late = event(Departure(24 * 60 + 29, 3, LATE))
    assert (late.scheduled, late.departed, late.hour) == ("2013-01-01T23:59", "2013-01-02T00:29", 23)


def test_messages_have_carrier_as_tag_and_tail_number_as_key() -> None:
    one, two = messages([Departure(317, 1, FIRST), Departure(360, 2, CANCELLED)], "Flights")
    assert (one.topic, one.tags, one.keys_text) == ("Flights", "UA", "N14228")
    assert (two.tags, two.keys_text) == ("B6", "")
    assert msgspec.json.decode(one.body, type=FlightEvent) == event(Departure(317, 1, FIRST))


def test_other_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, check=about(what="columns", value="a,b")):
        read_departures(source(tmp_path, head="a,b"), 1)


def test_small_tables() -> None:
    directory = data_directory()
    assert ("UA", "United Air Lines Inc.") in read_table(directory, "airlines", ("carrier", "name"))
    assert ("JFK", "John F Kennedy Intl") in read_table(directory, "airports", ("faa", "name"))


def test_missing_data_name_the_line_to_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Empty:
        def locate_file(self, _: str) -> Path:
            return tmp_path

    monkeypatch.setattr(flights, "distribution", lambda _: Empty())
    with pytest.raises(UsageError, check=about(what="flights.csv.zip", value=tmp_path)):
        data_directory()

    def absent(name: str) -> Any:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(flights, "distribution", absent)
    with pytest.raises(UsageError, check=about(what="demo")):
        data_directory()
