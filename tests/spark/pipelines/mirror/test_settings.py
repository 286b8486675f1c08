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
    ("values", "facts"),
    [
        ({"topics": ()}, {"setting": "topics", "other": "pattern"}),
        ({"pattern": "x"}, {"setting": "topics", "other": "pattern"}),
        ({"target": "here"}, {"setting": "target", "other": "source"}),
        ({"source": "a,b"}, {"setting": "source", "value": "a,b"}),
        ({"target_name_server": ""}, {"setting": "target_name_server"}),
        ({"start": "middle"}, {"setting": "start", "value": "middle"}),
        ({"batch_rows": 0}, {"setting": "batch_rows", "value": 0}),
        ({"every": -1}, {"setting": "every", "value": -1}),
        ({"groups_every": -1}, {"setting": "groups_every", "value": -1}),
        ({"topics": ("%RETRY%g",)}, {"setting": "topics", "what": "retry topic"}),
        ({"topics": ("rmq_sys_x",)}, {"setting": "topics", "what": "system topic"}),
        ({"topics": (), "pattern": "%DLQ%.*"}, {"setting": "pattern", "value": "%DLQ%.*"}),
        ({"group_pattern": "("}, {"setting": "group_pattern", "value": "("}),
    ],
)
def test_wrong_ones(values: dict[str, Any], facts: dict[str, object]) -> None:
    with pytest.raises(SettingsError, check=about(**facts)):
        replace(SETTINGS, **values)


def test_groups_have_valid_names() -> None:
    with pytest.raises(mq.InvalidNameError):
        replace(SETTINGS, groups=("a b",))


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
