"""Java properties, TOML, assignments and environment names."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings.rows import table
from sparrowmq.core.settings.servers import BrokerSettings, NameServerSettings
from sparrowmq.core.settings.text import (
    OWN_LABELS,
    REQUEST_BYTES_MAX,
    environment_name,
    parse_assignments,
    parse_hours,
    parse_labels,
    parse_levels,
    parse_properties,
    parse_toml,
    port_number,
    request_text,
    without_secrets,
)

PACKAGE = Path(__file__).parents[3] / "src" / "sparrowmq"


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
def test_properties_are_parsed_as_in_java(text: str, pairs: dict[str, str]) -> None:
    assert parse_properties(text) == pairs


@pytest.mark.parametrize("escape", ["00zz", "12", "", "+123", " 123", "1_23", "d83d", "de00\\ud83d"])
def test_error_for_a_broken_escape_names_the_property(escape: str) -> None:
    with pytest.raises(SettingsError, check=about(setting="a")):
        parse_properties(f"b=1\na=\\u{escape}")


def test_toml_values_become_texts() -> None:
    assert parse_toml('brokerName = "x"\nlistenPort = 1\ntraceOn = true\nlongPollingEnable = false') == {
        "brokerName": "x",
        "listenPort": "1",
        "traceOn": "true",
        "longPollingEnable": "false",
    }


@pytest.mark.parametrize("text", ["a = [1]", "[a]\nb = 1", "a = 1.5"])
def test_toml_must_be_flat(text: str) -> None:
    with pytest.raises(SettingsError, check=about(setting="a")):
        parse_toml(text)


@pytest.mark.parametrize("text", ["a = ", "a = 1\na = 2", "a = " + "[" * 50_000, "a = 9" + "9" * 5000])
def test_invalid_toml_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="not TOML"):
        parse_toml(text)


@pytest.mark.parametrize(("text", "hours"), [("04", {4}), ("4;16", {4, 16}), (" 0 ;; 0023;", {0, 23})])
def test_hours_are_parsed(text: str, hours: set[int]) -> None:
    assert parse_hours("deleteWhen", text) == hours


@pytest.mark.parametrize("text", ["", ";", "24", "-1", "4;x", "\u0664", "\u00b2", "4.0", "9" * 5000, "00004"])
def test_invalid_hours_are_refused_with_the_name_of_the_setting(text: str) -> None:
    with pytest.raises(SettingsError, check=about(setting="deleteWhen", value=text)):
        parse_hours("deleteWhen", text)


@pytest.mark.parametrize(
    ("text", "port"),
    [("1", 1), ("09876", 9876), ("65535", 65535)]
    + [
        (bad, None)
        for bad in ("", "0", "65536", "-1", " 1", "1.0", "x", "\u0664", "\u00b2", "000001", "9" * 5000)
    ],
)
def test_only_valid_port_numbers_are_parsed(text: str, port: int | None) -> None:
    assert port_number(text) == port


def test_assignments_are_parsed() -> None:
    assert parse_assignments(["a=1", " b =x=y", "a=2"]) == {"a": "2", "b": "x=y"}
    for bad in ("a", "=1", ""):
        with pytest.raises(SettingsError, check=about(setting="--set")):
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
def test_environment_name_of_a_setting(name: str, variable: str) -> None:
    assert environment_name(name) == variable


def test_environment_name_can_have_another_prefix() -> None:
    assert environment_name("listenPort", "SPARROW_NAMESERVER_") == "SPARROW_NAMESERVER_LISTEN_PORT"


def test_length_and_encoding_of_a_request_to_change_settings_are_checked() -> None:
    """Parsing its lines takes 0.1 s for each megabyte or two."""
    assert request_text("name=wért\n".encode()) == "name=wért\n"
    assert len(request_text(b"x" * REQUEST_BYTES_MAX)) == REQUEST_BYTES_MAX
    with pytest.raises(SettingsError, check=about(limit=REQUEST_BYTES_MAX)):
        request_text(b"x" * (REQUEST_BYTES_MAX + 1))
    with pytest.raises(SettingsError, match="UTF-8"):
        request_text(b"\xff")


def test_labels_of_metrics_are_parsed() -> None:
    assert parse_labels("zone:a, rack:7,") == {"zone": "a", "rack": "7"}
    assert parse_labels("") == {}
    for wrong in ("zone", "zone:", ":a", "a-b:c", "topic:x", "__name__:x"):
        with pytest.raises(SettingsError, check=about(setting="metricsLabel", value=wrong)):
            parse_labels(wrong)


def test_labels_of_metrics_are_not_free_for_others() -> None:
    """A series with a label twice makes Prometheus refuse the whole scrape."""
    calls = [
        node
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] != "spark"  # it uses Prometheus' own library
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "labels"
    ]
    found = {word.arg for call in calls for word in call.keywords if word.arg is not None}
    assert {"topic", "method", "service"} <= found <= OWN_LABELS


def test_levels_of_loggers_are_parsed() -> None:
    assert parse_levels("info, store=debug,sparrowmq.broker=ERROR") == {
        "sparrowmq": "INFO",
        "sparrowmq.store": "DEBUG",
        "sparrowmq.broker": "ERROR",
    }


def test_passwords_in_settings_of_a_server_are_not_shown() -> None:
    told = {
        "brokerName": "broker-a",
        "initAuthenticationUser": '{"username":"root","password":"toor"}',
        "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"x"}',
        "metricsGrpcExporterHeader": "api-key:x",
        "tls.server.keyPassword": "x",
        "accessKey": "x",
    }
    assert without_secrets(told) == {"brokerName": "broker-a"}


@pytest.mark.parametrize("settings", [BrokerSettings, NameServerSettings])
def test_all_secrets_of_our_servers_are_known_as_such(settings: type) -> None:
    """RocketMQ's servers have settings of the same names, and return them."""
    rows = table(settings).values()
    shown = without_secrets({row.name: "" for row in rows})
    assert set(shown) == {row.name for row in rows if not row.secret}
