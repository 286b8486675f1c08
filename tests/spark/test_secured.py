"""Reads and writes through accounts and TLS, with the options for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.certificates import Authority, tls_properties
from tests.spark.support import bodies, load, numbered

import sparrowmq as mq
from sparrowmq.testing import LocalCluster

ACCOUNT = {"accessKey": "root", "secretKey": "toor12345"}


@dataclass(frozen=True)
class Guarded:
    """A cluster with one account and TLS, and the authority that its clients trust."""

    cluster: LocalCluster
    ca: Path

    def options(self, **more: str) -> dict[str, str]:
        """All that a client needs."""
        return {"nameServer": self.cluster.namesrv, "tls": "true", "tlsCa": str(self.ca), **ACCOUNT, **more}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("authority")
    authority = Authority(directory)
    pair = authority.sign("server")
    config = tls_properties(
        directory,
        server__certPath=pair.cert,
        server__keyPath=pair.key,
        client__authServer="true",
        client__trustCertPath=authority.cert,
    )
    with LocalCluster(
        authentication_enabled=True,
        authorization_enabled=True,
        init_authentication_user='{"username":"root","password":"toor12345"}',
        tls_config_file=config,
        use_tls=True,
    ) as cluster:
        settings = mq.ClientSettings(
            namesrv=cluster.namesrv,
            access_key=ACCOUNT["accessKey"],
            secret_key=ACCOUNT["secretKey"],
            tls=True,
            tls_ca=authority.cert,
        )
        with mq.Admin(settings=settings) as admin:
            admin.create_topic("Guarded", queues=2)
        yield Guarded(cluster, authority.cert)


def test_rows_go_out_and_in_with_account_and_tls(spark: SparkSession, guarded: Guarded) -> None:
    frame = spark.range(20).selectExpr("concat('m', id) as body")
    frame.write.format("rocketmq").options(**guarded.options(topic="Guarded")).mode("append").save()
    assert bodies(load(spark, guarded.options(subscribe="Guarded"))) == numbered(0, 20)


def test_with_a_wrong_password_nothing_is_read(spark: SparkSession, guarded: Guarded) -> None:
    options = guarded.options(subscribe="Guarded") | {"secretKey": "wrong12345"}
    with pytest.raises(PySparkException, match=r"(?i)signature") as caught:
        load(spark, options | {"fetchOffset.numRetries": "0"}).count()
    assert "wrong12345" not in str(caught.value)
