"""Java properties, TOML, assignments and environment names."""

from __future__ import annotations

import pytest

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings_text import (
    environment_name,
    parse_assignments,
    parse_properties,
    parse_toml,
)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("  a = 1  ", {"a": "1  "}),
        ("a:1\nb 2\nc\t3", {"a": "1", "b": "2", "c": "3"}),
        ("# x=1\n! y=2\n\n   \na=1\r\nb=2", {"a": "1", "b": "2"}),
        ("a=1\\\n   2\\\n 3\nb=4", {"a": "123", "b": "4"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a=b=c", {"a": "b=c"}),
        ("a=\\u0041\\tx\\q", {"a": "A\txq"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("p=C\\:\\\\data", {"p": "C:\\data"}),
        ("a=x\\\n# no comment", {"a": "x# no comment"}),
        ("brokerRole=ASYNC_MASTER\ndeleteWhen=04\n", {"brokerRole": "ASYNC_MASTER", "deleteWhen": "04"}),
    ],
)
def test_properties(text: str, pairs: dict[str, str]) -> None:
    assert parse_properties(text) == pairs


def test_properties_with_a_broken_escape_name_the_line() -> None:
    with pytest.raises(SettingsError, match="four hexadecimal digits"):
        parse_properties("a=\\u00zz")


def test_toml() -> None:
    assert parse_toml('brokerName = "x"\nlistenPort = 1\ntraceOn = true\nlongPollingEnable = false') == {
        "brokerName": "x",
        "listenPort": "1",
        "traceOn": "true",
        "longPollingEnable": "false",
    }


@pytest.mark.parametrize("text", ["a = [1]", "[a]\nb = 1", "a = 1.5"])
def test_toml_must_be_flat(text: str) -> None:
    with pytest.raises(SettingsError, match="a: must be a text, a whole number or true/false"):
        parse_toml(text)


def test_broken_toml() -> None:
    with pytest.raises(SettingsError, match="not TOML"):
        parse_toml("a = ")


def test_assignments() -> None:
    assert parse_assignments(["a=1", " b =x=y", "a=2"]) == {"a": "2", "b": "x=y"}
    for bad in ("a", "=1", ""):
        with pytest.raises(SettingsError, match="name=value"):
            parse_assignments([bad])


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("listenPort", "SPARROW_LISTEN_PORT"),
        ("brokerIP1", "SPARROW_BROKER_IP1"),
        ("namesrvAddr", "SPARROW_NAMESRV_ADDR"),
        ("dLegerGroup", "SPARROW_D_LEGER_GROUP"),
        ("useTLS", "SPARROW_USE_TLS"),
        ("tls.config.file", "SPARROW_TLS_CONFIG_FILE"),
        ("checkCRCOnRecover", "SPARROW_CHECK_CRC_ON_RECOVER"),
    ],
)
def test_environment_name(name: str, variable: str) -> None:
    assert environment_name(name) == variable


def test_environment_name_takes_a_prefix() -> None:
    assert environment_name("listenPort", "SPARROW_NAMESERVER_") == "SPARROW_NAMESERVER_LISTEN_PORT"
