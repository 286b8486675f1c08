from __future__ import annotations

import pyspark
import pytest
from pyspark.sql import datasource
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.options import versions
from sparrowmq.spark.options.table import ReadOptions


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (ReadOptions(max_offsets=5), "maxOffsetsPerTrigger"),
        (ReadOptions(min_offsets=5), "minOffsetsPerTrigger"),
        (ReadOptions(max_bytes=5), "maxBytesPerTrigger"),
    ],
)
def test_limits_need_spark_4_2(options: ReadOptions, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    versions.check_limits(options)
    monkeypatch.setattr(versions, "limits", None)
    monkeypatch.setattr(pyspark, "__version__", "4.1.1")
    with pytest.raises(SettingsError, check=about(setting=name)):
        versions.check_limits(options)
    versions.check_limits(ReadOptions())


def test_streaming_writes_need_spark_4_1(monkeypatch: pytest.MonkeyPatch) -> None:
    versions.check_stream_writer()
    monkeypatch.delattr(datasource, "DataSourceStreamArrowWriter")
    monkeypatch.setattr(pyspark, "__version__", "4.0.1")
    with pytest.raises(SettingsError, check=about(what="pyspark", value="4.0.1")):
        versions.check_stream_writer()
