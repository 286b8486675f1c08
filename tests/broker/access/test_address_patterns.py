"""Patterns of remote addresses."""

from __future__ import annotations

import pytest
from tests.support import about

from sparrowmq.broker.access.address_patterns import address_pattern
from sparrowmq.core.errors import SettingsError


@pytest.mark.proves("remoting:7.2")
@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("", [], ["127.0.0.1", "::1", ""]),
        ("*", ["127.0.0.1", "::1"], []),
        ("*.*.*.*", ["1.2.3.4"], []),
        ("*:*:*:*:*:*:*:*", ["fe80::1"], []),
        ("10.0.0.5", ["10.0.0.5"], ["10.0.0.50", "110.0.0.5", "::ffff:10", "10.0.0", ""]),
        ("10.0.0.5, 10.0.0.7", ["10.0.0.5", "10.0.0.7"], ["10.0.0.6"]),
        ("10.0.0.{5,6,9}", ["10.0.0.5", "10.0.0.9"], ["10.0.0.7", "10.0.1.5"]),
        ("10.0.0.*", ["10.0.0.0", "10.0.0.255"], ["10.0.1.1", "10.0.0.1.1"]),
        ("10.0.*.*", ["10.0.9.9"], ["10.1.0.0"]),
        ("10.0.1-20.*", ["10.0.1.1", "10.0.20.9"], ["10.0.21.1", "10.0.0.1"]),
        ("10.0.0.10-20", ["10.0.0.10", "10.0.0.20"], ["10.0.0.9", "10.0.0.21"]),
        ("fe80::5", ["fe80::5", "fe80:0:0::5"], ["fe80::6", "1.2.3.4"]),
        ("fe80::1-ff", ["fe80::1", "fe80::ff"], ["fe80::100"]),
        ("fe80::*", ["fe80::abcd"], ["fe80::1:abcd"]),
        ("1:2:3:4:5:6:7:{8,a}", ["1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:a"], ["1:2:3:4:5:6:7:9"]),
    ],
)
def test_patterns_match_addresses(pattern: str, inside: list[str], outside: list[str]) -> None:
    matches = address_pattern(pattern)
    assert [host for host in inside if not matches(host)] == []
    assert [host for host in outside if matches(host)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        *("10.0.0", "10.0.0.0.1", "10.0.0.256", "10.0.0.-1", "10.0.0.9-3", "10.0.0.x", "10.*.0.1", "a"),
        *("1-2.0.0.1", "10.0.0{1,2}", "{1,2}", "10.0.{1}.5}", "fe80::10000", "1:2:3", "*:1:1:1:1:1:1:1"),
    ],
)
def test_invalid_patterns_are_named(pattern: str) -> None:
    with pytest.raises(SettingsError, check=about(what="address")):
        address_pattern(pattern)
