"""Frames: whole, byte by byte, with a tail, with every length wrong; test vectors; recorded frames."""

from __future__ import annotations

import random
import struct
import sys
from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol import recorded
from tests.support import about

from sparrowmq.core.errors import FrameError
from sparrowmq.protocol import frame as frames
from sparrowmq.protocol.codes import LANGUAGES, VERSION
from sparrowmq.protocol.frame import FRAME_BYTES_MAX, Command, FrameReader, decode, encode, frame

REQUEST_HEADER = (
    b'{"code":38,"extFields":{"consumerGroup":"g1"},"flag":0,"language":"JAVA","opaque":7,'
    b'"serializeTypeCurrentRPC":"JSON","version":477}'
)
REQUEST = bytes.fromhex("0000008700000083") + REQUEST_HEADER
COMPACT = bytes.fromhex(
    "000000330100002c00260001dd00000007000000000000000268690000"
    "0015000d636f6e73756d657247726f7570000000026731616263"
)
RESPONSE_HEADER = (
    b'{"code":0,"flag":1,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":0}'
)

INT = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
COMMANDS = st.builds(
    Command,
    code=INT,
    opaque=INT,
    flag=st.integers(0, 3),
    ext=st.dictionaries(TEXT, TEXT, max_size=5),
    body=st.binary(max_size=200),
    remark=st.none() | TEXT,
    language=st.sampled_from(LANGUAGES),
    version=st.integers(0, 32767),
)


def with_prefix(length: int, header_length: int, kind: int = 0, rest: bytes = b"x" * 64) -> bytes:
    """A frame whose two length fields say what the caller wants."""
    return struct.pack(">iI", length, kind << 24 | header_length & 0xFFFFFF) + rest


def test_request_of_the_reference_is_read() -> None:
    command = recorded.command(REQUEST)
    assert command == Command(38, 7, 0, {"consumerGroup": "g1"}, b"", None, "JAVA", 477)
    assert not command.is_response
    assert not command.is_oneway


def test_compact_request_of_the_reference_is_read() -> None:
    kind, header, body = recorded.raw(COMPACT)
    assert (kind, body) == (1, b"abc")
    assert decode(kind, header, body) == Command(38, 7, 0, {"consumerGroup": "g1"}, b"abc", "hi", "JAVA", 477)


def test_response_and_oneway_of_the_reference_are_told_apart() -> None:
    response = decode(0, RESPONSE_HEADER, b"")
    assert response.is_response
    assert not response.is_oneway
    assert response.ext == {}
    oneway = decode(0, RESPONSE_HEADER.replace(b'"flag":1', b'"flag":2'), b"")
    assert oneway.is_oneway
    assert not oneway.is_response


def test_written_header_has_what_peers_need() -> None:
    kind, header, _ = recorded.raw(encode(Command(10)))
    assert kind == 0
    assert b'"extFields":{}' in header
    assert b'"language":"PYTHON"' in header
    assert b'"version":%d' % VERSION in header
    assert b'"serializeTypeCurrentRPC":"JSON"' in header
    assert b"remark" not in header
    assert b" " not in header
    assert frame(b"{}") == b"\0\0\0\x06\0\0\0\x02{}"


@pytest.mark.parametrize(
    ("header", "ext"),
    [
        (b'{"code":1,"extFields":{"a":5,"b":true,"c":false,"d":null,"e":1.5,"f":"x"}}', "a b c e f"),
        (b'{"code":1,"extFields":null}', ""),
        (b'{"code":1,"unknown":{"deep":[1,{"x":2}]}}', ""),
    ],
)
def test_fields_that_are_no_strings_become_strings(header: bytes, ext: str) -> None:
    command = decode(0, header, b"")
    assert sorted(command.ext) == ext.split()
    expected = {"a": "5", "b": "true", "c": "false", "e": "1.5", "f": "x"}
    assert all(command.ext[name] == expected[name] for name in command.ext)


@pytest.mark.parametrize(
    ("language", "name"),
    [
        (b'"CPP"', "CPP"),
        (b'""', "OTHER"),
        (b"0", LANGUAGES[0]),
        (b"3", "PYTHON"),
        (b"%d" % (len(LANGUAGES) - 1), LANGUAGES[-1]),
        (b"%d" % len(LANGUAGES), "OTHER"),
        (b"-1", "OTHER"),
        (b"null", "OTHER"),
    ],
)
def test_language_may_be_name_number_or_nothing(language: bytes, name: str) -> None:
    assert decode(0, b'{"code":1,"language":%b}' % language, b"").language == name
    whole = REQUEST_HEADER.replace(b'"JAVA"', language)
    assert decode(0, whole, b"") == Command(38, 7, 0, {"consumerGroup": "g1"}, b"", None, name, 477)


