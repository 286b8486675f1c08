"""Wrong settings of a replay are refused by name; right ones say where it reads and sends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.replay.settings import ReplaySettings

Q = MessageQueue("T", "b", 0)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"to": ""}, "a replay needs a target topic"),
        ({"topics": ()}, "a replay needs a source"),
        ({"dead_letters_of": "g"}, "dead_letters_of cannot be combined"),
        (
            {"topics": (), "dead_letters_of": "g", "to": "x_{topic}"},
            "dead letters need the name of a target topic",
        ),
        ({"archive": "a", "sql92": "n = 1"}, "sql92 is for brokers"),
        ({"tags": "a", "sql92": "n = 1"}, "tags and sql92 are both given"),
        ({"rate": 0}, "rate=0: must be 1 or more"),
        ({"batch_rows": 0}, "batch_rows=0: must be 1 or more"),
        ({"tasks": 0}, "tasks=0: must be 1 or more"),
        ({"since": 5, "until": 5}, "since=5 is not before until=5"),
        ({"ids": "new"}, "ids='new': must be renew or keep"),
        ({"values": {"topic": "x"}}, "values has 'topic'; it may have body, tags"),
        ({"options": {"startingOffsets": "latest"}}, "option startingOffsets would change what is replayed"),
    ],
)
def test_wrong_settings(values: dict[str, Any], text: str) -> None:
    given: dict[str, Any] = {"home": "h", "to": "Out", "topics": ("T",), **values}
    with pytest.raises(SettingsError, match=text):
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
