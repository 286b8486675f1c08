"""Which topics a name in a trace may stand for."""

from __future__ import annotations

import pytest

from sparrowmq.spark.pipelines.audit.names import bare, known_topics, namesakes, shared, within_reach
from sparrowmq.spark.pipelines.query.stored import Stored
from sparrowmq.testing import LocalCluster


@pytest.mark.proves("client:B-123")
def test_names_without_name_spaces() -> None:
    names = ["Orders", "NS%Orders", "%RETRY%NS%g", "RMQ_SYS_TRACE_TOPIC"]
    assert [bare(name) for name in names] == ["Orders", "Orders", "%RETRY%g", "RMQ_SYS_TRACE_TOPIC"]


def test_what_a_group_can_consume() -> None:
    topics = ["Orders", "A%Orders", "B%Orders"]
    assert within_reach("g", topics) == topics
    assert within_reach("A%g", topics) == ["A%Orders"]


def test_topics_of_one_name() -> None:
    known = ["Orders", "A%Orders", "B%Orders", "Bills", "A%Other"]
    alone = namesakes(["Bills"], known)
    assert alone == {"Bills": ("Bills",)} and shared(alone) == []
    both = namesakes(["A%Orders", "Bills"], known)
    assert both == {"Orders": ("A%Orders", "B%Orders", "Orders"), "Bills": ("Bills",)}
    assert shared(both) == ["A%Orders", "B%Orders", "Orders"]
    assert namesakes(["A%Gone"], known) == {"Gone": ("A%Gone",)}


def test_topics_of_the_cluster() -> None:
    with LocalCluster() as cluster:
        cluster.create_topic("NS%Orders")
        assert "NS%Orders" in known_topics(Stored(topics=("Any",), name_server=cluster.namesrv))
