"""Which loop is used."""

from __future__ import annotations

import asyncio
import sys

import pytest
import uvloop

from sparrowmq.loops import event_loop as loop


def test_uvloop_is_used_where_it_is_installed() -> None:
    made = loop.new_event_loop()
    try:
        assert isinstance(made, uvloop.Loop)
    finally:
        made.close()


def test_asyncio_is_used_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    made = loop.new_event_loop()
    try:
        assert type(made).__module__.startswith("asyncio")
    finally:
        made.close()


def test_run_gives_the_result_and_closes_the_loop() -> None:
    async def main() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    used = loop.run(main())
    assert used.is_closed()
