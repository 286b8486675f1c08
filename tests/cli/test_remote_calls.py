"""Every command that calls a coordinator: when none answers, when the login has ended, when something else
answers, and that `--json` prints JSON alone. New commands are found by their option `--coordinator`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from tests.coordinator.running import Running, running
from tests.support import about, free_port, sqlite_url
from typer.testing import CliRunner

from sparrowmq.cli.base import remote
from sparrowmq.cli.base.common import UsageError
from sparrowmq.cli.main import app

if TYPE_CHECKING:
    from tests.cli.conftest import Outcome

Call = Callable[..., "Outcome"]
ARGUMENTS = {
    "name": "lag-alarm", "number": "1", "group": "g", "broker": "b", "kind": "group", "object_": "g",
    "label": "ci", "place": "T", "value": "4", "text": "Orders", "address": "127.0.0.1:10911",
}  # fmt: skip
"""What required arguments are given."""
MORE = {
    "setting set": ["g", "threads", "4"],
    "setting unset": ["g", "threads"],
    "setting offset": ["g", "T", "--to", "first"],
    "service set": ["lag-alarm", "checks=2"],
    "broker set": ["b", "fileReservedTime=48"],
    "alarm limit": ["g", "--messages", "4"],
    "login": ["--password-stdin"],
    "token delete": ["999"],
    "up": None,
    "mcp": None,
}
"""Commands that need other arguments, and shall not end the tests' own login; `up` starts a coordinator,
`mcp` serves.
"""


TREE: Any = typer.main.get_command(app)


def commands() -> Iterator[tuple[str, set[str]]]:
    """Commands that call a coordinator, and their options."""

    def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
        if hasattr(command, "commands"):
            for name, inner in command.commands.items():
                if inner.hidden:
                    continue
                yield from walk(inner, (*path, name))
        else:
            yield path, command

    for path, command in walk(TREE, ()):
        options = {option for one in command.params for option in getattr(one, "opts", ())}
        name = " ".join(path)
        if "--coordinator" in options and MORE.get(name, []) is not None:
            given = MORE.get(name) or [ARGUMENTS[one.name] for one in command.params if one.required]
            line = " ".join((name, *given))
            yield line, options


ALL = dict(commands())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(database_url=sqlite_url(tmp_path_factory.mktemp("remote") / "c.db")) as found:
        assert found.call("PUT", "/limits/g", {"messages": 1, "age_ms": 1})[0] == 200
        yield found


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    from tests.cli.conftest import Outcome

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("SPARROW_TOKEN", raising=False)
    monkeypatch.delenv("SPARROW_COORDINATOR_URL", raising=False)
    monkeypatch.setattr("typer.testing._get_command", lambda app: TREE)  # made anew each time otherwise

    def sparrow(line: str, *more: str, stdin: str = "a password\n") -> Outcome:
        arguments, runner = [*line.split(), *more], CliRunner()
        result = runner.invoke(app, arguments, input=stdin, env={"COLUMNS": "200"})
        crash = result.exception
        assert crash is None or isinstance(crash, SystemExit), f"{line}: {crash!r}"
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return sparrow


def test_the_commands_are_found() -> None:
    assert len(ALL) > 40
    assert {
        "audit",
        "login --password-stdin",
        "coordinator user list",
        "setting set g threads 4",
        "repair run 1",
    } <= set(ALL)


@pytest.mark.parametrize("line", sorted(ALL))
def test_when_none_answers_where_is_named_and_what_to_do(call: Call, line: str) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    outcome = call(line, "--coordinator", url)
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.startswith(f"sparrow: no coordinator answers at {url}: Connection refused")
    assert "start one with sparrow up or sparrow coordinator" in outcome.err
    assert len(outcome.err.splitlines()) == 1


@pytest.mark.parametrize("line", sorted(set(ALL) - {"login --password-stdin"}))
def test_when_the_login_has_ended_it_says_how_to_log_in(
    call: Call, server: Running, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARROW_TOKEN", "smq_ended")
    outcome = call(line, "--coordinator", server.url)
    said = "sparrow: the token is unknown or has expired; type: sparrow login\n"
    assert (outcome.status, outcome.out, outcome.err) == (1, "", said)


def test_every_one_can_print_json() -> None:
    assert [line for line, options in ALL.items() if "--json" not in options] == []


@pytest.mark.parametrize("line", sorted(ALL))
def test_with_json_there_is_json_alone(
    call: Call, server: Running, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, made = server.call("POST", "/tokens", {"label": line})  # logout ends the one it has
    assert status == 201, made
    monkeypatch.setenv("SPARROW_TOKEN", made["token"])
    monkeypatch.setattr("sparrowmq.cli.coordinator.dynamic_settings.WAIT_SECONDS", 0.0)
    outcome = call(line, "--coordinator", server.url, "--json")
    for text in outcome.lines:
        json.loads(text)
    if outcome.status:
        assert (outcome.status, outcome.out) == (1, "")
        assert outcome.err.startswith("sparrow: ")
    else:
        assert not outcome.err


class Stranger(BaseHTTPRequestHandler):
    """Gives the answers that the test sets, and records the requests."""

    status = 200
    body = b""
    headers_: dict[str, str]
    seen: list[dict[str, str]]

    def do_GET(self) -> None:
        self.seen.append(dict(self.headers))
        self.send_response(self.status)
        for name, value in self.headers_.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def stranger(
    status: int, body: bytes, headers: dict[str, str] | None = None
) -> Iterator[tuple[str, list[dict[str, str]]]]:
    seen: list[dict[str, str]] = []
    kind = type("It", (Stranger,), {"status": status, "body": body, "headers_": headers or {}, "seen": seen})
    with HTTPServer(("127.0.0.1", 0), kind) as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{found.server_port}", seen
        finally:
            found.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "body", "headers", "words"),
    [
        (
            200,
            b"<html>hello</html>",
            {},
            "is not a coordinator; give the coordinator's address with --coordinator",
        ),
        (200, b"\xff\xfe\x00", {}, "is not a coordinator"),
        (200, b"", {}, "is not a coordinator"),
        (200, b"[1", {"Content-Length": "100"}, "no coordinator answers at"),
        (500, b"oh", {}, "the coordinator answered with status 500"),
        (404, b'{"error": 1}', {}, "sparrow: 1"),
        (422, b'{"error": "a \\u001b[2J\\u202eb"}', {}, "sparrow: a \\x1b[2J\\u202eb"),
    ],
)
def test_something_else_that_answers_is_told_from_a_coordinator(
    call: Call, status: int, body: bytes, headers: dict[str, str], words: str
) -> None:
    with stranger(status, body, headers) as (url, _):
        outcome = call("audit", "--coordinator", url)
    assert (outcome.status, outcome.out) == (1, "")
    assert words in outcome.err


def test_the_token_follows_no_redirect(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARROW_TOKEN", "smq_mine")
    with stranger(200, b"[]") as (thief, stolen):
        for status in (301, 302, 307, 308):
            with stranger(status, b"", {"Location": f"{thief}/x"}) as (url, seen):
                outcome = call("audit", "--coordinator", url)
            assert (outcome.status, len(seen)) == (1, 1)
            assert f"status {status}" in outcome.err
    assert not stolen


@pytest.mark.parametrize(
    "url",
    ["nonsense", "ftp://h", "http://", "http://[::1", "http://h:xx", "http://h:99999", "http://a b:1",
     "http://h:1\n", "http://h:0"],
)  # fmt: skip
def test_addresses_that_are_none(call: Call, url: str) -> None:
    outcome = call("audit", "--coordinator", url)
    assert (outcome.status, outcome.out) == (1, "")
    assert "is not a coordinator's address; write for example http://127.0.0.1:9877" in outcome.err


@pytest.mark.parametrize("token", ["a\nb", "äö€", "smq_x\r\nX: y", "\udcff"])
def test_a_token_that_is_none_is_neither_sent_nor_shown(
    call: Call, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARROW_TOKEN", token)
    outcome = call("audit", "--coordinator", f"http://127.0.0.1:{free_port()}")
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.startswith("sparrow: SPARROW_TOKEN is not a valid token; ")
    assert token not in outcome.err


@pytest.mark.parametrize(
    ("line", "odd"),
    [
        ("service show", "\udcff"), ("audit --actor", "\udcff"), ("coordinator user delete", "a/../b"),
        ("service set lag-alarm --interval", "nan"), ("service set lag-alarm --interval", "inf"),
        ("service set lag-alarm", f"checks={'9' * 5000}"), ("alarm acknowledge", "9" * 300),
        ("token delete", "-- -1"), ("token create x --days", "9" * 30), ("coordinator user create", "\udcff"),
        ("alarm limit g --messages", "9" * 40), ("setting offset g T --to", "9" * 5000), ("repair show", "0"),
    ],
)  # fmt: skip
def test_odd_values_are_refused_in_words(
    call: Call, server: Running, line: str, odd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARROW_TOKEN", server.token)
    monkeypatch.setenv("SPARROW_COORDINATOR_URL", server.url)
    outcome = call(line, *odd.split(" ")) if odd else call(line)
    if line.startswith("audit"):
        assert (outcome.status, outcome.err) == (0, ""), "it finds nothing"
    else:
        assert outcome.status in (1, 2), outcome
        assert outcome.err
        assert "Traceback" not in outcome.err


def test_what_others_wrote_does_not_steer_the_terminal(
    call: Call, server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARROW_TOKEN", server.token)
    monkeypatch.setenv("SPARROW_COORDINATOR_URL", server.url)
    evil = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m\r"
    assert server.call("POST", "/tokens", {"label": evil, "reason": evil})[0] == 201
    assert server.call("POST", "/services/audit-cleanup/pause", {"reason": evil})[0] == 200
    for line in ("audit", "token list", "service show audit-cleanup"):
        out = call(line).out
        assert not set(evil) & set(out) - set("0123456789;[]m owned2J")
        assert "\\x1b[2J\\u202e\\x9b31m\\r" in out
    assert evil in {one["label"] for one in call("token list", "--json").values}, "JSON has it as it is"
    assert server.call("POST", "/services/audit-cleanup/resume", {})[0] == 200


def test_a_login_that_cannot_be_kept_says_where(
    call: Call, server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    password = f"{server.started.first_password}\n"
    outcome = call("login --password-stdin", "--coordinator", server.url, stdin=password)
    assert (outcome.status, outcome.out) == (1, "")
    where = tmp_path / "file" / "sparrowmq" / "coordinator.json"
    assert f"the login cannot be saved in {where}: Not a directory" in outcome.err
    with pytest.raises(UsageError, check=about(value=where)):
        remote.forget_login()


def test_ctrl_c_ends_a_call_that_waits_without_a_traceback() -> None:
    """In a process of its own, which has sent its request and hears nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        command = [sys.executable, "-m", "sparrowmq.cli.main", "audit", "--coordinator", url]
        waiting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ)
        listening.settimeout(60)
        connection, _ = listening.accept()
        with connection:
            assert connection.recv(65536)
            waiting.send_signal(signal.SIGINT)
            out, err = waiting.communicate(timeout=60)
    assert (waiting.returncode, out, err) == (130, b"", b"")