def test_an_odd_header_loses_nothing() -> None:
    header = b'{"code":1,"opaque":7,"flag":2,"remark":"r","version":3,"language":3,"extFields":{"n":5}}'
    assert decode(0, header, b"body") == Command(1, 7, 2, {"n": "5"}, b"body", "r", "PYTHON", 3)
    assert decode(0, b'{"code":1}', b"") == Command(1, 0, 0, {}, b"", None, "OTHER", 0)


def compact(remark: bytes, *fields: tuple[bytes, bytes], language: int = 0) -> bytes:
    """A compact header."""
    ext = b"".join(
        struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value for name, value in fields
    )
    head = struct.pack(">hBhiii", 38, language, 477, 7, 0, len(remark))
    return head + remark + struct.pack(">i", len(ext)) + ext


@pytest.mark.parametrize(
    ("header", "ext", "remark", "language"),
    [
        (compact(b""), {}, None, "JAVA"),
        (compact(b"", (b"a", b"1"), (b"b", b"2")), {"a": "1", "b": "2"}, None, "JAVA"),
        (compact("été".encode(), (b"", b"1"), (b"b", b""), (b"c", b"3")), {"c": "3"}, "été", "JAVA"),
        (compact(b"", language=len(LANGUAGES) - 1), {}, None, LANGUAGES[-1]),
        (compact(b"", language=255), {}, None, "OTHER"),
    ],
    ids=["empty", "two", "nameless", "language", "other language"],
)
def test_compact_headers(header: bytes, ext: dict[str, str], remark: str | None, language: str) -> None:
    assert decode(1, header, b"x") == Command(38, 7, 0, ext, b"x", remark, language, 477)


@given(COMMANDS)
def test_what_is_written_is_read_back(command: Command) -> None:
    assert recorded.command(encode(command)) == command


@pytest.mark.parametrize("large", [frames.LARGE_FRAME_BYTES, 9])
@given(st.lists(COMMANDS, max_size=6), st.data())
def test_a_stream_cut_anywhere_gives_the_same_frames(
    large: int, commands: list[Command], data: st.DataObject
) -> None:
    stream = b"".join(map(encode, commands))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    reader = FrameReader()
    found = []
    with patch.object(frames, "LARGE_FRAME_BYTES", large):
        for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            found += reader.feed(stream[start:stop])
    assert [decode(*item) for item in found] == commands
    assert reader.buffered == 0


@pytest.mark.parametrize("rest", [b"", COMPACT, REQUEST[:5], COMPACT + REQUEST[:-1]])
@pytest.mark.parametrize("cuts", [[0], [0, 1, 700], [1023], [200, 400]])
@pytest.mark.parametrize("kind", [frames.JSON_HEADER, frames.COMPACT_HEADER])
def test_a_large_body_in_pieces_is_taken_whole(kind: int, cuts: list[int], rest: bytes) -> None:
    """The pieces are cut at these bytes of the body; what follows the frame comes with the last."""
    header, body = compact(b"hi"), random.Random(1).randbytes(1024)
    whole = with_prefix(4 + len(header) + len(body), len(header), kind, header + body)
    ends = [len(whole) - 1024 + cut for cut in cuts]
    *pieces, last = (whole[start:stop] for start, stop in pairwise([0, *ends, len(whole)]))
    reader, other = FrameReader(), FrameReader()
    with patch.multiple(frames, LARGE_FRAME_BYTES=100, SMALL_PART_BYTES=0):
        assert [reader.feed(piece) for piece in pieces] == [[]] * len(pieces)
        assert reader._parts == pieces, "nothing is copied before the last"
        assert reader.feed(last + rest) == [recorded.raw(whole), *other.feed(rest)]
    assert reader.buffered == other.buffered


@pytest.mark.parametrize("step", [1, 10, 3000])
def test_a_frame_in_many_pieces_takes_little_more_than_its_bytes(step: int) -> None:
    whole = with_prefix(4 + 300_000, 0, frames.JSON_HEADER, bytes(300_000))
    reader = FrameReader()
    for at in range(0, len(whole) - step, step):
        assert reader.feed(whole[at : at + step]) == []
        if at % 1000 == 0:
            assert sum(map(sys.getsizeof, reader._parts)) < 1.1 * reader.buffered + 100
    (found,) = reader.feed(whole[at + step :])
    assert found == recorded.raw(whole)


