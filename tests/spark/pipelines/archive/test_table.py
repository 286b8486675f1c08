"""An archive in a table: what it makes of the table's versions and notes. Tables of real formats are in
`tests/versions`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark import ArchiveSettings
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.archive.ledger import ArchiveError
from sparrowmq.spark.pipelines.archive.location import (
    DESCRIPTION,
    Draft,
    TableOptions,
    content_of,
    needs_session,
    store_of,
)
from sparrowmq.spark.pipelines.archive.table import TableStore, Version, parsed_note
from sparrowmq.spark.pipelines.common.files import LocalFiles

QUEUE = MessageQueue("T", "broker-a", 0)
DESCRIBED = {"version": 1, "format": "delta", "table": "", "id": "me"}


class FakeTable:
    """Versions in a list; each is the rows of one commit and its note. `meanwhile` comes before a commit."""

    where = "fake"

    def __init__(self) -> None:
        self.versions: list[tuple[int, str]] = []
        self.meanwhile: list[str] = []
        self.lost_rows = 0
        self.tended: list[str] = []

    def latest(self, spark: SparkSession) -> Version | None:
        if not self.versions:
            return None
        noted = [version for version in self.versions if parsed_note(version[1])]
        rows, note = noted[-1] if noted else (0, "")
        return Version(str(len(self.versions)), parsed_note(note), rows, 7)

    def append(self, frame: DataFrame, number: int, note: str, after: str) -> None:
        self.versions += [(1, other) for other in self.meanwhile]
        if self.meanwhile and parsed_note(self.meanwhile[-1]):
            return  # as Delta does with a number that is committed
        self.versions.append((int(frame.count()) - self.lost_rows, note))

    def read(self, spark: SparkSession, version: str) -> DataFrame:
        return spark.sql(f"SELECT 'T' topic, current_date() date, {int(version)} number")

    def tend(self, spark: SparkSession, note: str) -> None:
        self.tended.append(note)
        self.versions.append((0, ""))


@pytest.fixture
def table() -> FakeTable:
    return FakeTable()


@pytest.fixture
def store(tmp_path: Path, table: FakeTable) -> TableStore:
    return TableStore(LocalFiles(tmp_path), DESCRIBED, table, is_new=True)


def draft(number: int, rows: int = 3) -> Draft:
    span = Span(QUEUE, 3 * number, 3 * number + rows)
    return Draft(number=number, spans=(span,), columns={"number": "int"}, done={"q": number}, expected=3)


def test_notes_travel_in_commits(spark: SparkSession, store: TableStore, table: FakeTable) -> None:
    frame = spark.range(3)
    with pytest.raises(ArchiveError, check=about(what="archive", value="fake")):
        store.content()
    with store.locked():
        assert store.content().ledger.units == ()
        for number in range(3):
            assert store.publish(frame, draft(number)).rows == 3
        table.versions.append((9, '{"who": "somebody else"}'))
        content = store.content()
        assert content.ledger.covered(QUEUE) == (Span(QUEUE, 0, 9),)
        assert content.ledger.has("q", 2) and not content.ledger.has("q", 3)
        assert content.ledger.next_number == 3
        assert content.read(spark, content.ledger.units).collect()[0]["number"] == 4, "the newest version"
        assert content.read(spark, []).count() == 0
        assert store.compact(spark, least=2, size_max=1) == 0
        assert store.compact(spark, least=3, size_max=1) == 3
        assert parsed_note(table.tended[0]) == parsed_note(table.versions[2][1])
        assert store.content().ledger.next_number == 3


def test_of_two_runs_one_ends(spark: SparkSession, store: TableStore, table: FakeTable) -> None:
    frame = spark.range(3)
    with store.locked():
        store.publish(frame, draft(0))
        note = parsed_note(table.versions[-1][1])
        assert note is not None
        table.meanwhile = [json.dumps({**note, "token": "another"})]
        with pytest.raises(ArchiveError, check=about(what="run")):
            store.publish(frame, draft(1))
        with pytest.raises(ArchiveError, check=about(what="run")):
            store.publish(frame, draft(5))


def test_rows_are_counted_after_the_commit(spark: SparkSession, store: TableStore, table: FakeTable) -> None:
    table.lost_rows = 1
    with (
        store.locked(),
        pytest.raises(ArchiveError, check=about(what="messages", value=2, limit=3)),
    ):
        store.publish(spark.range(3), draft(0))


def test_tables_of_others_are_refused(spark: SparkSession, store: TableStore, table: FakeTable) -> None:
    table.versions = [(1, "")]
    with store.locked():
        with pytest.raises(ArchiveError, check=about(what="commits")):
            store.content()
        table.versions = [(1, json.dumps({"version": 1, "id": "you", "unit": {}}))]
        with pytest.raises(ArchiveError, check=about(what="archive", value="you", limit="me")):
            store.content()


def test_what_is_no_note() -> None:
    for text in (None, "", "[]", "{}", '{"version": 2, "unit": {}}', "text"):
        assert parsed_note(text) is None


def test_a_directory_says_what_it_holds(spark: SparkSession, tmp_path: Path) -> None:
    delta = TableOptions(format="delta")
    where = tmp_path / "archive"
    assert not needs_session(where)
    store = store_of(where, delta)
    assert not store.exists and not where.exists()
    with store.locked():
        assert needs_session(where)
        assert json.loads((where / DESCRIPTION).read_text())["format"] == "delta"
    assert isinstance(store_of(where), TableStore)
    assert str(store_of(where)) == f"file:{where}/table"
    for other in (TableOptions(format="parquet"), TableOptions(format="delta", table="db.t")):
        with pytest.raises(ArchiveError, check=about(what="format", value="delta")):
            store_of(where, other)
    plain = ArchiveSettings(directory=tmp_path / "plain", topics=("T",))
    with plain.store.locked():
        pass
    with pytest.raises(ArchiveError, check=about(what="format", value="parquet")):
        store_of(tmp_path / "plain", delta)
    (where / DESCRIPTION).write_text('{"version": 9}')
    with pytest.raises(ArchiveError, check=about(what=DESCRIPTION)):
        content_of(where)


def test_a_format_that_spark_does_not_have_is_named(spark: SparkSession, tmp_path: Path) -> None:
    store = store_of(tmp_path, TableOptions(format="delta"))
    frame = spark.sql("SELECT 'T' topic, current_date() date, 1 number FROM range(3)")
    with (
        store.locked(),
        pytest.raises(ArchiveError, check=about(setting="format", value="delta")),
    ):
        store.publish(frame, draft(0))


@pytest.mark.parametrize(
    ("values", "setting"),
    [
        ({"format": "orc"}, "format"),
        ({"table": "x"}, "format"),
        ({"format": "iceberg", "table": "db.t"}, "table"),
        ({"format": "delta", "keep_days": -1}, "keep_days"),
    ],
)
def test_wrong_settings(values: dict[str, Any], setting: str) -> None:
    with pytest.raises(SettingsError, check=about(setting=setting)):
        ArchiveSettings(directory="x", topics=("T",), **values)
