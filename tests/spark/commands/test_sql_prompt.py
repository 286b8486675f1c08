"""`sparrow sql` at a terminal: a table completed, a query, a wrong one, one that is stopped, the end."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.spark.support import Topics
from tests.terminal import Terminal

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
PROMPT = "sql>"


def test_a_prompt_goes_on_after_errors_and_ctrl_c(topics: Topics, topic: str, tmp_path: Path) -> None:
    topics.send(topic, 12)
    command = [sys.executable, "-m", "sparrowmq.cli.main", "sql", "--namesrv", topics.cluster.namesrv]
    environment = {**os.environ, "HOME": str(tmp_path), "TERM": "xterm"}
    terminal = Terminal(command, environment)
    try:
        assert "Ctrl-D ends, Ctrl-C stops a query" in terminal.wait(PROMPT)
        terminal.type("select count(*) as n, max(text) as last\rfrom T")
        terminal.wait("   ->")
        terminal.type(f"{topic[1:-3]}\t")
        terminal.wait(topic[1:-3])
        terminal.wait(topic[-3:])  # came by itself
        terminal.type(";\r")
        terminal.wait(r"\n *12 +m9")
        terminal.wait(PROMPT)

        terminal.type("select nothing\rfrom range(1);\r")
        terminal.wait("   ->")
        assert "{" not in terminal.wait("\nsparrow: .*nothing"), "one line says it all"
        terminal.wait(PROMPT)

        terminal.type("select count(*) from range(10000000000000) where id % 7 = id % 11;\r")
        terminal.wait("sql ━")  # a bar: the prompt is over, and its way with keys
        terminal.type("\x03")
        terminal.wait("sparrow: stopped")
        terminal.wait(PROMPT)
        terminal.type("select 6 * 7 as answer;\r")
        terminal.wait(r"\n *42")
        terminal.wait(PROMPT)
        terminal.type("\\q\r")
        assert terminal.end() == 0, terminal.shown
    finally:
        terminal.close()
    history = (tmp_path / ".sparrow_sql_history").read_text()
    assert f"+from {topic};" in history and "+\\q" in history
