"""Java properties, TOML, assignments and environment names."""

from __future__ import annotations

import pytest

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings_text import (
    environment_name,
    parse_assignments,
    parse_hours,
    parse_properties,
    parse_toml,
    port_number,
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
        ("a=\\uD83D\\ude003", {"a": "\U0001f6003"}),
        ("a=1\fx\u2028y\x85z\rb=2", {"a": "1\fx\u2028y\x85z", "b": "2"}),
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


@pytest.mark.parametrize("escape", ["00zz", "12", "", "+123", " 123", "1_23", "d83d", "de00\\ud83d"])
def test_properties_with_a_broken_escape_name_the_line(escape: str) -> None:
    with pytest.raises(SettingsError, match=r"'a=.*four hexadecimal digits of a character"):
        parse_properties(f"b=1\na=\\u{escape}")


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


@pytest.mark.parametrize("text", ["a = ", "a = 1\na = 2", "a = " + "[" * 50_000, "a = 9" + "9" * 5000])
def test_broken_toml(text: str) -> None:
    with pytest.raises(SettingsError, match="not TOML"):
        parse_toml(text)


@pytest.mark.parametrize(("text", "hours"), [("04", {4}), ("4;16", {4, 16}), (" 0 ;; 0023;", {0, 23})])
def test_hours(text: str, hours: set[int]) -> None:
    assert parse_hours("deleteWhen", text) == hours


@pytest.mark.parametrize("text", ["", ";", "24", "-1", "4;x", "\u0664", "\u00b2", "4.0", "9" * 5000, "00004"])
def test_what_is_no_hour_is_refused_with_the_settings_name(text: str) -> None:
    with pytest.raises(SettingsError, match=r"^deleteWhen=.*hours from 00 to 23"):
        parse_hours("deleteWhen", text)


@pytest.mark.parametrize(
    ("text", "port"),
    [("1", 1), ("09876", 9876), ("65535", 65535)]
    + [
        (bad, None)
        for bad in ("", "0", "65536", "-1", " 1", "1.0", "x", "\u0664", "\u00b2", "000001", "9" * 5000)
    ],
)
def test_port_numbers(text: str, port: int | None) -> None:
    assert port_number(text) == port


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
