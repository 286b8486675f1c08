"""A login provider that is slow, or does not answer: nobody but those who log in with it waits."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path

import pytest
from tests.console.site import Answer, site
from tests.support import sqlite_url

from sparrowmq.console import provider as provider_module
from sparrowmq.console import provider_calls
from sparrowmq.console.federated import GO
from sparrowmq.console.provider_calls import ProviderCalls
from sparrowmq.core.errors import RefusedError


def test_a_provider_that_does_not_answer_makes_nobody_else_wait(
    empty_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may begin a login. The threads that answer all other requests are not used for it."""
    begun, answers, gone = threading.Semaphore(0), threading.Event(), list[Answer]()

    def silent(*_: object) -> bytes:
        begun.release()
        assert answers.wait(120)
        raise OSError("it answers nothing")

    monkeypatch.setattr(provider_module, "fetched", silent)
    path = tmp_path / "coordinator.db"
    path.write_bytes(empty_database.read_bytes())
    settings = {"oidc_issuer": "https://id.example", "oidc_client_id": "sparrow"}
    with site(database_url=sqlite_url(path), namesrv_addr="127.0.0.1:1", **settings) as found:
        readers = [threading.Thread(target=lambda: gone.append(found.reader().get(GO))) for _ in range(24)]
        try:
            for one in readers:
                one.start()
            assert begun.acquire(timeout=60)
            assert found.admin.login("admin", found.password).status == 303
            assert "admin" in found.admin.page("/people").words
        finally:
            answers.set()
            for one in readers:
                one.join(60)
    assert {one.status for one in gone} == {502} and len(gone) == len(readers)
    assert all("the login provider id.example" in one.words for one in gone)


def test_calls_of_a_provider_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_calls, "CALLS_MAX", 6)
    answers = threading.Event()

    async def main() -> None:
        calls = ProviderCalls("id.example")
        waiting = [asyncio.create_task(calls.call(answers.wait, 120)) for _ in range(6)]
        await asyncio.sleep(0)
        with pytest.raises(
            RefusedError, match=r"6 logins wait for the login provider id\.example"
        ) as refused:
            await calls.call(answers.wait, 120)
        assert (refused.value.status, refused.value.retry_seconds) == (503, 5)
        answers.set()
        assert await asyncio.gather(*waiting) == [True] * 6
        assert await calls.call(answers.wait, 120)

    try:
        asyncio.run(main())
    finally:
        answers.set()


def test_a_call_of_a_provider_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_calls, "CALL_SECONDS", 0.01)
    answers = threading.Event()
    try:
        with pytest.raises(RefusedError, match=r"has not answered within 0\.01 s") as refused:
            asyncio.run(ProviderCalls("id.example").call(answers.wait, 120))
        assert refused.value.status == 502
    finally:
        answers.set()


def test_an_answer_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, all of them do not."""
    monkeypatch.setattr(provider_module, "SECONDS", 2.0)
    stop = threading.Event()

    def drip(listening: socket.socket) -> None:
        with listening.accept()[0] as client:
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while not stop.wait(0.01):
                try:
                    client.sendall(b" ")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listening:
        dripping = threading.Thread(target=drip, args=(listening,))
        dripping.start()
        try:
            with pytest.raises(TimeoutError, match="not complete after 2 s"):
                provider_module.fetched(f"http://127.0.0.1:{listening.getsockname()[1]}/", None, {})
        finally:
            stop.set()
            dripping.join(30)
