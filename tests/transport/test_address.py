"""Addresses as text and as stored."""

from __future__ import annotations

import pytest
from tests.support import about

from sparrowmq.core.errors import ConnectError
from sparrowmq.transport.address import format_address, pack_host, parse_address, peer_of


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("127.0.0.1:9876", ("127.0.0.1", 9876)),
        (" host.example:1 ", ("host.example", 1)),
        ("[::1]:10911", ("::1", 10911)),
        ("fe80::1:10911", ("fe80::1", 10911)),
    ],
)
def test_addresses_that_are_good(text: str, parsed: tuple[str, int]) -> None:
    assert parse_address(text) == parsed


@pytest.mark.parametrize(
    "text",
    ["", "host", "host:", ":1", "host:0", "host:65536", "host:-1", "host:x", "[]:1", "h:" + "9" * 5000],
)
def test_addresses_that_are_not(text: str) -> None:
    with pytest.raises(ConnectError, check=about(address=text)) as caught:
        parse_address(text)
    assert caught.value.address == text


def test_ipv6_hosts_are_bracketed() -> None:
    assert format_address("::1", 5) == "[::1]:5"
    assert format_address("127.0.0.1", 5) == "127.0.0.1:5"


@pytest.mark.parametrize(
    ("name", "peer"),
    [
        (("10.0.0.1", 5), ("10.0.0.1", 5)),
        (("::ffff:10.0.0.1", 5, 0, 0), ("10.0.0.1", 5)),
        (("fe80::1%eth0", 5, 0, 2), ("fe80::1", 5)),
        (None, ("0.0.0.0", 0)),
        ("/a/unix/socket", ("0.0.0.0", 0)),
    ],
)
def test_socket_names(name: object, peer: tuple[str, int]) -> None:
    assert peer_of(name) == peer


def test_packed_hosts_have_the_stored_form() -> None:
    assert pack_host("127.0.0.1", 10911) == b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
    assert pack_host("::1", 1) == bytes(15) + b"\x01" + b"\x00\x00\x00\x01"
