"""The pytest plugin: a fixture `sparrow_cluster`, a running name server and broker for one test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sparrowmq.testing.cluster import LocalCluster


@pytest.fixture
def sparrow_cluster() -> Iterator[LocalCluster]:
    """A `LocalCluster` on free ports with an empty store, stopped when the test ends."""
    from sparrowmq.testing.cluster import LocalCluster

    with LocalCluster() as cluster:
        yield cluster