@given(st.lists(COMMANDS, max_size=6), st.data())
def test_large_frames_are_handed_over_when_their_header_is_there(
    commands: list[Command], data: st.DataObject
) -> None:
    """Whatever the cuts: who takes a frame over and feeds what follows it sees the same frames."""
    stream = b"".join(map(encode, commands))
    reader = FrameReader(hands_over=True)
    found, position = [], 0
    with patch.object(frames, "LARGE_FRAME_BYTES", 120):
        while position < len(stream):
            stop = position + data.draw(st.integers(1, len(stream) - position))
            found += reader.feed(stream[position:stop])
            position = stop
            if reader.large is not None:
                large = reader.hand_over()
                missing = large.size - len(large.start)
                assert missing > 0
                assert reader.buffered == 0
                found.append((large.kind, large.header, large.start + stream[stop : stop + missing]))
                assert len(encode(decode(*found[-1]))) >= 120
                position = stop + missing
    assert [decode(*item) for item in found] == commands


@pytest.mark.parametrize("whole", [REQUEST, COMPACT, encode(Command(0, body=b"\x00" * 9))])
def test_a_frame_is_read_byte_by_byte(whole: bytes) -> None:
    reader = FrameReader()
    for index in range(len(whole) - 1):
        assert reader.feed(whole[index : index + 1]) == []
        assert reader.buffered == index + 1
    assert reader.feed(whole[-1:]) == [recorded.raw(whole)]
    assert reader.buffered == 0


@pytest.mark.parametrize("tail", range(1, len(REQUEST)))
def test_a_tail_waits_for_the_rest(tail: int) -> None:
    reader = FrameReader()
    assert reader.feed(COMPACT + REQUEST[:tail]) == [recorded.raw(COMPACT)]
    assert reader.buffered == tail
    assert reader.feed(REQUEST[tail:] + COMPACT) == [recorded.raw(REQUEST), recorded.raw(COMPACT)]


def test_the_smallest_frame_has_neither_header_nor_body() -> None:
    smallest = struct.pack(">iI", 4, 0)
    assert FrameReader().feed(smallest) == [(0, b"", b"")]
    for cut in range(1, 8):
        reader = FrameReader()
        assert reader.feed(smallest[:cut]) == []
        assert reader.feed(smallest[cut:]) == [(0, b"", b"")]
    assert FrameReader().feed(smallest * 3 + b"x") == [(0, b"", b"")] * 3


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        (with_prefix(-1, 0), {"what": "length", "value": -1}),
        (with_prefix(-(2**31), 0), {"what": "length"}),
        (with_prefix(0, 0), {"what": "length"}),
        (with_prefix(3, 0), {"what": "length", "value": 3}),
        (with_prefix(4, 1), {"what": "header"}),
        (with_prefix(20, 17), {"what": "header", "value": 17, "limit": 24}),
        (with_prefix(FRAME_BYTES_MAX - 4, 0xFFFFFF), {"what": "header"}),
        (with_prefix(20, 0xFFFFFF), {"what": "header"}),
        (with_prefix(FRAME_BYTES_MAX - 3, 4), {"what": "frame"}),
        (with_prefix(2**31 - 1, 4), {"what": "frame"}),
    ],
)
def test_wrong_lengths_are_refused(data: bytes, facts: dict[str, object]) -> None:
    with pytest.raises(FrameError, check=about(**facts)):
        FrameReader().feed(data)


def test_a_frame_of_exactly_the_limit_is_read() -> None:
    whole = frame(b"{}", b"b" * 90)
    assert FrameReader(len(whole)).feed(whole) == [(0, b"{}", b"b" * 90)]
    with pytest.raises(FrameError, check=about(what="frame", value=len(whole), limit=len(whole) - 1)):
        FrameReader(len(whole) - 1).feed(whole)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"POST /x HTTP/1.1\r\n\r\n", "HTTP"),
        (b"PRI * HTTP/2.0\r\n\r\n", "HTTP/2"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH"),
        (b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n", "PROXY"),
        (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            "^a TLS handshake arrived on a port without TLS; turn TLS off at the client$",
        ),
    ],
)
def test_other_protocols_are_named(data: bytes, text: str) -> None:
    for before in (b"", COMPACT):
        with pytest.raises(FrameError, match=text):
            FrameReader().feed(before + data)


def test_after_an_error_the_reader_is_dead() -> None:
    reader = FrameReader()
    with pytest.raises(FrameError) as first:
        reader.feed(with_prefix(-1, 0))
    with pytest.raises(FrameError) as second:
        reader.feed(REQUEST)
    assert second.value is first.value


