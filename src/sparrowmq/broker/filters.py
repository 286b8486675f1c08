"""What pulls want, and the filters of consumer groups that the broker remembers (broker:14).

The filters of online groups are kept in `config/consumerFilter.json` as the reference keeps them, so that its
brokers find them too: with the bits of the reference's bloom filter, when they were made, and when their
group went.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sparrowmq.core.errors import InvalidExpressionError, RecordError, StoreCorruptError
from sparrowmq.core.hashing import java_hash
from sparrowmq.core.subscription import SQL92, TAG, SubscriptionData
from sparrowmq.protocol.bodies import CheckClientBody
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.protocol.record import find_properties
from sparrowmq.protocol.sql92 import compile_sql
from sparrowmq.store.offsets import Unsaved

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock
    from sparrowmq.protocol.bloom import BloomFilter
    from sparrowmq.protocol.sql92 import Predicate
    from sparrowmq.store.config_file import ConfigFile
    from sparrowmq.transport.connection import Connection

DEAD_BEFORE_LOAD_MS: Final = 30_000
"""A filter that was in use when it was saved counts as unused since so long before the start."""

Match = Callable[[memoryview, int], bool]
"""Whether the record at a byte of a view is wanted."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a pull wants: tag codes, None for all, and what the record itself must be like, None for any."""

    codes: frozenset[int] | None = None
    match: Match | None = None


EVERYTHING: Final = Wanted()


class RecordMatch:
    """A predicate over the properties of stored records. A damaged one is wanted: its reader reports it."""

    __slots__ = ("_matches",)

    def __init__(self, predicate: Predicate) -> None:
        self._matches = predicate.matches_encoded

    def __call__(self, view: memoryview, at: int) -> bool:
        """Whether the record that starts at byte `at` is wanted."""
        try:
            return self._matches(find_properties(view, at))
        except RecordError:
            return True


def is_tag_type(expression_type: str | None) -> bool:
    """Whether an expression of this type is a tag expression; no type means one."""
    return expression_type is None or expression_type in ("", TAG)


@lru_cache(maxsize=4096)
def wanted_tags(tags: frozenset[str]) -> Wanted:
    """What a subscription to tags wants; no tags means everything."""
    return Wanted(frozenset(map(java_hash, tags))) if tags else EVERYTHING


def compile_filter(expression_type: str, expression: str) -> Predicate:
    """The predicate of an expression that is no tag expression. Raises `InvalidExpressionError`."""
    if expression_type != SQL92:
        raise InvalidExpressionError(
            f"the expression type {expression_type[:80]!r} is unknown; known: {TAG}, {SQL92}"
        )
    if not expression:
        raise InvalidExpressionError("the SQL92 expression is empty", position=0, token="")
    return compile_sql(expression)


@lru_cache(maxsize=1024)
def wanted_filter(expression_type: str, expression: str) -> Wanted:
    """What an expression that is no tag expression wants. Raises `InvalidExpressionError`."""
    return Wanted(match=RecordMatch(compile_filter(expression_type, expression)))


class BloomData(msgspec.Struct, frozen=True, rename="camel"):
    """The bits of a group and topic in the bloom filter."""

    bit_num: int
    bit_pos: list[int]


class FilterData(msgspec.Struct, rename="camel", kw_only=True):
    """One group's filter of one topic; times are epoch milliseconds, `client_version` the subscription's."""

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
        """Whether the group does not use it now."""
        return self.dead_time >= self.born_time

    @property
    def is_usable(self) -> bool:
        """Whether its expression can be evaluated; one from a newer broker's file may not."""
        try:
            wanted_filter(self.expression_type, self.expression)
        except InvalidExpressionError:
            return False
        return True


class _Topic(msgspec.Struct, rename="camel"):
    group_filter_data: dict[str, FilterData] = {}
    topic: str = ""


