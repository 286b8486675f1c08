"""What pipelines read: the base of their settings, and the checks that these share. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.options.values import EARLIEST, LATEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The topics of a cluster that a pipeline reads. Subclasses add options in `_options`."""

    topics: tuple[str, ...] = ()
    name_server: str = ""
    """`host:port;…`; by default from `SPARROW_NAMESRV` or `NAMESRV_ADDR`."""
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of the source."""

    @property
    def source_options(self) -> dict[str, str]:
        """Options of every read of the topics."""
        return self._options()

    def _options(self) -> dict[str, str]:
        found = dict(self.options)
        if self.name_server:
            found["nameServer"] = self.name_server
        if self.topics:
            found["subscribe"] = ",".join(self.topics)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeSource(Source):
    """A source of which no message is to be missed."""

    fail_on_data_loss: bool = True
    """Whether messages that were deleted before they were read are an error."""

    def _options(self) -> dict[str, str]:
        return {"failOnDataLoss": str(self.fail_on_data_loss).lower(), **Source._options(self)}

    @property
    def may_lose(self) -> bool:
        """Whether the run continues when messages were deleted before they were read."""
        given = [text for name, text in self.options.items() if name.lower() == "failondataloss"]
        return given[-1].strip().lower() == "false" if given else not self.fail_on_data_loss


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource(WholeSource):
    """Topics by name or by pattern."""

    pattern: str = ""
    """A regular expression that whole topic names match; new topics are picked up by later runs."""

    def _options(self) -> dict[str, str]:
        found = WholeSource._options(self)
        return found | {"subscribePattern": self.pattern} if self.pattern else found

    def check_topics(self, what: str) -> None:
        """Raises `SettingsError` unless exactly one of `topics` and `pattern` is given."""
        if bool(self.topics) == bool(self.pattern):
            raise SettingsError(f"{what} needs either topics or a pattern", "topics", other="pattern")


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedSource(TopicSource):
    """Topics that are read in batches, to their current end or until the run is stopped."""

    start: str = EARLIEST
    """`earliest` or `latest`: where the first run begins. Later queues are read from their start."""
    follow: bool = False
    """Continue until stopped; else end with the messages that are stored now."""
    every: float = 1.0
    """With `follow`: seconds between the starts of batches."""
    batch_rows: int = 100_000
    """Maximum number of messages in one batch."""

    def check_followed(self, what: str) -> None:
        """Raises `SettingsError` for wrong topics and batches."""
        self.check_topics(what)
        if self.start not in (EARLIEST, LATEST):
            raise SettingsError(f"start={self.start!r}: must be {EARLIEST} or {LATEST}", "start", self.start)
        check_least(self, every=0, batch_rows=1)


def check_least(settings: object, **least: float) -> None:
    """Raises `SettingsError` if a field is below its smallest value; None is none."""
    for name, limit in least.items():
        value = getattr(settings, name)
        if value is not None and value < limit:
            raise SettingsError(f"{name}={value}: must be {limit} or more", name, value)


def check_times(since: int | None, until: int | None) -> None:
    """Raises `SettingsError` for a time range that ends before it begins."""
    if since is not None and until is not None and since >= until:
        raise SettingsError(f"since={since} is not before until={until}", "since", since)


def between(options: Mapping[str, str], since: int | None, until: int | None) -> dict[str, str]:
    """Options of a read of the messages stored from `since` to before `until`, epoch milliseconds."""
    found = dict(options)
    if since is not None:
        found |= {"startingTimestamp": str(max(0, since)), "startingOffsetsByTimestampStrategy": LATEST}
    if until is not None:
        found |= {"endingTimestamp": str(until)}
    return found