@pytest.mark.parametrize("field_at", [13, 38])
@pytest.mark.parametrize("wrong", [-1, -(2**31), 2**31 - 1, 100])
def test_wrong_text_lengths_of_a_compact_header_are_refused(field_at: int, wrong: int) -> None:
    """Remark (at 13) and value (at 38) name less than nothing or more than there is."""
    _, header, _ = recorded.raw(COMPACT)
    broken = header[:field_at] + struct.pack(">i", wrong) + header[field_at + 4 :]
    with pytest.raises(FrameError):
        decode(1, broken, b"")


@pytest.mark.parametrize("total", [-1, 0, 20, 22, 2**31 - 1])
def test_a_wrong_total_of_a_compact_header_is_refused(total: int) -> None:
    _, header, _ = recorded.raw(COMPACT)
    with pytest.raises(FrameError):
        decode(1, header[:19] + struct.pack(">i", total) + header[23:], b"")


@pytest.mark.parametrize("size", [-1, -32768, 12, 14, 32767])
def test_a_wrong_name_length_of_a_compact_header_is_refused(size: int) -> None:
    _, header, _ = recorded.raw(COMPACT)
    with pytest.raises(FrameError):
        decode(1, header[:23] + struct.pack(">h", size) + header[25:], b"")


@pytest.mark.parametrize("size", range(44))
def test_a_compact_header_cut_short_is_refused(size: int) -> None:
    _, header, _ = recorded.raw(COMPACT)
    assert len(header) == 44
    with pytest.raises(FrameError):
        decode(1, header[:size], b"")


def test_a_compact_header_with_a_tail_is_refused() -> None:
    _, header, _ = recorded.raw(COMPACT)
    with pytest.raises(FrameError, check=about(what="fields", value=21, limit=22)):
        decode(1, header + b"x", b"")


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"code":"x"}',
        b'{"code":1,"opaque":[]}',
        b'{"code":1,"extFields":[]}',
        b'{"code":1,"extFields":{"a":{}}}',
        b'{"code":1}x',
        b"\xff\xfe",
        b'{"code":1,"x":' + b"[" * 100_000,
        b'{"code":' + b"9" * 5000 + b"}",
    ],
    ids=range(12),
)
def test_json_headers_that_cannot_be_read_are_refused(header: bytes) -> None:
    with pytest.raises(FrameError):
        decode(0, header, b"")


@pytest.mark.parametrize("kind", [2, 22, 255])
def test_unknown_header_types_are_refused(kind: int) -> None:
    with pytest.raises(FrameError, check=about(what="type", value=kind)):
        decode(kind, REQUEST_HEADER, b"")


@given(st.integers(0, 2), st.binary(max_size=200))
def test_noise_in_a_header_is_a_frame_error_or_a_command(kind: int, header: bytes) -> None:
    try:
        assert isinstance(decode(kind, header, b""), Command)
    except FrameError:
        pass


@given(st.binary(max_size=120), st.integers(0, 40))
def test_damage_to_a_header_is_a_frame_error_or_a_command(noise: bytes, place: int) -> None:
    for kind, header in ((0, REQUEST_HEADER), (1, recorded.raw(COMPACT)[1])):
        try:
            assert isinstance(
                decode(kind, header[:place] + noise + header[place + len(noise) :], b""), Command
            )
        except FrameError:
            pass


@given(st.lists(st.binary(max_size=40), max_size=10))
def test_noise_on_the_stream_is_a_frame_error_or_frames(chunks: list[bytes]) -> None:
    reader = FrameReader()
    try:
        count = sum(8 + len(header) + len(body) for c in chunks for _, header, body in reader.feed(c))
    except FrameError:
        return
    assert count + reader.buffered == sum(map(len, chunks))


def test_every_recorded_frame_is_read_and_written_back_with_the_same_meaning() -> None:
    for exchange in recorded.exchanges():
        request = recorded.command(exchange.request)
        if exchange.code < 32768 or recorded.raw(exchange.request)[0] == 0:
            assert request.code == exchange.code, exchange
        assert not request.is_response, exchange
        assert recorded.command(encode(request)) == request, exchange
        if exchange.response is not None:
            response = recorded.command(exchange.response)
            assert response.is_response, exchange
            assert response.opaque == request.opaque, exchange
            assert recorded.command(encode(response)) == response, exchange


def test_a_recorded_connection_is_read_byte_by_byte() -> None:
    requests = [item.request for item in recorded.exchanges() if item.file == "cpp.jsonl"]
    assert requests
    reader = FrameReader()
    stream = b"".join(requests)
    frames = [item for index in range(len(stream)) for item in reader.feed(stream[index : index + 1])]
    assert frames == FrameReader().feed(stream)
    assert len(frames) == len(requests)
