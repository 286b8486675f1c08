"""The account with which commands sign their requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import about
from typer.main import get_command
from typer.testing import CliRunner

from sparrowmq.cli.base.common import UsageError
from sparrowmq.cli.base.identity import TAKES_VALUE, assume, before_command, read_tools
from sparrowmq.cli.main import app


def given(
    access_key: str | None = None,
    secret_key: str | None = None,
    tools: Path | None = None,
    *,
    tls: bool = False,
    tls_ca: Path | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    namesrv: str | None = None,
) -> dict[str, str]:
    environment = {"SPARROW_ACCESS_KEY": "before"}
    assume(environment, namesrv, access_key, secret_key, tools, tls, tls_ca, tls_cert, tls_key)
    return environment


def test_options_become_the_environment_of_clients() -> None:
    assert given() == {"SPARROW_ACCESS_KEY": "before"}
    assert given("alice", "s") == {"SPARROW_ACCESS_KEY": "alice", "SPARROW_SECRET_KEY": "s"}
    assert given(namesrv="a:1;b:1")["SPARROW_NAMESRV"] == "a:1;b:1"
    assert given(tls=True)["SPARROW_CLIENT_TLS"] == "true"
    assert given(tls_ca=Path("ca.pem")) == {
        "SPARROW_ACCESS_KEY": "before",
        "SPARROW_CLIENT_TLS": "true",
        "SPARROW_CLIENT_TLS_CA": "ca.pem",
    }
    assert given(tls_cert=Path("c.pem"), tls_key=Path("c.key")) == {
        "SPARROW_ACCESS_KEY": "before",
        "SPARROW_CLIENT_TLS": "true",
        "SPARROW_CLIENT_TLS_CERT": "c.pem",
        "SPARROW_CLIENT_TLS_KEY": "c.key",
    }


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("topic list --tls", "--tls topic list"),
        ("topic list --tls-ca ca.pem --json", "--tls-ca ca.pem topic list --json"),
        ("send T --access-key=a body --secret-key b", "--access-key=a --secret-key b send T body"),
        ("serve T --tls -- program --tls", "--tls serve T -- program --tls"),
        ("topic list -n a:1", "topic list -n a:1"),
        ("topic list --tools", "--tools"),
        ("topic list --tls --tls-ca", "--tls --tls-ca"),
    ],
)
def test_options_may_follow_the_command(given: str, taken: str) -> None:
    assert before_command(given.split()) == taken.split()


def test_an_option_without_its_value_is_named() -> None:
    result = CliRunner().invoke(app, ["topic", "list", "--tls-ca"])
    assert result.exit_code == 2
    assert "Option '--tls-ca' requires an argument" in result.output


def test_no_command_has_an_option_of_the_connection_itself() -> None:
    """One that did would lose it to the connection."""

    def look(command: Any, path: str) -> Iterator[str]:
        for inner, found in getattr(command, "commands", {}).items():
            taken = {name for one in found.params for name in getattr(one, "opts", ())} & TAKES_VALUE.keys()
            yield from (f"{path} {inner} {name}" for name in taken)
            yield from look(found, f"{path} {inner}")

    assert list(look(get_command(app), "sparrow")) == []
    of_app = {name for one in get_command(app).params for name in one.opts}
    assert of_app >= TAKES_VALUE.keys()


def test_a_secret_on_the_command_line_is_warned_of_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given("alice", "the-secret")
    said = capsys.readouterr().err
    assert said.count("warning") == 1 and "set SPARROW_SECRET_KEY instead" in said
    assert "the-secret" not in said
    path = tmp_path / "tools.yml"
    path.write_text("accessKey: a\nsecretKey: the-secret\n")
    path.chmod(0o600)
    given("alice", tools=path)
    assert capsys.readouterr().err == ""


@pytest.mark.proves("client:F-01")
def test_the_file_of_rocketmqs_tools(tmp_path: Path) -> None:
    path = tmp_path / "tools.yml"
    path.write_text("accessKey: rocketmq2\nsecretKey: 0012345678\n")
    assert read_tools(path) == ("rocketmq2", "0012345678")
    assert given("alice", tools=path) == {
        "SPARROW_ACCESS_KEY": "alice",
        "SPARROW_SECRET_KEY": "0012345678",
    }


@pytest.mark.parametrize(
    "text",
    ["", "x", "accessKey: a", "accessKey: {b: c}\nsecretKey: d", "accessKey: ''\nsecretKey: d", "["],
)
def test_a_file_without_keys(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tools.yml"
    path.write_text(text)
    with pytest.raises(UsageError, check=about(what="keys", value=path)):
        read_tools(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "none.yml"
    with pytest.raises(UsageError, check=about(what="", value=path)):
        read_tools(path)
