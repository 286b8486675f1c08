"""The settings of a report, and the limits of a day. Values only; `report` does the work."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.names import check_group
from sparrowmq.spark.pipelines.query.stored import StoredSource

HOUR_MS: Final = 3_600_000
DAYS_MAX: Final = 366
TOP_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Day:
    """A calendar day of a time zone: from `start` to before `end`, epoch milliseconds."""

    date: date
    zone: str

    @property
    def start(self) -> int:
        """Its first moment."""
        return _midnight(self.date, self.zone)

    @property
    def end(self) -> int:
        """The first moment of the next day."""
        return _midnight(self.date + timedelta(days=1), self.zone)

    @property
    def hours(self) -> int:
        """24, except on days when clocks change."""
        return -(-(self.end - self.start) // HOUR_MS)

    def hour_name(self, hour: int) -> str:
        """The local time so many hours after the start."""
        at = datetime.fromtimestamp((self.start + hour * HOUR_MS) / 1000, ZoneInfo(self.zone))
        return at.strftime("%H:%M")

    @classmethod
    def of(cls, moment: float, zone: str) -> Day:
        """The day of a moment, epoch seconds."""
        return cls(datetime.fromtimestamp(moment, ZoneInfo(zone)).date(), zone)

    def __str__(self) -> str:
        return self.date.isoformat()


def _midnight(day: date, zone: str) -> int:
    return int(
        datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).astimezone(UTC).timestamp() * 1000
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSettings(StoredSource):
    """The topics and days of a report, its sources and its directory; without the live log, no groups."""

    directory: str | Path
    """Directory of tables, pages and snapshots, on a mounted file system."""
    groups: tuple[str, ...] = ()
    """Consumer groups; empty: all that have offsets in the topics."""
    day: date | None = None
    """The last day; by default yesterday."""
    days: int = 1
    """Number of days, each with separate tables and page."""
    zone: str = "UTC"
    """The time zone of the days."""
    top: int = 10
    """Number of listed keys, tags and producers of each topic."""
    partial: bool = False
    """Report also on days whose messages may have been deleted."""

    def __post_init__(self) -> None:
        for group in self.groups:
            check_group(group)
        for name, value, most in (("days", self.days, DAYS_MAX), ("top", self.top, TOP_MAX)):
            if not 1 <= value <= most:
                raise SettingsError(f"{name}={value}: must be 1 to {most}", name, value)
        try:
            ZoneInfo(self.zone)
        except (KeyError, ValueError, OSError):
            raise SettingsError(
                f"zone={self.zone!r} is not a time zone; give one such as Europe/Berlin", "zone", self.zone
            ) from None
        assert self.stored.topics, "Stored refuses none"

    def chosen(self, now: float) -> list[Day]:
        """The days, oldest first; `now` in epoch seconds. Raises `SettingsError` for future days."""
        today = Day.of(now, self.zone).date
        last = today - timedelta(days=1) if self.day is None else self.day
        if last > today:
            raise SettingsError(f"day={last} is in the future; it is {today} in {self.zone}", "day", last)
        return [Day(last - timedelta(days=back), self.zone) for back in reversed(range(self.days))]
