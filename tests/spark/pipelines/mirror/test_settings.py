"""What a mirror's settings refuse, and what they say to source and sink."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support import about

import sparrowmq as mq
from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.pipelines.mirror.settings import MirrorSettings

SETTINGS = MirrorSettings(
    directory="mirror",
    source="here",
    target="there",
    name_server="127.0.0.1:9876",
    target_name_server="127.0.0.2:9876",
    topics=("T", "%DLQ%g"),
)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"topics": ()}, "topics or a pattern"),
        ({"pattern": "x"}, "topics or a pattern"),
        ({"target": "here"}, "both called 'here'"),
        ({"source": "a,b"}, "source='a,b': a cluster's name"),
        ({"target_name_server": ""}, "needs target_name_server"),
        ({"start": "middle"}, "start='middle': must be earliest or latest"),
        ({"batch_rows": 0}, "batch_rows=0: must be 1 or more"),
        ({"every": -1}, "every=-1: must be 0 or more"),
        ({"groups_every": -1}, "groups_every=-1: must be 0 or more"),
        ({"topics": ("%RETRY%g",)}, "belong to consumers"),
        ({"topics": ("rmq_sys_x",)}, "is a system topic of RocketMQ"),
        ({"topics": (), "pattern": "%DLQ%.*"}, "name each dead-letter topic"),
        ({"groups": ("a b",)}, "a b"),
        ({"group_pattern": "("}, "group_pattern"),
    ],
)
def test_wrong_ones(values: dict[str, Any], text: str) -> None:
    with pytest.raises(mq.SparrowError, match=text):
        replace(SETTINGS, **values)


def test_options_of_source_and_sink() -> None:
    given = replace(SETTINGS, options={"accessKey": "a", "secretKey": "b"}, target_options={"retries": "5"})
    assert given.source_options == {
        "failOnDataLoss": "true",
        "maxPartitions": "8",
        "accessKey": "a",
        "secretKey": "b",
        "nameServer": "127.0.0.1:9876",
        "subscribe": "T,%DLQ%g",
    }
    assert given.sink_options == {"retries": "5", "nameServer": "127.0.0.2:9876"}
    source, target = given.sides
    assert (source.name, source.connection.access_key) == ("here", "a")
    assert (target.name, target.connection.access_key) == ("there", None)
    assert target.connection.name_server == "127.0.0.2:9876"
    assert replace(SETTINGS, topics=(), pattern="T.*").source_options["subscribePattern"] == "T.*"
    with pytest.raises(SettingsError, check=about(setting="retries", value="x")):
        _ = replace(SETTINGS, target_options={"retries": "x"}).sides
