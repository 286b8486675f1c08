"""Targets of pipelines: which queues, and whether their brokers know what they have stored."""

from __future__ import annotations

import pytest
from tests.spark.support import Topics
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.options.table import connection_options
from sparrowmq.spark.pipelines.common.writing import target
from sparrowmq.testing import LocalCluster


def test_a_target_is_looked_at(topics: Topics, topic: str) -> None:
    found = target({"nameServer": topics.cluster.namesrv, "topic": topic})
    assert found.queues == tuple(MessageQueue(topic, "broker-a", number) for number in range(4))
    assert (found.topic, found.forgetful) == (topic, "")


def test_a_topic_that_must_be_made_first() -> None:
    with (
        LocalCluster(auto_create_topic_enable=False) as cluster,
        pytest.raises(SettingsError, check=about(setting="topic", value="T_nowhere")),
    ):
        target({"nameServer": cluster.namesrv, "topic": "T_nowhere"})


def test_options_of_the_connection_alone() -> None:
    given = {"nameServer": "a:1", "ACCESSKEY": "k", "tls": "true", "batchRows": "5", "topic": "T"}
    assert connection_options(given) == {"nameServer": "a:1", "ACCESSKEY": "k", "tls": "true"}
