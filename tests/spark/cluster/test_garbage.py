"""What a worker of Spark keeps is set apart from collections of garbage; other processes are left alone."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import SimpleNamespace

import pytest

from sparrowmq.spark.cluster.garbage import Tasks

DAEMON = SimpleNamespace(__spec__=ModuleSpec("pyspark.daemon", None))


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_a_worker_sets_apart_what_it_has_at_the_second_task_and_seldom_after() -> None:
    tasks = Tasks()
    gc.unfreeze()
    assert not tasks.begin(DAEMON) and gc.get_freeze_count() == 0
    assert tasks.begin(DAEMON) and gc.get_freeze_count() > 1000
    assert [task for task in range(3, 40) if tasks.begin(DAEMON)] == [4, 8, 16, 32]


@pytest.mark.parametrize(
    "main",
    [None, SimpleNamespace(__spec__=None), SimpleNamespace(__spec__=ModuleSpec("pytest", None))],
    ids=["none", "a script", "another program"],
)
def test_other_processes_keep_their_objects_where_they_are(main: object) -> None:
    tasks = Tasks()
    gc.unfreeze()
    assert not any(tasks.begin(main) for _ in range(9))
    assert gc.get_freeze_count() == 0
