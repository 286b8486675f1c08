"""Stored records for tests: samples, hypothesis strategies, and the logs of real brokers."""

from __future__ import annotations

import json
import lzma
import tarfile
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import lz4.frame
import zstandard
from hypothesis import strategies as st

from sparrowmq.protocol.record import check_record, encode_record
from sparrowmq.protocol.sysflag import COMPRESSED, CompressionType

STORES = Path(__file__).parent.parent / "fixtures" / "store"
HOST = b"\x7f\0\0\1\0\0\x27\x10"
HOST6 = bytes(15) + b"\1" + b"\0\0\x27\x10"


def record(
    offset: int = 0,
    body: bytes = b"body",
    properties: bytes = b"UNIQ_KEY\x01id\x02KEYS\x01k1 k2\x02TAGS\x01TagA\x02",
    *,
    topic: bytes = b"TopicTest",
    born_host: bytes = HOST,
    store_host: bytes = HOST,
    **more: int,
) -> bytes:
    """One record; what is not named has plain values."""
    fields: dict[str, Any] = {
        "queue_id": 3,
        "physical_offset": 1000 * offset,
        "flag": 0,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_000 + offset,
        "store_timestamp": 1_700_000_000_001 + offset,
        "reconsume_times": 0,
        **more,
    }
    return encode_record(
        topic=topic,
        queue_offset=offset,
        body=body,
        properties=properties,
        born_host=born_host,
        store_host=store_host,
        **fields,
    )


def chunk(count: int, **more: Any) -> bytes:
    """`count` records with the queue offsets 0, 1, …"""
    return b"".join(record(offset, **more) for offset in range(count))


def packed(kind: CompressionType | None, body: bytes) -> tuple[bytes, int]:
    """A compressed body and the sysFlag that says so; None is the older senders' zlib without type."""
    if kind is CompressionType.LZ4:
        return lz4.frame.compress(body), COMPRESSED | kind
    if kind is CompressionType.ZSTD:
        return zstandard.ZstdCompressor().compress(body), COMPRESSED | kind
    return zlib.compress(body), COMPRESSED | (kind or 0)


_INT = st.integers(-(2**31), 2**31 - 1)
_LONG = st.integers(-(2**63), 2**63 - 1)
_NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "n", "ключ", "x" * 40])
_TEXTS = st.one_of(
    st.sampled_from(["", "v", "TagA", "k1 k2", "0A00020F0001"]),
    st.text(st.characters(codec="utf-8"), max_size=8),
)
_PROPERTIES = st.one_of(
    st.just(b""),
    st.dictionaries(_NAMES, st.sampled_from(["v", "TagA", "é"]), max_size=5).map(
        lambda items: "".join(f"{name}\x01{value}\x02" for name, value in items.items()).encode()
    ),
    st.lists(st.tuples(_NAMES, _TEXTS), max_size=5).map(
        lambda items: "\x02".join(f"{name}\x01{value}" for name, value in items).encode()
    ),
    st.lists(st.sampled_from([b"\x01", b"\x02", b"\x00", b"\xff", b"TAGS", b"KEYS", b"a"]), max_size=12).map(
        b"".join
    ),
)


@st.composite
def records(draw: st.DrawFn, offset: int = 0) -> bytes:
    """Any record a log may hold: both versions, both address families, each codec, odd properties."""
    body, sys_flag = draw(st.binary(max_size=40)), 0
    if draw(st.integers(0, 7)) == 0:
        body, sys_flag = packed(draw(st.sampled_from([None, *CompressionType])), body)
    topic = draw(st.sampled_from([b"T", b"TopicTest", "тема".encode(), b"%RETRY%" + b"g" * 121]))
    hosts = st.sampled_from([HOST, HOST6, b"\x0a\1\2\3\0\0\0\1"])
    return record(
        offset,
        body,
        draw(_PROPERTIES),
        topic=topic,
        born_host=draw(hosts),
        store_host=draw(hosts),
        queue_id=draw(_INT),
        flag=draw(_INT),
        sys_flag=sys_flag,
        physical_offset=draw(st.integers(0, 2**62)),
        born_timestamp=draw(_LONG),
        store_timestamp=draw(_LONG),
        reconsume_times=draw(_INT),
    )


@lru_cache(maxsize=2)
def log_of(name: str) -> bytes:
    """All records of the commit log of a stored broker, without the blanks at the ends of its files."""
    files = {}
    with tarfile.open(STORES / f"{name}.tar.xz") as archive:
        for member in archive:
            file = archive.extractfile(member) if "/commitlog/" in member.name else None
            if file is not None:
                files[member.name] = file.read()
    parts = []
    for _, data in sorted(files.items()):
        position = 0
        while position < len(data) and data[position : position + 4] != bytes(4):
            size = check_record(data, position, len(data))
            if not size:
                break
            parts.append(data[position : position + size])
            position += size
    return b"".join(parts)


def ledger_of(name: str, kind: str) -> list[dict[str, Any]]:
    """The ledger lines of one kind: what clients were told and saw when the store was filled."""
    with lzma.open(STORES / f"{name}.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [entry for entry in map(json.loads, lines) if entry["rec"] == kind]
