"""Calls of a coordinator that is not there, or does not answer."""

from __future__ import annotations

import socket

import pytest
from tests.support import about, free_port

from sparrowmq.cli.base import remote
from sparrowmq.cli.base.common import UsageError


def test_nobody_there_is_told_with_what_to_type() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(UsageError, check=about(value=url, limit=None)):
        remote.call(url, "GET", "/services")


def test_one_that_says_nothing_is_told_apart_from_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UsageError, check=about(value=url, limit=0.05)):
            remote.call(url, "GET", "/services")
