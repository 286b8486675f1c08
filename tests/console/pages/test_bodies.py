from __future__ import annotations

import json

import pytest

from sparrowmq.console.pages.bodies import (
    DEPTH_MAX,
    HEX_BYTES,
    JSON_CHARS_MAX,
    NODES_MAX,
    SHOWN_BYTES,
    body_of,
    hexed,
)


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (b"", "empty", ""),
        (b"hello", "text", "hello"),
        (b'{"b": [1, "\xe4\xbd\xa0"]}', "json", '{\n  "b": [\n    1,\n    "你"\n  ]\n}'),
        (b'{"broken": ', "text", '{"broken": '),
        (b"[" * 30_000, "text", "[" * 30_000),
        (b"\xff\xfe", "bytes", hexed(b"\xff\xfe")),
        (b"null", "text", "null"),
    ],
)
def test_body_type_is_detected(data: bytes, kind: str, text: str) -> None:
    found = body_of(data)
    assert (found.kind, found.text, found.size) == (kind, text, len(data))
    assert not found.is_cut


def nested(depth: int, inner: str = "1") -> bytes:
    return f"{'[' * depth}{inner}{']' * depth}".encode()


@pytest.mark.parametrize(
    ("data", "kind", "why"),
    [
        (nested(DEPTH_MAX), "json", ""),
        (nested(DEPTH_MAX + 1), "text", "deep"),
        (b'{"a":' * DEPTH_MAX + b"1" + b"}" * DEPTH_MAX, "json", ""),
        (b'{"a":' * (DEPTH_MAX + 1) + b"[]" + b"}" * (DEPTH_MAX + 1), "text", "deep"),
        (nested(900, ",".join("1" * 31_600)), "text", "deep"),
        (nested(30_000), "text", "deep"),
        (nested(DEPTH_MAX, ",".join("1" * 31_600)), "text", "long"),
        (nested(1, ",".join("1" * 31_600)), "json", ""),
        (nested(2, ",".join("1" * 31_600)), "json", ""),
        (b"[" * 30_000, "text", "deep"),
        (b"[1, 2", "text", ""),
    ],
    ids=lambda one: str(one)[:20],
)
def test_json_is_indented_up_to_a_depth_and_a_length(data: bytes, kind: str, why: str) -> None:
    found = body_of(data)
    assert (found.kind, found.why) == (kind, why)
    assert len(found.text) <= JSON_CHARS_MAX and not found.is_cut
    assert kind == "json" or found.text == data.decode()


def test_large_bodies_are_cut_between_characters() -> None:
    found = body_of("你".encode() * 100_000)
    assert found.kind == "text" and found.is_cut and set(found.text) == {"你"}
    assert SHOWN_BYTES - 3 < found.shown <= SHOWN_BYTES
    huge = body_of(json.dumps(["x" * 4_000_000]).encode())
    assert huge.kind == "text" and len(huge.text) == SHOWN_BYTES
    odd = body_of(b"\xff" * 4_000_000)
    assert (odd.kind, odd.shown, odd.is_cut) == ("bytes", HEX_BYTES, True)


def test_binary_body_is_shown_as_hex() -> None:
    lines = hexed(bytes(range(40, 60))).splitlines()
    assert lines[0] == "00000000  28 29 2a 2b 2c 2d 2e 2f 30 31 32 33 34 35 36 37  ()*+,-./01234567"
    assert lines[1].startswith("00000010  38 39 3a 3b") and lines[1].endswith(" 89:;")


def test_json_is_a_tree_with_its_first_levels_open() -> None:
    found = body_of(json.dumps({"a": {"b": {"c": [1, None]}}, "é\u202e": "x", "empty": []}).encode()).tree
    assert found is not None and (found.brackets, found.is_open) == ("{}", True)
    first, odd, empty = found.children
    assert (first.name, first.is_open) == ('"a"', True)
    assert [one.is_open for one in first.children] == [False], "deeper values are folded"
    assert [one.text for one in first.children[0].children[0].children] == ["1", "null"]
    assert (odd.name, odd.text) == ('"é\u202e"', '"x"')
    assert (empty.brackets, empty.text, tuple(empty.children)) == ("[]", "", ())
    assert body_of(b"plain").tree is None
    assert body_of(json.dumps([0] * (NODES_MAX - 1)).encode()).tree is not None
    large = body_of(json.dumps([0] * NODES_MAX).encode())
    assert large.tree is None and large.kind == "json", "so many values are shown as text"
