"""Peers of the interop tests: Apache RocketMQ's servers, a JVM with its client, and our own cluster."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.interop.apache import OLD, PATIENT, ApacheCluster
from tests.interop.driver import JavaDriver
from tests.interop.ours import OurClients

from sparrowmq.testing import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def apache() -> Iterator[ApacheCluster]:
    """Apache's servers; the broker asks for transactions every second, takes traces and lets recall.

    Fails, naming what to install, where Java or Maven is missing.
    """
    settings = {
        **PATIENT,
        "transactionTimeOut": 1000,
        "transactionCheckInterval": 1000,
        "traceTopicEnable": "true",
        "recallMessageEnable": "true",
    }
    with ApacheCluster(settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A small session; one that runs already is used and left alone."""
    from pyspark.sql import SparkSession
    from tests.spark.spark_home import quick_environment

    from sparrowmq.spark.sessions import builder

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    os.environ.update(quick_environment())
    session = builder("interop").getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def driver() -> Iterator[JavaDriver]:
    """One JVM with Apache's client. Fails, naming what to install, where Java or Maven is missing."""
    with JavaDriver() as java:
        yield java


@pytest.fixture(scope="session")
def apache49() -> Iterator[ApacheCluster]:
    """Apache's name server and broker 4.9.7, which ends and checks transactions soon."""
    settings = {**PATIENT, "transactionTimeOut": 500, "transactionCheckInterval": 500}
    with ApacheCluster(release=OLD, settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def driver49() -> Iterator[JavaDriver]:
    """One JVM with Apache's client 4.9.7, for the operations of `Driver`, `Exchanges` and `Security`."""
    with JavaDriver(OLD) as java:
        yield java


@pytest.fixture(scope="session")
def ours() -> Iterator[LocalCluster]:
    """Our name server and broker."""
    with LocalCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def our_clients() -> OurClients:
    """Our client library behind the Java driver's face."""
    return OurClients()


@pytest.fixture(scope="session")
def our_clients49() -> OurClients:
    """The same by the rules of RocketMQ 4.9."""
    return OurClients("4.9")


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for this test's topic and group that no other test has."""
    return re.sub(r"\W+", "_", request.node.name).strip("_")[:100]
