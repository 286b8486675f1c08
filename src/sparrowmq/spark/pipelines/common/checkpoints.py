"""The Spark checkpoint of a pipeline's streaming query, read by the pipeline."""

from __future__ import annotations

import json

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.offsets.offsets import Span, StreamOffset, spans
from sparrowmq.spark.pipelines.common.files import Files


class QueryCheckpoint:
    """One checkpoint. Unreadable content is an `error`; its text says what happens if the pipeline continues
    `without`.
    """

    def __init__(self, files: Files, error: type[SettingsError], without: str) -> None:
        self._files = files
        self._error = error
        self._without = without
        self.location = files.location
        """The location, as passed to Spark."""

    def __repr__(self) -> str:
        return f"<Checkpoint {self.location}>"

    @property
    def has_batches(self) -> bool:
        """Whether there is a batch to continue from."""
        return bool(self._files.names("offsets"))

    def query_id(self) -> str:
        """The id of the streaming query that the checkpoint belongs to."""
        text = self._files.read("metadata")
        try:
            return str(json.loads(text or "")["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._unusable("metadata has no query id") from error

    def batch_spans(self, batch: int) -> list[Span]:
        """The offsets of a micro-batch, which Spark logs before it runs (spark:S-12)."""
        start = StreamOffset({}) if batch == 0 else self._logged(batch - 1)
        return spans(start, self._logged(batch))

    def last(self) -> StreamOffset:
        """The offset that ends the last planned batch; an empty one without a batch."""
        numbers = [int(name) for name in self._files.names("offsets") if name.isdecimal()]
        return self._logged(max(numbers)) if numbers else StreamOffset({})

    def _logged(self, batch: int) -> StreamOffset:
        name = f"offsets/{batch}"
        try:
            return StreamOffset.from_json(json.loads((self._files.read(name) or "").splitlines()[2]))
        except (IndexError, ValueError, SettingsError) as error:
            raise self._unusable(f"{name} has no offsets of batch {batch}") from error

    def _unusable(self, what: str) -> SettingsError:
        return self._error(f"{self.location}/{what}: remove {self.location}, {self._without}")