class ConsumerFilters:
    """The filters of all groups. `keep_ms` is how long one stays after its group went."""

    def __init__(self, file: ConfigFile, clock: Clock, bloom: BloomFilter, *, keep_ms: int) -> None:
        self._file = file
        self._clock = clock
        self._bloom = bloom
        self._keep_ms = keep_ms
        self._table: dict[tuple[str, str], FilterData] = {}
        self._changes = 0
        self._saved = 0
        stored = file.load().get("filterDataByTopic") or {}
        try:
            self._load(msgspec.convert(stored, dict[str, _Topic], strict=False))
        except msgspec.ValidationError as error:
            raise StoreCorruptError(
                f"{file.path} is not a table of consumer filters ({error}); restore or remove it"
            ) from error

    def _load(self, topics: dict[str, _Topic]) -> None:
        """Take over a file: all filters in it are unused until their groups come. Other bits: none of it."""
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
        self._table = table

    def get(self, topic: str, group: str) -> FilterData | None:
        """The filter of a group for a topic, if it has one that can be evaluated."""
        data = self._table.get((topic, group))
        return data if data is not None and data.is_usable else None

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """A group said what it subscribes to: take over new filters, rest those it no longer has."""
        topics = set()
        for data in subscriptions:
            topics.add(data.topic)
            self.renew(group, data)
        for (topic, name), known in self._table.items():
            if name == group and topic not in topics:
                self._rest(known)

    def renew(self, group: str, data: SubscriptionData) -> None:
        """Take over one subscription of a group, if it is a filter and newer than what is known."""
        if is_tag_type(data.expression_type) or not data.expression:
            return
        key = data.topic, group
        known = self._table.get(key)
        if known is not None and data.version <= known.client_version:
            if data.version == known.client_version and known.is_dead:
                known.dead_time = 0
                self._changes += 1
            return
        bits = BloomData(self._bloom.bits, list(self._bloom.positions(f"{group}#{data.topic}")))
        if known is not None and (known.expression_type, known.expression, known.bloom_filter_data) == (
            data.expression_type,
            data.expression,
            bits,
        ):
            known.client_version = data.version
            known.dead_time = 0
            self._changes += 1
            return
        try:
            compile_filter(data.expression_type, data.expression)
        except InvalidExpressionError:  # the client learns of it when it pulls: it has no filter then
            self._changes += self._table.pop(key, None) is not None
            return
        self._changes += 1
        self._table[key] = FilterData(
            bloom_filter_data=bits,
            born_time=self._clock.now_ms(),
            client_version=data.version,
            consumer_group=group,
            expression=data.expression,
            expression_type=data.expression_type,
            topic=data.topic,
        )

    def unregister(self, group: str) -> None:
        """The last member of a group went."""
        for (_, name), data in self._table.items():
            if name == group:
                self._rest(data)

    def _rest(self, data: FilterData) -> None:
        if not data.is_dead:
            data.dead_time = self._clock.now_ms()
            self._changes += 1

    def _drop_old(self) -> None:
        """Forget filters whose group went too long ago."""
        before = self._clock.now_ms() - self._keep_ms
        for key in [key for key, data in self._table.items() if data.is_dead and data.dead_time <= before]:
            del self._table[key]
            self._changes += 1

    def save(self) -> None:
        """Write the file if something changed; raises `StoreError`, then it is still unsaved."""
        unsaved = self.unsaved()
        if unsaved is not None:
            self.write(unsaved)

    def unsaved(self) -> Unsaved | None:
        """What there is to write, without what is too old; None when nothing changed since `write`."""
        self._drop_old()
        if self._changes == self._saved:
            return None
        topics: dict[str, dict[str, Any]] = {}
        for (topic, group), data in self._table.items():
            entry = topics.setdefault(topic, {"groupFilterData": {}, "topic": topic})
            entry["groupFilterData"][group] = msgspec.to_builtins(data)
        return Unsaved(self._changes, {"filterDataByTopic": topics})

    def write(self, unsaved: Unsaved) -> None:
        """Write what `unsaved` gave, in any thread; raises `StoreError`, then it is still unsaved."""
        self._file.save(unsaved.content)
        self._saved = unsaved.changes


class FilterCheck:
    """46: clients ask before they start whether the broker takes their filter."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled

    def check(self, connection: Connection, command: Command) -> Command:
        """Success, 1 where filters are off, or 23 with what is wrong with the expression."""
        data = CheckClientBody.decode(command.body).subscription_data
        if data is None or is_tag_type(data.expression_type):
            return Command(ResponseCode.SUCCESS, command.opaque, FLAG_RESPONSE)
        if not self._enabled:
            remark = unsupported_filter(data.expression_type)
            return Command(ResponseCode.SYSTEM_ERROR, command.opaque, FLAG_RESPONSE, remark=remark)
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
