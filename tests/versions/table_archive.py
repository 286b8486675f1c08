"""A program for the Spark that a table format is made for: an archive in a table, through everything.

`python -m tests.versions.table_archive FORMAT PACKAGES NAMESERVER DIRECTORY` prints what it saw as one line
of JSON.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyspark
from pyspark.sql import DataFrame, SparkSession

import sparrowmq as mq
from sparrowmq.core.errors import SettingsError
from sparrowmq.spark import ArchiveSettings, HistorySettings, archive, history, read_archive
from sparrowmq.spark.pipelines.archive import delta, iceberg
from sparrowmq.spark.pipelines.archive.table import TableStore
from sparrowmq.spark.sessions import builder

TOPIC = "Orders"
CONF = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
    },
}


def session(kind: str, packages: str, directory: Path) -> SparkSession:
    """With the format on its class path and a catalog below the directory."""
    made = builder("tables").config("spark.jars.packages", packages)
    for name, value in CONF[kind].items():
        made = made.config(name, value)
    if kind == "iceberg":
        made = made.config("spark.sql.catalog.lake.warehouse", str(directory / "warehouse"))
    return made.getOrCreate()


def main(kind: str, packages: str, namesrv: str, directory: Path) -> dict[str, Any]:
    """What becomes of the archive, step by step."""
    spark = session(kind, packages, directory)
    settings = ArchiveSettings(
        directory=directory / "archive",
        format=kind,
        table="lake.db.orders" if kind == "iceberg" else "",
        topics=(TOPIC,),
        name_server=namesrv,
        compact_batches=0,
        columns=("body",),
    )
    table = "lake.db.orders" if kind == "iceberg" else f"delta.`{directory}/archive/table`"
    found: dict[str, Any] = {"version": pyspark.__version__}
    with mq.Producer("tables", namesrv=namesrv) as producer:
        steps = Steps(spark, settings, producer, table)
        found["first"] = steps.first()
        found["killed"] = steps.killed()
        found["checkpoint"] = steps.without_checkpoint()
        found["column"] = steps.column()
        found["race"] = steps.race()
        found["merged"] = steps.merged()
        found["others"] = steps.others()
        found["old"] = steps.old()
        found["foreign"] = steps.foreign()
    return found


class Steps:
    """Messages `0`, `1`, … and an archive that should have each of them once."""

    def __init__(
        self, spark: SparkSession, settings: ArchiveSettings, producer: mq.Producer, table: str
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._producer = producer
        self._table = table
        self._sent = 0

    def _send(self, count: int) -> None:
        messages = [mq.Message(TOPIC, b"%d" % (self._sent + number)) for number in range(count)]
        self._producer.send_batch(messages)
        self._sent += count

    def _is_whole(self, frame: DataFrame) -> bool:
        """Whether the frame has every message that was sent, once."""
        rows = frame.selectExpr("cast(cast(body as string) as int) n").collect()
        return sorted(row["n"] for row in rows) == list(range(self._sent))

    def _archived(self) -> bool:
        plain = self._spark.sql(f"SELECT body FROM {self._table}")
        return self._is_whole(read_archive(self._spark, self._settings.directory)) and self._is_whole(plain)

    def first(self) -> list[Any]:
        """Two runs, and what is live on top."""
        self._send(12)
        rows = [archive(self._spark, self._settings).rows]
        self._send(5)
        rows.append(archive(self._spark, self._settings).rows)
        rows.append(archive(self._spark, self._settings).rows)
        whole = self._archived()
        self._send(4)
        asked = HistorySettings(directory=self._settings.directory, name_server=self._settings.name_server)
        return [rows, whole, self._is_whole(history(self._spark, asked))]

    def killed(self) -> list[Any]:
        """Deaths before and after the commit."""
        kind = delta.DeltaTable if self._settings.format == "delta" else iceberg.IcebergTable
        real: Any = kind.append

        def before(*_: Any) -> None:
            raise SettingsError("died before")

        def after(*arguments: Any) -> None:
            real(*arguments)
            raise SettingsError("died after")

        seen = []
        for dies in (before, after):
            with patch.object(kind, "append", dies):
                try:
                    archive(self._spark, self._settings)
                except SettingsError as error:
                    seen.append(str(error))
        archive(self._spark, self._settings)
        return [seen, self._archived()]

    def without_checkpoint(self) -> bool:
        """It goes on where the table ends."""
        shutil.rmtree(Path(self._settings.directory) / "checkpoint")
        self._send(3)
        archive(self._spark, self._settings)
        return self._archived()

    def column(self) -> list[Any]:
        """A column more; then without it again."""
        self._send(2)
        archive(self._spark, replace(self._settings, select=("length(body) as digits",)))
        self._send(2)
        archive(self._spark, self._settings)
        rows = self._spark.sql(f"SELECT count(digits) FROM {self._table}").first()
        return [rows and rows[0], self._archived()]

    def race(self) -> list[Any]:
        """Two runs commit the same batch: one looked before the other committed."""
        self._send(2)
        kind = delta.DeltaTable if self._settings.format == "delta" else iceberg.IcebergTable
        real, busy = kind.append, []
        other = archive_of(self._settings)

        def slow(table: Any, frame: DataFrame, number: int, note: str, after: str) -> None:
            if not busy:
                busy.append(number)
                mine = json.loads(note)
                real(table, frame, number, json.dumps({**mine, "token": "another run"}), after)
            real(table, frame, number, note, after)

        error = ""
        with patch.object(kind, "append", slow):
            try:
                archive(self._spark, self._settings)
            except SettingsError as caught:
                error = str(caught)
        assert other.content().ledger.next_number == busy[0] + 1
        archive(self._spark, self._settings)
        return [error, self._archived()]

    def merged(self) -> list[Any]:
        """Small files become few; old versions go."""
        before = self._files()
        self._send(1)
        archive(self._spark, replace(self._settings, compact_batches=1, history_days=0))
        return [self._files() < before, self._archived()]

    def _files(self) -> int:
        frame = self._spark.sql(f"SELECT DISTINCT input_file_name() FROM {self._table}")
        return frame.count()

    def others(self) -> bool:
        """Commits of other people around the newest note."""
        self._spark.sql(f"ALTER TABLE {self._table} SET TBLPROPERTIES ('who'='somebody')")
        self._spark.sql(f"DELETE FROM {self._table} WHERE topic = 'nobody''s'")
        with patch.object(delta, "_NEWEST", 1):
            self._send(2)
            archive(self._spark, self._settings)
        return self._archived()

    def old(self) -> list[Any]:
        """Ten days later, five are kept: rows go, and stay archived."""

        class Later(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return datetime.now(tz) + timedelta(days=10)

        self._send(1)
        module = delta if self._settings.format == "delta" else iceberg
        with patch.object(module, "datetime", Later):
            archive(self._spark, replace(self._settings, compact_batches=1, keep_days=5, history_days=20))
        left = read_archive(self._spark, self._settings.directory).count()
        return [left, archive(self._spark, self._settings).rows]

    def foreign(self) -> str:
        """Another archive of the same table."""
        other = replace(self._settings, directory=Path(self._settings.directory).parent / "other")
        if not other.table:
            shutil.copytree(f"{self._settings.directory}/table", f"{other.directory}/table")
        try:
            archive(self._spark, other)
        except SettingsError as error:
            return str(error)
        return ""


def archive_of(settings: ArchiveSettings) -> TableStore:
    """The store of an archive that is a table."""
    store = settings.store
    assert isinstance(store, TableStore)
    return store


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:4], Path(sys.argv[4]))))
