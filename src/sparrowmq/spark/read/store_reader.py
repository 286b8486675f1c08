"""Batch reads of a store directory: `.option("store", "/backup/store")`; one task for a few files each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sparrowmq.spark.bodies.schema import source_schema
from sparrowmq.spark.options.table import ReadOptions
from sparrowmq.spark.read.prefetch import prefetch
from sparrowmq.spark.read.store_files import StoredLogFile, log_files, read_files, wanted_files


@dataclass
class FilesPartition(InputPartition):
    """What one task reads."""

    files: tuple[StoredLogFile, ...]


class StoreReader(DataSourceReader):
    """Reads the files of a commit log that existed when Spark planned the query."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema: pa.Schema = source_schema(schema)

    def partitions(self) -> list[InputPartition]:
        """A task for each file, or `maxPartitions` tasks of adjacent files. Raises `SettingsError`."""
        files = wanted_files(log_files(self._options.store), self._options)
        tasks = min(len(files), self._options.max_partitions or len(files))
        bounds = [len(files) * task // tasks for task in range(tasks + 1)] if tasks else [0]
        return [FilesPartition(tuple(files[low:high])) for low, high in pairwise(bounds)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The messages of one task; an empty plan is a partition without files (spark:S-33)."""
        files = partition.files if isinstance(partition, FilesPartition) else ()
        return prefetch(
            lambda: read_files(files, self._options, self._schema), self._options.prefetch_batches
        )
