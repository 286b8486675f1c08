"""What `import sparrowmq` provides, and what it does not do."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import sparrowmq
from sparrowmq import aio, hooks


def typed_names(module: ModuleType) -> dict[str, str | None]:
    """The module of each name that a type checker sees."""
    assert module.__file__ is not None
    return {
        alias.name: node.module
        for block in ast.parse(Path(module.__file__).read_text()).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_every_name_exists_and_is_typed() -> None:
    typed = typed_names(sparrowmq)
    assert typed == sparrowmq._MODULES
    assert sorted(typed) == sorted(sparrowmq.__all__)
    for name in sparrowmq.__all__:
        assert getattr(sparrowmq, name) is not None
        assert name in dir(sparrowmq)


def test_asyncio_provides_the_same_names() -> None:
    assert sorted(typed_names(aio)) == sorted(aio.__all__) == sorted(sparrowmq.__all__)
    different = {name for name in aio.__all__ if getattr(aio, name) is not getattr(sparrowmq, name)}
    assert different == {
        "Admin",
        "Consumer",
        "DeliveredMessage",
        "Producer",
        "PullConsumer",
        "PullSchedule",
        "PushConsumer",
        "SimpleConsumer",
    }
    assert all(typed_names(aio)[name] == aio._MODULES[name] for name in different)


def test_hooks_have_a_module_of_their_own() -> None:
    assert sorted(hooks.__all__) == sorted(sparrowmq._HOMES["sparrowmq.client.base.hooks"].split())
    for name in hooks.__all__:
        assert getattr(hooks, name) is getattr(sparrowmq, name)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        sparrowmq.Nothing  # noqa: B018 - looking it up is the test


def test_importing_starts_no_thread_and_reads_no_environment() -> None:
    program = """
import os, sys, threading
class Closed(dict):
    def _no(self, *args, **kwargs): raise AssertionError("the environment was read")
    __getitem__ = get = __contains__ = _no
import asyncio, logging, msgspec, lz4.frame, zstandard
import sortedcontainers, ipaddress, secrets, concurrent.futures
environment, os.environ = os.environ, Closed()
import sparrowmq
from sparrowmq import aio
sparrowmq.Producer, sparrowmq.PushConsumer
os.environ = environment
assert threading.active_count() == 1, threading.enumerate()
print("quiet")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("quiet\n", "")


def test_servers_do_not_load_the_client() -> None:
    program = "import sys, sparrowmq.core.errors; print([m for m in sys.modules if 'sparrowmq.client' in m])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_warnings_are_shown_without_logging_configuration() -> None:
    program = """import logging, sparrowmq
log = logging.getLogger('sparrowmq.client')
log.info('joined')
log.warning('the handler failed')"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "the handler failed\n")
