"""`sparrow coordinator`, `login`, `token`, `service`, `alarm` and `audit` against a coordinator."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.coordinator.running import Running, running
from tests.coordinator.services.watched import place
from tests.support import free_port, sqlite_url, until_sync
from typer.testing import CliRunner

from sparrowmq.cli.base import remote
from sparrowmq.cli.base.times import span, when
from sparrowmq.cli.main import app
from sparrowmq.coordinator.database.migrate import newest
from sparrowmq.core.stalls import Stall

if TYPE_CHECKING:
    from tests.cli.conftest import Outcome

Call = Callable[..., "Outcome"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(database_url=sqlite_url(tmp_path_factory.mktemp("cli") / "c.db")) as found:
        yield found


@pytest.fixture
def call(server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """`sparrow …` as somebody without login; the module's coordinator is the default."""
    from tests.cli.conftest import Outcome

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SPARROW_COORDINATOR_URL", server.url)
    monkeypatch.delenv("SPARROW_TOKEN", raising=False)

    def sparrow(*arguments: str, status: int = 0, stdin: str | None = None) -> Outcome:
        result = CliRunner().invoke(app, list(arguments), input=stdin, env={"COLUMNS": "200"})
        outcome = Outcome(result.exit_code, result.stdout, result.stderr)
        assert outcome.status == status, f"{outcome}\n{result.exception!r}"
        return outcome

    return sparrow


@pytest.fixture
def sparrow(call: Call, server: Running) -> Call:
    """The same as admin."""
    password = server.started.first_password
    assert password
    call("login", "--password-stdin", stdin=f"{password}\n")
    return call


def test_login_keeps_a_token_that_only_the_user_may_read_and_logout_ends_it(
    call: Call, server: Running
) -> None:
    assert "no token was sent; type: sparrow login" in call("audit", status=1).err
    assert (
        "the name or the password is wrong"
        in call("login", "--password-stdin", stdin="wrong\n", status=1).err
    )
    out = call("login", "admin", stdin=f"{server.started.first_password}\n").out
    assert f"logged in at {server.url} as admin until " in out
    assert stat.S_IMODE(remote.login_file().stat().st_mode) == 0o600
    call("audit")
    call("logout")
    assert not remote.login_file().exists()
    call("audit", status=1)


def test_a_token_is_sent_to_its_own_coordinator_only(sparrow: Call) -> None:
    other = f"http://127.0.0.1:{free_port()}"
    outcome = sparrow("service", "list", "--coordinator", other, status=1)
    assert f"no coordinator answers at {other}" in outcome.err
    assert "is not a coordinator's address" in sparrow("audit", "--coordinator", "nonsense", status=1).err


def test_people_and_their_roles(sparrow: Call) -> None:
    assert (
        "bob created, password " in sparrow("coordinator", "user", "create", "bob", "--role", "operator").out
    )
    sparrow("coordinator", "user", "create", "ann", "--password-stdin", stdin="a long password\n")
    sparrow("coordinator", "user", "update", "ann", "--email", "ann@x.org", "--disable", "--reason", "away")
    sparrow("coordinator", "user", "grant", "bob", "group", "billing")
    listed = {one["name"]: one for one in sparrow("coordinator", "user", "list", "--json").values}
    assert (listed["ann"]["enabled"], listed["ann"]["email"]) == (False, "ann@x.org")
    assert "owner of group billing" in sparrow("coordinator", "user", "list").out
    (owner,) = sparrow("coordinator", "user", "of", "group", "billing", "--json").values
    assert owner == {"name": "bob", "role": "owner", "enabled": True}
    assert "bob" in sparrow("coordinator", "user", "of", "group", "billing").out
    assert sparrow("coordinator", "user", "of", "topic", "billing", "--json").out == ""
    sparrow("coordinator", "user", "grant", "bob", "group", "billing", "--role", "none")
    sparrow("coordinator", "user", "delete", "ann")
    assert "there is no user 'ann'" in sparrow("coordinator", "user", "delete", "ann", status=1).err


