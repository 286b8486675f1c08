"""The filters of pulls, and the filters of consumer groups that the broker remembers (broker:14).

The filters of online groups are kept in `config/consumerFilter.json` in RocketMQ's format, so that its
brokers can read them: with the bits of RocketMQ's bloom filter, their creation time, and the time when their
group went offline.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from sparrowmq.core.bounded import SHORT_CHARS, remembered
from sparrowmq.core.errors import InvalidExpressionError, RecordError, StoreCorruptError
from sparrowmq.core.hashing import java_hash
from sparrowmq.core.subscription import SQL92, TAG, SubscriptionData
from sparrowmq.protocol.bodies import CheckClientBody
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.protocol.record import find_properties
from sparrowmq.protocol.sql92 import compile_sql
from sparrowmq.store.queues.reads import PLAIN_MATCH, MatchCost
from sparrowmq.transport.slices import finished

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock
    from sparrowmq.protocol.bloom import BloomFilter
    from sparrowmq.protocol.sql92 import Predicate
    from sparrowmq.store.tables.config_file import ConfigFile
    from sparrowmq.transport.connection import Connection

FILTERS_MAX: Final = 10_000
"""Maximum number of registered filters, by topic and group; further ones are refused."""
FILTER_CHARS_MAX: Final = 16 * 1024 * 1024
"""Maximum total characters of their expressions and names."""
DEAD_BEFORE_LOAD_MS: Final = 30_000
"""A filter that was in use when it was saved counts as unused for this time when the broker starts."""

Match = Callable[[memoryview, int], bool]
"""Whether the record at a byte of a view is requested."""


@dataclass(frozen=True, slots=True)
class PullFilter:
    """The filter of a pull: tag codes (None for all), and a predicate on the record (None for any)."""

    codes: frozenset[int] | None = None
    match: Match | None = None
    cost: MatchCost = PLAIN_MATCH


EVERYTHING: Final = PullFilter()
TAG_TYPES: Final = (TAG, "", None)
"""The values by which a tag expression may state its type."""


class RecordMatch:
    """A predicate over the properties of stored records. Damaged records match, so readers report them."""

    __slots__ = ("_matches",)

    def __init__(self, predicate: Predicate) -> None:
        self._matches = predicate.matches_encoded

    def __call__(self, view: memoryview, at: int) -> bool:
        """Whether the record that starts at byte `at` matches."""
        try:
            return self._matches(find_properties(view, at))
        except RecordError:
            return True


def is_tag_type(expression_type: str | None) -> bool:
    """Whether an expression of this type is a tag expression; a missing type means tags."""
    return expression_type in TAG_TYPES


def wanted_tags(tags: frozenset[str]) -> PullFilter:
    """The filter of a subscription to tags; no tags means all messages."""
    if not tags:
        return EVERYTHING
    return (
        _few_tags(tags) if sum(map(len, tags)) <= SHORT_CHARS else PullFilter(frozenset(map(java_hash, tags)))
    )


@lru_cache(maxsize=4096)
def _few_tags(tags: frozenset[str]) -> PullFilter:
    return PullFilter(frozenset(map(java_hash, tags)))


def compile_filter(expression_type: str, expression: str) -> Predicate:
    """The predicate of an expression that is not a tag expression. Raises `InvalidExpressionError`."""
    if expression_type != SQL92:
        raise InvalidExpressionError(
            f"the expression type {expression_type[:80]!r} is unknown; known: {TAG}, {SQL92}"
        )
    if not expression:
        raise InvalidExpressionError("the SQL92 expression is empty", position=0, token="")
    return compile_sql(expression)


@remembered(1024, long_entries=16)
def wanted_filter(expression_type: str, expression: str) -> PullFilter:
    """The filter of an expression that is not a tag expression. Raises `InvalidExpressionError`."""
    predicate = compile_filter(expression_type, expression)
    return PullFilter(match=RecordMatch(predicate), cost=_cost(predicate))


def _cost(predicate: Predicate) -> MatchCost:
    """A tenth of a microsecond per comparison of three parts, 5 µs to search for a character in 30 KB."""
    return MatchCost(PLAIN_MATCH.fixed + predicate.nodes // 3, 10 + 2 * predicate.contained)


class BloomData(msgspec.Struct, frozen=True, rename="camel"):
    """The bits of a group and topic in the bloom filter."""

    bit_num: int
    bit_pos: list[int]


class FilterData(msgspec.Struct, rename="camel", kw_only=True):
    """One group's filter of one topic; times are epoch ms, `client_version` is that of the subscription."""

    bloom_filter_data: BloomData | None = None
    born_time: int = 0
    client_version: int = 0
    consumer_group: str
    dead_time: int = 0
    expression: str
    expression_type: str = SQL92
    topic: str

    @property
    def is_dead(self) -> bool:
        """Whether the group currently does not use it."""
        return self.dead_time >= self.born_time

    @property
    def is_usable(self) -> bool:
        """Whether its expression can be evaluated; a file of a newer broker may have others."""
        try:
            wanted_filter(self.expression_type, self.expression)
        except InvalidExpressionError:
            return False
        return True


