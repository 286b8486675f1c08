from __future__ import annotations

import pyarrow as pa
import pytest
from tests.support import about

from sparrowmq.columnar.schema import DEFAULT_COLUMNS, TYPES, arrow_schema
from sparrowmq.core.errors import SettingsError


def test_the_default_columns() -> None:
    assert DEFAULT_COLUMNS[0] == "topic"
    assert DEFAULT_COLUMNS[-1] == "body"
    assert arrow_schema().names == list(DEFAULT_COLUMNS)


def test_columns_come_in_the_order_asked_for() -> None:
    schema = arrow_schema(["body", "flag"])
    assert schema.names == ["body", "flag"]
    assert schema.types == [pa.binary(), pa.int32()]
    assert all(field.nullable for field in arrow_schema(tuple(TYPES)))


def test_an_unknown_column_names_the_known_ones() -> None:
    with pytest.raises(SettingsError, check=about(what="offset")):
        arrow_schema(["offset"])
