from __future__ import annotations

from pathlib import Path

import pytest

from sparrowmq.loops.event_loop import loop_thread
from sparrowmq.spark.write import log_once
from sparrowmq.spark.write.log_once import first_time


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(loop_thread()._kept, log_once._Logged, log_once._Logged())
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)


def test_what_was_told_is_forgotten_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_once, "_LOGGED_MAX", 2)
    assert [first_time(number) for number in (1, 1, 2, 3, 1)] == [True, False, True, True, True]


def test_another_process_of_the_application_does_not_say_it_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/another")
    assert first_time("delivery", "t") and not first_time("delivery", "t")
    monkeypatch.setitem(loop_thread()._kept, log_once._Logged, log_once._Logged())  # as in another process
    assert not first_time("delivery", "t")
    assert first_time("delivery", "u")
    monkeypatch.setitem(loop_thread()._kept, log_once._Logged, log_once._Logged())
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "next application"))
    assert first_time("delivery", "t"), "said rather twice than never where nothing can be written"
