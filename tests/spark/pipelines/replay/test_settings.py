"""Wrong settings of a replay are refused by name; right ones say where it reads and sends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.replay.settings import ReplaySettings

Q = MessageQueue("T", "b", 0)


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"to": ""}, {"setting": "to"}),
        ({"topics": ()}, {"setting": "topics"}),
        ({"dead_letters_of": "g"}, {"setting": "dead_letters_of"}),
        (
            {"topics": (), "dead_letters_of": "g", "to": "x_{topic}"},
            {"setting": "to", "value": "x_{topic}"},
        ),
        ({"archive": "a", "sql92": "n = 1"}, {"setting": "sql92", "other": "archive"}),
        ({"tags": "a", "sql92": "n = 1"}, {"setting": "sql92", "other": "tags"}),
        ({"rate": 0}, {"setting": "rate", "value": 0}),
        ({"batch_rows": 0}, {"setting": "batch_rows", "value": 0}),
        ({"tasks": 0}, {"setting": "tasks", "value": 0}),
        ({"since": 5, "until": 5}, {"setting": "since", "value": 5}),
        ({"ids": "new"}, {"setting": "ids", "value": "new"}),
        ({"values": {"topic": "x"}}, {"setting": "values", "value": "topic"}),
        ({"options": {"startingOffsets": "latest"}}, {"setting": "options", "value": "startingOffsets"}),
    ],
)
def test_wrong_settings(values: dict[str, Any], facts: dict[str, object]) -> None:
    given: dict[str, Any] = {"home": "h", "to": "Out", "topics": ("T",), **values}
    with pytest.raises(SettingsError, check=about(**facts)):
        ReplaySettings(**given)


def test_where_it_goes() -> None:
    given = ReplaySettings(
        home="h",
        to="again_{topic}",
        ranges=(Span(Q, 0, 5),),
        name_server="a:1",
        options={"accessKey": "k", "secretKey": "s", "batchRows": "500"},
    )
    assert given.sources == ("T",)
    own = {"nameServer": "a:1", "accessKey": "k", "secretKey": "s", "topic": "again_T"}
    assert given.sink_options("T") == own
    other = replace(given, to_name_server="b:1", to_options={"retries": "5"})
    assert other.sink_options("T") == {"nameServer": "b:1", "retries": "5", "topic": "again_T"}
