"""The wording of errors about options that do not fit together. Other tests look at what they are about."""

from __future__ import annotations

import pytest

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.options import problems


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (problems.needs("jobBatch", "jobId", 3), "option jobBatch=3 needs the option jobId"),
        (problems.needs("tlsCa", "tls", "a", why="=true"), "option tlsCa='a' needs the option tls=true"),
        (
            problems.half("tlsKey", "tlsCert"),
            "option tlsKey is missing: tlsCert and tlsKey must be given together",
        ),
        (problems.both("a", "b"), "options a and b are both given; leave one out"),
        (problems.both("a", "b", why="b is more"), "options a and b are both given; b is more"),
        (
            problems.other_format("a", ("avro", "protobuf", "json"), "text"),
            "option a is for bodyFormat=avro, protobuf or json, not text",
        ),
        (problems.above("least", 6, "most", 5), "option least=6: must be at most most=5"),
        (
            problems.of_clusters("assign", "/store"),
            "option assign is for reads of a cluster, but store='/store' is given; leave one out. To read "
            "part of a store use subscribe, tags, startingTimestamp and endingTimestamp",
        ),
    ],
)
def test_wording(error: SettingsError, text: str) -> None:
    assert str(error) == text
