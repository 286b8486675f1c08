from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import sparrowmq
from sparrowmq import aio
from sparrowmq.client.sync import sync_generated

ROOT = Path(__file__).parents[3]
CLASSES = ["Admin", "Producer", "PullConsumer", "PushConsumer"]
ONLY_ASYNC = {("Producer", "submit"), ("PushConsumer", "stream"), ("PushConsumer", "message_type")}


def public(kind: type) -> dict[str, object]:
    return {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")}


def test_committed_file_is_up_to_date() -> None:
    command = [sys.executable, "-m", "scripts.generate_sync", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "fresh\n"), done.stdout + done.stderr


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_name_has_its_synchronous_counterpart(name: str) -> None:
    native, twin = public(getattr(aio, name)), public(getattr(sync_generated, name))
    expected = {attribute for attribute in native if (name, attribute) not in ONLY_ASYNC}
    assert expected <= set(twin)
    for attribute in expected:
        one, two = native[attribute], twin[attribute]
        assert isinstance(one, property) == isinstance(two, property)
        if not isinstance(one, property):
            assert inspect.signature(one) == inspect.signature(two)
            assert not inspect.iscoroutinefunction(two)
        assert inspect.getdoc(one)
        assert "await " not in (inspect.getdoc(two) or "")


@pytest.mark.parametrize("name", CLASSES)
def test_constructors_have_the_same_arguments(name: str) -> None:
    native, twin = getattr(aio, name), getattr(sparrowmq, name)
    assert inspect.signature(native) == inspect.signature(twin)
    assert twin.__doc__