class _Topic(msgspec.Struct, rename="camel"):
    group_filter_data: dict[str, FilterData] = {}
    topic: str = ""


class UnsavedFilters(NamedTuple):
    """The filters after this many changes. Filters changed later may be newer; they are saved again."""

    changes: int
    table: Mapping[tuple[str, str], FilterData]

    def content(self) -> dict[str, Any]:
        """The full content in the file's form. Slow for many filters; may be called in any thread."""
        topics: dict[str, dict[str, Any]] = {}
        for (topic, group), data in self.table.items():
            entry = topics.setdefault(topic, {"groupFilterData": {}, "topic": topic})
            entry["groupFilterData"][group] = msgspec.to_builtins(data)
        return {"filterDataByTopic": topics}


class ConsumerFilters:
    """The filters of all groups. `keep_ms` is how long a filter is kept after its group went offline."""

    def __init__(self, file: ConfigFile, clock: Clock, bloom: BloomFilter, *, keep_ms: int) -> None:
        self._file = file
        self._clock = clock
        self._bloom = bloom
        self._keep_ms = keep_ms
        self._table: dict[tuple[str, str], FilterData] = {}
        self._of_group: dict[str, dict[str, FilterData]] = {}
        """The same by group and topic."""
        self._chars = 0
        self._changes = 0
        self._saved = 0
        stored = file.load().get("filterDataByTopic") or {}
        try:
            self._load(msgspec.convert(stored, dict[str, _Topic], strict=False))
        except msgspec.ValidationError as error:
            raise StoreCorruptError(
                f"{file.path} is not a table of consumer filters ({error}); restore or remove it",
                what="table",
                value=file.path,
            ) from error

    def _load(self, topics: dict[str, _Topic]) -> None:
        """Load a file; its filters are unused until their groups connect. Other bloom bits: loads nothing."""
        unused_since = self._clock.now_ms() - DEAD_BEFORE_LOAD_MS
        table = {}
        for topic, stored in topics.items():
            for group, data in stored.group_filter_data.items():
                bits = data.bloom_filter_data
                if bits is None or (bits.bit_num, len(bits.bit_pos)) != (
                    self._bloom.bits,
                    self._bloom.hashes,
                ):
                    return
                if data.dead_time == 0:
                    data.dead_time = max(unused_since, data.born_time)
                table[topic, group] = data
        for (topic, group), data in table.items():
            self._put(topic, group, data)

    def _put(self, topic: str, group: str, data: FilterData) -> None:
        self._drop(topic, group)
        self._chars += _chars(data)
        self._table[topic, group] = data
        self._of_group.setdefault(group, {})[topic] = data

    def _drop(self, topic: str, group: str) -> bool:
        """Remove a filter; False when there is none."""
        found = self._table.pop((topic, group), None)
        if found is None:
            return False
        self._chars -= _chars(found)
        topics = self._of_group[group]
        del topics[topic]
        if not topics:
            del self._of_group[group]
        return True

    def get(self, topic: str, group: str) -> FilterData | None:
        """The filter of a group for a topic, if it exists and can be evaluated."""
        data = self._table.get((topic, group))
        return data if data is not None and data.is_usable else None

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Process a group's subscriptions: add new filters, and mark those it no longer has as unused."""
        for _ in self.registering(group, {data.topic: data for data in subscriptions}):
            pass

    def registering(self, group: str, subscriptions: Mapping[str, SubscriptionData]) -> Iterator[None]:
        """Like `register`, one subscription per step: parsing a long expression takes some milliseconds. The
        subscriptions, by topic, may change in between."""
        for topic in list(subscriptions):
            data = subscriptions.get(topic)
            if data is not None:
                self.renew(group, data)
            yield
        for topic, known in self._of_group.get(group, {}).items():
            if topic not in subscriptions:
                self._rest(known)

    def renew(self, group: str, data: SubscriptionData) -> None:
        """Process the current subscription of a group to a topic, if it is a filter.

        It replaces the known one, whatever their versions are: those of two clients, or of one before and
        after its clock was set right, cannot be compared.
        """
        if is_tag_type(data.expression_type) or not data.expression:
            return
        key = data.topic, group
        known = self._table.get(key)
        same = known is not None and _content(known) == _content(data)
        if known is not None and same and known.client_version == data.version and not known.is_dead:
            return
        bits = BloomData(self._bloom.bits, list(self._bloom.positions(f"{group}#{data.topic}")))
        if known is not None and same and known.bloom_filter_data == bits:
            known.client_version = data.version
            known.dead_time = 0
            self._changes += 1
            return
        if known is None and len(self._table) >= FILTERS_MAX:
            return  # the client gets the error when it pulls, like that of an invalid expression
        size = len(group) + len(data.topic) + len(data.expression)
        if self._chars - (0 if known is None else _chars(known)) + size > FILTER_CHARS_MAX:
            self._changes += self._drop(*key)  # the old filter is no longer requested
            return
        try:
            compile_filter(data.expression_type, data.expression)
        except InvalidExpressionError:  # the client gets the error when it pulls: it then has no filter
            self._changes += self._drop(*key)
            return
        self._changes += 1
        made = FilterData(
            bloom_filter_data=bits,
            born_time=self._clock.now_ms(),
            client_version=data.version,
            consumer_group=group,
            expression=data.expression,
            expression_type=data.expression_type,
            topic=data.topic,
        )
        self._put(*key, made)

    def unregister(self, group: str) -> None:
        """The last member of a group left."""
        for data in self._of_group.get(group, {}).values():
            self._rest(data)

    def _rest(self, data: FilterData) -> None:
        if not data.is_dead:
            data.dead_time = self._clock.now_ms()
            self._changes += 1

    def _drop_old(self) -> None:
        """Remove filters whose group went offline too long ago."""
        before = self._clock.now_ms() - self._keep_ms
        for key in [key for key, data in self._table.items() if data.is_dead and data.dead_time <= before]:
            self._changes += self._drop(*key)

    def save(self) -> None:
        """Write the file if the filters changed; raises `StoreError`, and then they stay unsaved."""
        unsaved = self.unsaved()
        if unsaved is not None:
            self.write(unsaved)

    def unsaved(self) -> UnsavedFilters | None:
        """The data to write, without expired filters; None when nothing changed since `write`."""
        self._drop_old()
        if self._changes == self._saved:
            return None
        return UnsavedFilters(self._changes, self._table.copy())

    def write(self, unsaved: UnsavedFilters) -> None:
        """Write the result of `unsaved`, in any thread; raises `StoreError`, leaving the data unsaved."""
        self._file.save(unsaved.content())
        self._saved = unsaved.changes


