"""The modules for Airflow under examples/, without Airflow: what a process, a sensor and an operator do.

`tests/versions/test_airflow.py` runs them in Airflow itself.
"""

from __future__ import annotations

import importlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.testing import LocalCluster

HERE = Path(__file__).resolve().parent.parent.parent / "examples" / "airflow"
SPARROW = f"""#!{sys.executable}
import json, pathlib, signal, sys, time
place = pathlib.Path(__file__).parent
print("a warning of Spark's", file=sys.stderr)
if "fail" in sys.argv:
    print("sparrow: no room", file=sys.stderr)
    sys.exit(1)
if "wrong" in sys.argv:
    print("No such option: wrong", file=sys.stderr)
    sys.exit(2)
if "--plan" in sys.argv:
    print(json.dumps({{"pipeline": "archive", "rows": 7 if "some" in sys.argv else None, "steps": []}}))
    sys.exit()
asked = []
signal.signal(signal.SIGTERM, lambda *_: None if "deaf" in sys.argv else asked.append(1))
print(json.dumps({{"pipeline": "archive", "rows": 3}}), flush=True)
if "long" in sys.argv:
    (place / "running").touch()
    while not asked:
        time.sleep(0.01)
print(json.dumps({{"pipeline": "archive", "rows": 5, "stopped": bool(asked)}}))
"""


class AirflowError(Exception):
    """In place of Airflow's: a further try follows."""


class AirflowFailError(AirflowError):
    """In place of Airflow's: no further try."""


class Task:
    """In place of Airflow's operators."""

    log = logging.getLogger("airflow.task")

    def __init__(self, *, task_id: str) -> None:
        self.task_id = task_id


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any]]:
    """`sparrow_pipe` and `sparrow_operators`, the latter over stand-ins for Airflow's classes."""
    sdk, errors = ModuleType("airflow.sdk"), ModuleType("airflow.sdk.exceptions")
    sdk.BaseOperator = sdk.BaseSensorOperator = Task  # type: ignore[attr-defined]
    errors.AirflowException = AirflowError  # type: ignore[attr-defined]
    errors.AirflowFailException = AirflowFailError  # type: ignore[attr-defined]
    for name, made in (("airflow", ModuleType("airflow")), ("airflow.sdk", sdk), (errors.__name__, errors)):
        monkeypatch.setitem(sys.modules, name, made)
    monkeypatch.syspath_prepend(str(HERE))
    names = ("sparrow_pipe", "sparrow_operators")
    yield importlib.import_module(names[0]), importlib.import_module(names[1])
    for name in names:
        del sys.modules[name]


@pytest.fixture
def sparrow(tmp_path: Path) -> str:
    """A command that keeps the contract, and does as its arguments say."""
    made = tmp_path / "sparrow"
    made.write_text(SPARROW)
    made.chmod(0o755)
    return str(made)


def test_progress_is_told_and_the_last_line_is_the_result(modules: tuple[Any, Any], sparrow: str) -> None:
    told: list[Any] = []
    pipe = modules[0].Pipe(["archive", "Orders"], sparrow=sparrow, environment={"A": "b"})
    assert pipe.command == [sparrow, "pipe", "archive", "Orders"]
    assert pipe.run(told.append) == {"pipeline": "archive", "rows": 5, "stopped": False}
    assert [line["rows"] for line in told] == [3, 5]
    assert (pipe.environment["A"], "PATH" in pipe.environment) == ("b", True)
    assert modules[0].Pipe(["archive", "some"], sparrow=sparrow).waiting() == 7
    assert modules[0].Pipe(["archive"], sparrow=sparrow).waiting() == 0


