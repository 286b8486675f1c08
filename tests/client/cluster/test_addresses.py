from __future__ import annotations

import ipaddress

import pytest
from tests.support import about

from sparrowmq.client.cluster.addresses import local_address, parse_namesrv, resolve_namesrv
from sparrowmq.core.errors import NoNameServerError, SettingsError


@pytest.mark.proves("client:A-69")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a:1", ("a:1",)),
        ("a:1;b:2", ("a:1", "b:2")),
        (" a:1 ; ; b:2;a:1", ("a:1", "b:2")),
        ("http://ns.example:9876", ("ns.example:9876",)),
        ("http://ns.example:9876/", ("ns.example:9876",)),
        ("a:1,b:2", ("a:1", "b:2")),
        ("[::1]:9876", ("[::1]:9876",)),
        ("", ()),
    ],
)
def test_lists_of_name_servers_are_parsed(text: str, found: tuple[str, ...]) -> None:
    assert parse_namesrv(text) == found


@pytest.mark.parametrize(
    "text", ["localhost", "a:", ":9876", "a:b", "a:0", "a:70000", "ok:1;bad", "a:²", "a:9" + "9" * 5000]
)
def test_invalid_address_is_named(text: str) -> None:
    with pytest.raises(SettingsError, check=about(setting="name_server", value=text.split(";")[-1])):
        parse_namesrv(text)


def test_setting_has_precedence_over_the_environment() -> None:
    environment = {"SPARROW_NAMESRV": "b:2", "NAMESRV_ADDR": "c:3"}
    assert resolve_namesrv("a:1", environment) == ("a:1",)
    assert resolve_namesrv(None, environment) == ("b:2",)
    assert resolve_namesrv(None, {"NAMESRV_ADDR": "c:3"}) == ("c:3",)


@pytest.mark.proves("client:B-18")
@pytest.mark.parametrize("text", [None, "", " ; "])
def test_error_without_a_name_server_says_what_to_set(text: str | None) -> None:
    with pytest.raises(NoNameServerError, match="SPARROW_NAMESRV") as caught:
        resolve_namesrv(text, {})
    assert caught.value.code == 10004


def test_local_address_is_numeric() -> None:
    assert ipaddress.ip_address(local_address())