def _content(data: FilterData | SubscriptionData) -> tuple[str, str]:
    return data.expression_type, data.expression


def _chars(data: FilterData) -> int:
    return len(data.consumer_group) + len(data.topic) + len(data.expression)


class FilterCheck:
    """46: before they start, clients ask whether the broker accepts their filter."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled

    def check(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """Success, 1 if filters are off, or 23 with the error in the expression."""
        return finished(self._check(command))

    def _check(self, command: Command) -> Generator[None, None, Command]:
        data = CheckClientBody.decode_request(command.body).subscription_data
        if data is None or is_tag_type(data.expression_type):
            return Command(ResponseCode.SUCCESS, command.opaque, FLAG_RESPONSE)
        if not self._enabled:
            remark = unsupported_filter(data.expression_type)
            return Command(ResponseCode.SYSTEM_ERROR, command.opaque, FLAG_RESPONSE, remark=remark)
        yield
        try:
            compile_filter(data.expression_type, data.sub_string)
        except InvalidExpressionError as error:
            code = ResponseCode.SUBSCRIPTION_PARSE_FAILED
            return Command(code, command.opaque, FLAG_RESPONSE, remark=str(error))
        return Command(ResponseCode.SUCCESS, command.opaque, FLAG_RESPONSE)


def unsupported_filter(expression_type: str | None) -> str:
    """Why a broker without property filters refuses an expression; the first half is the reference's text."""
    return (
        f"The broker does not support consumer to filter message by {expression_type}; "
        "set enablePropertyFilter=true in its configuration"
    )