def test_tokens(sparrow: Call, server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    given = server.started.first_password
    text = sparrow("token", "create", "ci", "--days", "3", "--password-stdin", stdin=f"{given}\n").out.strip()
    assert "give the password" not in sparrow("token", "create", "short").err
    rows = sparrow("token", "list", "--json").values
    number = next(one["id"] for one in rows if one["label"] == "ci")
    assert "ci" in sparrow("token", "list").out
    monkeypatch.setenv("SPARROW_TOKEN", text)
    remote.forget_login()
    sparrow("audit")
    sparrow("token", "delete", str(number))
    sparrow("audit", status=1)


def test_services(sparrow: Call, server: Running) -> None:
    until_sync(lambda: server.get("/services/notices")["last_run"])
    assert server.coordinator.owner.label in sparrow("service", "list").out
    sparrow("service", "set", "lag-alarm", "messages=7", "checks=1", "--interval", "2.5", "--reason", "try")
    (shown,) = sparrow("service", "show", "lag-alarm", "--json").values
    assert shown["interval_ms"] == 2500
    text = sparrow("service", "show", "lag-alarm").out
    assert "2500 ms (at least 1 s)" in text
    assert "messages" in text
    sparrow("service", "pause", "audit-cleanup", "--reason", "quiet")
    assert "paused" in sparrow("service", "list").out
    sparrow("service", "run", "audit-cleanup")
    sparrow("service", "resume", "audit-cleanup")
    until_sync(lambda: sparrow("service", "runs", "audit-cleanup", "--json").values)
    assert "done" in sparrow("service", "runs", "audit-cleanup").out
    until_sync(lambda: server.get("/services/queue-alarm")["leader"])
    sparrow("service", "hand-over", "queue-alarm")
    for arguments, words in (
        (("set", "notices"), "nothing to set"),
        (("set", "notices", "x"), "'x' is not an option; write NAME=NUMBER"),
        (("set", "notices", "x=y"), "'x=y' is not an option"),
        (("set", "notices", "--interval", "0.5"), "must be from 1 to 604800 seconds, not 0.5"),
        (("show", "a/b"), "Not Found"),
    ):
        assert words in sparrow("service", *arguments, status=1).err


def test_alarms_limits_and_audit(sparrow: Call, server: Running) -> None:
    nothing = sparrow("alarm", "limit", "billing", status=1).err
    assert "nothing to limit: give --messages, --age, both, or --no-alarms" in nothing
    sparrow("alarm", "limit", "billing", "--messages", "5", "--age", "60", "--reason", "slow")
    assert "billing" in sparrow("alarm", "limits").out
    (limit,) = sparrow("alarm", "limits", "--json").values
    assert (limit["messages"], limit["age_ms"]) == (5, 60_000)
    server.cluster.seen.places["billing"] = [place(9)]

    def firing() -> list[dict[str, object]]:
        sparrow("service", "run", "lag-alarm")
        return sparrow("alarm", "list", "--state", "firing", "--group", "billing", "--json").values

    number = str(until_sync(firing)[0]["id"])
    assert "9 unread messages, the limit is 5" in sparrow("alarm", "list").out
    sparrow("alarm", "silence", number, "--minutes", "5")
    sparrow("alarm", "wake", number)
    sparrow("alarm", "acknowledge", number, "--reason", "on it")
    sparrow("alarm", "unlimit", "billing")
    audit = sparrow("audit", "--actor", "admin", "--action", "alarm.acknowledged", "--json").values
    assert audit[0]["reason"] == "on it"
    assert "firing → acknowledged" in sparrow("audit", "--kind", "alarm").out


def test_the_database_is_migrated_up_and_down(call: Call, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    assert f"has tables of revision {newest()}" in call("coordinator", "migrate", "--data", data).out
    call("coordinator", "migrate", "--data", data, "--to", "base", stdin="n\n", status=1)
    assert (
        "has tables of revision base"
        in call("coordinator", "migrate", "--data", data, "--to", "base", "--yes").out
    )
    assert (
        "databaseUrl starts with oracle"
        in call("coordinator", "migrate", "--database", "oracle://x", status=1).err
    )


def test_who_lost_the_only_password_is_given_one_at_the_database(call: Call, tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "lost.db")
    with running(database_url=url) as server:
        at = ("--coordinator", server.url)
        call("login", "--password-stdin", *at, stdin=f"{server.started.first_password}\n")
        given = call("coordinator", "password", "--database", url).out
        assert call("audit", *at, status=1).err, "tokens ended"
        old = call("login", "--password-stdin", *at, stdin=f"{server.started.first_password}\n", status=1)
        assert "is wrong" in old.err
        new = given.split("password ")[1].split()[0]
        call("login", "--password-stdin", *at, stdin=f"{new}\n")
        (entry,) = call("audit", "--action", "person.edit", "--json", *at).values
        assert (entry["actor"], entry["object"]) == ("coordinator", "admin")
        assert new not in call("audit", "--json", *at).out
        assert "no user 'bob'" in call("coordinator", "password", "bob", "--database", url, status=1).err
    empty = sqlite_url(tmp_path / "empty.db")
    assert "has no tables yet" in call("coordinator", "password", "--database", empty, status=1).err


def test_a_coordinator_is_started_with_its_options(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[object] = []
    monkeypatch.setattr(
        "sparrowmq.runtime.coordinator.run_coordinator", lambda settings, ready: found.append(settings)
    )
    options = ("--port", "0", "--namesrv", "a:1", "--set", "leaseTime=20000", "--bind", "0.0.0.0")
    outcome = call("coordinator", "--database", "postgresql://u:p@h/d", *options)
    (settings,) = found
    assert (settings.lease_time, settings.namesrv_addr) == (20_000, "a:1")  # type: ignore[attr-defined]
    assert settings.database_url == "postgresql://u:p@h/d"  # type: ignore[attr-defined]
    assert "passwords and tokens are sent unencrypted" in outcome.err
    assert "did you mean leaseTime?" in call("coordinator", "--set", "leaseTim=1", status=1).err


def test_times_and_spans() -> None:
    assert [span(ms) for ms in (0, 1500, 90_000, 120_000, 7_200_000, 172_800_000)] == [
        "0 ms", "1500 ms", "90 s", "2 min", "2 h", "2 d",
    ]  # fmt: skip
    assert when(None) == when(0) == "–"
    assert when(1_700_000_000_000).startswith("2023-11-1")


def test_stalls(call: Call, sparrow: Call, server: Running) -> None:
    watch = server.coordinator._watch
    assert watch is not None
    book = watch.book
    book.add(Stall(at_ms=1000, what="sparrow-look", wall_ms=70, cpu_ms=60, where=("a.py:1 f",)))
    book.add(Stall(at_ms=2000, what="sparrow-api", wall_ms=60))
    (last, first, *_) = sparrow("coordinator", "stalls", "--json").values
    assert (last["what"], first["what"], first["cpu_ms"]) == ("sparrow-api", "sparrow-look", 60)
    lines = sparrow("coordinator", "stalls", "--longest").lines
    assert "since the start" in lines[0]
    assert any("sparrow-look" in line and "a.py:1 f" in line for line in lines)
    call("logout")
    assert "type: sparrow login" in call("coordinator", "stalls", status=1).err
