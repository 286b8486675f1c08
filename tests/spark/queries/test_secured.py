"""Reads and writes through accounts and TLS, with the options for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.spark.guarded import Guarded, guarded
from tests.spark.support import bodies, load, numbered


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("authority"), "root", "toor12345") as made:
        with made.admin() as admin:
            admin.topics.create("Guarded", queues=2)
        yield made


def test_rows_go_out_and_in_with_account_and_tls(spark: SparkSession, safe: Guarded) -> None:
    frame = spark.range(20).selectExpr("concat('m', id) as body")
    frame.write.format("rocketmq").options(**safe.options(topic="Guarded")).mode("append").save()
    assert bodies(load(spark, safe.options(subscribe="Guarded"))) == numbered(0, 20)


def test_with_a_wrong_password_nothing_is_read(spark: SparkSession, safe: Guarded) -> None:
    options = safe.options(subscribe="Guarded") | {"secretKey": "wrong12345"}
    with pytest.raises(PySparkException, match=r"(?i)signature") as caught:
        load(spark, options | {"fetchOffset.numRetries": "0"}).count()
    assert "wrong12345" not in str(caught.value)
