"""Processor time of a process and of those it started."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.process import children, cpu_seconds, memory, tree_cpu_seconds
from tests.support import until_sync

BUSY = "import sys\nfor _ in range(5_000_000): pass\nprint('done', flush=True)\nsys.stdin.read()"


def test_a_tree_counts_its_children() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None and child.stdin is not None
        assert child.stdout.readline() == "done\n"
        assert child.pid in children(os.getpid())
        assert cpu_seconds(child.pid) > 0
        assert tree_cpu_seconds(os.getpid()) >= cpu_seconds(os.getpid()) - 1 + cpu_seconds(child.pid)
        assert memory(child.pid).resident > 1
        child.stdin.close()
    until_sync(lambda: child.pid not in children(os.getpid()))
