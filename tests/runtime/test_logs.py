"""Log lines of our processes: one line each, whatever a stranger put into them."""

from __future__ import annotations

import ast
import json
import logging
import sys
from pathlib import Path

import pytest
from tests.support import about

import sparrowmq
from sparrowmq.core.errors import SettingsError
from sparrowmq.runtime.logs import JsonFormatter, LineFormatter, set_levels, set_up_logging

SOURCE = Path(sparrowmq.__file__).parent
SET_UP = ("basicConfig", "StreamHandler", "FileHandler", "Formatter", "dictConfig", "fileConfig")
EVIL = "x\x1b[2J\r\n2026-11-22 00:00:00,000 ERROR sparrowmq.broker: all is lost\u202e\x9b"


def record(message: str, *arguments: object, error: bool = False) -> logging.LogRecord:
    told = sys.exc_info() if error else None
    return logging.LogRecord("sparrowmq.broker", logging.WARNING, "f", 1, message, arguments, told)


def test_a_message_is_one_line_without_control_characters() -> None:
    line = LineFormatter().format(record("client %s is gone", EVIL))
    assert line.isprintable()
    assert r"client x\x1b[2J\r\n2026-11-22 00:00:00,000 ERROR" in line


def test_a_traceback_keeps_its_lines_and_none_passes_for_a_log_line() -> None:
    try:
        raise ValueError(EVIL)
    except ValueError:
        text = LineFormatter().format(record("failed", error=True))
    first, *rest = text.split("\n")
    assert first.endswith("WARNING sparrowmq.broker: failed")
    assert len(rest) > 3
    assert all(line.startswith("    ") and line.isprintable() for line in rest)


def test_processes_set_logging_up_here_alone() -> None:
    """A second set-up would be one whose lines nobody looks through."""
    found = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.attr if isinstance(node, ast.Attribute) else None
            if name in (
                "basicConfig",
                "StreamHandler",
                "FileHandler",
                "Formatter",
                "dictConfig",
                "fileConfig",
            ):
                found.append(path.relative_to(SOURCE).as_posix())
    kept = {"torture/rounds.py"}  # a file beside a round's history: what its clients say about the faults
    assert set(found) == {"runtime/logs.py"} | kept


def test_json_lines_have_what_the_text_says_as_values() -> None:
    one = record("client %s is gone", EVIL)
    one.fields = {"client": EVIL, "ms": 3.5, "message": "not this one", "odd": {1, 2}}
    line = JsonFormatter().format(one)
    assert line.isprintable()
    found = json.loads(line)
    assert found["message"] == f"client {EVIL} is gone"
    assert (found["level"], found["logger"], found["client"], found["ms"]) == (
        "WARNING",
        "sparrowmq.broker",
        EVIL,
        3.5,
    )
    assert found["time"].endswith("+00:00")
    assert found["odd"] == "{1, 2}"


def test_json_lines_hold_the_traceback() -> None:
    try:
        raise ValueError(EVIL)
    except ValueError:
        line = JsonFormatter().format(record("failed", error=True))
    assert line.isprintable()
    assert json.loads(line)["error"].startswith("Traceback (most recent call last)")


def test_the_format_can_change_and_other_set_ups_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    foreign = logging.NullHandler()
    monkeypatch.setattr(root, "handlers", [])
    set_up_logging()
    (ours,) = root.handlers
    set_up_logging("json")
    assert root.handlers == [ours]
    assert isinstance(ours.formatter, JsonFormatter)
    monkeypatch.setattr(root, "handlers", [foreign])
    set_up_logging("json")
    assert root.handlers == [foreign]
    assert foreign.formatter is None


def test_levels_are_set_for_all_or_for_some_loggers() -> None:
    ours, store, own = (logging.getLogger(name) for name in ("sparrowmq", "sparrowmq.store", "app"))
    try:
        set_levels("INFO,store=DEBUG")
        assert (ours.getEffectiveLevel(), store.getEffectiveLevel()) == (logging.INFO, logging.DEBUG)
        set_levels("error")
        assert (ours.getEffectiveLevel(), store.getEffectiveLevel()) == (logging.ERROR, logging.ERROR)
        assert own.level == logging.NOTSET
    finally:
        for one in (ours, store):
            one.setLevel(logging.NOTSET)


@pytest.mark.parametrize("text", ["", "LOUD", "store=", "=INFO", "INFO,", "a b=INFO", "INFO\nX=DEBUG"])
def test_levels_that_do_not_exist_are_named(text: str) -> None:
    with pytest.raises(SettingsError, check=about(setting="logLevel")):
        set_levels(text)