@pytest.mark.parametrize(
    ("arguments", "status", "text", "again"),
    [
        (["archive", "fail"], 1, "sparrow: no room", True),
        (["archive", "wrong"], 2, "No such option: wrong", False),
        (["audit", "wrong"], 2, "No such option: wrong", True),
    ],
)
def test_a_status_says_whether_to_try_again(
    modules: tuple[Any, Any], sparrow: str, arguments: list[str], status: int, text: str, again: bool
) -> None:
    logic, operators = modules
    calls: list[Callable[[Any], Any]] = [
        lambda pipe: pipe.run(lambda line: None),
        lambda pipe: pipe.waiting(),
    ]
    for call in calls:
        with pytest.raises(logic.PipeError, match=text) as raised:
            call(logic.Pipe(arguments, sparrow=sparrow))
        assert (raised.value.status, raised.value.again) == (status, again)
    operator = operators.SparrowPipeOperator(task_id="it", pipe=arguments, sparrow=sparrow)
    with pytest.raises(AirflowError, match=text) as failed:
        operator.execute({})
    assert isinstance(failed.value, AirflowFailError) is not again
    sensor = operators.SparrowWaitingSensor(task_id="it", pipe=arguments, sparrow=sparrow)
    if again:
        assert sensor.poke({}) is False, "it looks again"
    else:
        with pytest.raises(AirflowFailError, match=text):
            sensor.poke({})


def test_a_sensor_waits_for_as_many_as_it_is_told(modules: tuple[Any, Any], sparrow: str) -> None:
    def poke(messages: int) -> bool:
        made = modules[1].SparrowWaitingSensor(
            task_id="it", pipe=["archive", "some"], messages=messages, sparrow=sparrow
        )
        return bool(made.poke({}))

    assert [poke(messages) for messages in (1, 7, 8)] == [True, True, False]


@pytest.mark.parametrize(("arguments", "seconds"), [(["long"], 60.0), (["long", "deaf"], 0.2)])
def test_a_task_that_is_ended_finishes_its_batch_or_is_killed(
    modules: tuple[Any, Any], sparrow: str, tmp_path: Path, arguments: list[str], seconds: float
) -> None:
    operator = modules[1].SparrowPipeOperator(
        task_id="it", pipe=["archive", *arguments], sparrow=sparrow, stop_seconds=seconds
    )
    operator.on_kill()  # nothing runs yet
    raised: list[Exception] = []

    def execute() -> None:
        try:
            operator.execute({})
        except AirflowError as error:
            raised.append(error)

    running = threading.Thread(target=execute)
    running.start()
    until_sync((tmp_path / "running").exists)
    operator.on_kill()
    running.join(60)
    assert not running.is_alive()
    (error,) = raised
    assert not isinstance(error, AirflowFailError), "it may be tried again"
    assert ("stopped; some messages may wait" in str(error)) == ("deaf" not in arguments)
    operator.on_kill()  # it has ended


def test_the_real_command_keeps_to_it(modules: tuple[Any, Any], tmp_path: Path) -> None:
    Pipe, PipeError = modules[0].Pipe, modules[0].PipeError
    real = tmp_path / "sparrow"
    real.write_text(f'#!/bin/sh\nexec {sys.executable} -m sparrowmq.cli.main "$@"\n')
    real.chmod(0o755)
    with LocalCluster() as cluster:
        cluster.create_topic("Orders", queues=2)
        with mq.Producer("orders", namesrv=cluster.namesrv) as producer:
            producer.send_batch([mq.Message("Orders", b"x") for _ in range(9)])
        environment = {"SPARROW_NAMESRV": cluster.namesrv}

        def pipe(*arguments: str) -> Any:
            return Pipe(["archive", *arguments], sparrow=str(real), environment=environment)

        out = ("--to", str(tmp_path / "archive"))
        assert pipe("Orders", *out).waiting() == 9
        with pytest.raises(PipeError, match=r"sparrow: .*Nowhere") as failed:
            pipe("Nowhere", *out).waiting()
        assert (failed.value.status, failed.value.again) == (1, True)
        with pytest.raises(PipeError, match="No such option") as wrong:
            pipe("Orders", "--such", *out).run(print)
        assert (wrong.value.status, wrong.value.again) == (2, False)
