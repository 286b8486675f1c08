from __future__ import annotations

import builtins
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.coordinator.cluster.explored import message
from tests.support import about

from sparrowmq.coordinator.cluster import exporting
from sparrowmq.coordinator.cluster.exporting import FileFormat, file_name, write_file
from sparrowmq.core.errors import RefusedError
from sparrowmq.core.message import BODY_BYTES_MAX, ReceivedMessage
from sparrowmq.protocol.compression import compress
from sparrowmq.protocol.sysflag import COMPRESSED


def as_file(messages: Sequence[ReceivedMessage], kind: FileFormat) -> bytes:
    out = io.BytesIO()
    write_file(messages, kind, out)
    return out.getvalue()


def test_json_lines_have_one_complete_message_per_line() -> None:
    odd = message(2, body=b"\xff\n")
    odd.properties["note"] = "=1+1\n\u2028next"
    lines = as_file([message(1), odd], FileFormat.JSONL).decode().splitlines()
    first, second = map(json.loads, lines)
    assert (first["offset"], first["message_id"], first["keys"], first["body_base64"]) == (
        1,
        "id-1",
        ["k"],
        "Ym9keQ==",
    )
    assert second["properties"]["note"] == "=1+1\n\u2028next"


def test_parquet_has_the_same_data_with_types() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    found = parquet.read_table(io.BytesIO(as_file([message(1, body=b"\xff")], FileFormat.PARQUET)))
    (row,) = found.to_pylist()
    assert (row["offset"], row["body"], row["keys"], row["tags"]) == (1, b"\xff", ["k"], "t")
    assert row["stored_ms"].isoformat() == "1970-01-01T00:00:02+00:00" and ("TAGS", "t") in row["properties"]
    assert parquet.read_table(io.BytesIO(as_file([], FileFormat.PARQUET))).num_rows == 0


def test_error_without_pyarrow_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(RefusedError, check=about(status=422, what="pyarrow")):
        as_file([], FileFormat.PARQUET)


@pytest.mark.parametrize("kind", [FileFormat.JSONL, FileFormat.PARQUET])
def test_file_ends_where_its_messages_become_too_large(kind: FileFormat) -> None:
    """Counted after decompression, and with their properties."""
    packed = compress(bytes(BODY_BYTES_MAX))
    bombs = [
        replace(message(number, body=packed), sys_flag=COMPRESSED, store_size=len(packed) + 200)
        for number in range(20)
    ]
    assert write_file(bombs, kind, io.BytesIO()) == exporting.BYTES_MAX // BODY_BYTES_MAX - 1
    large = [replace(message(number), store_size=exporting.BYTES_MAX // 4 + 1) for number in range(20)]
    assert write_file(large, kind, io.BytesIO()) == 3
    assert write_file([replace(message(), store_size=2 * exporting.BYTES_MAX)], kind, io.BytesIO()) == 1


def test_line_that_grows_by_escaping_ends_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "FILE_BYTES_MAX", 1000)
    assert write_file([message(number) for number in range(20)], FileFormat.JSONL, io.BytesIO()) < 10


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("Orders", "Orders.jsonl"),
        ("../../etc/passwd", "etc_passwd.jsonl"),
        ("%DLQ%g", "DLQ_g.jsonl"),
        ('a"; filename="b.exe', "a_filename_b_exe.jsonl"),
        ("..", "messages.jsonl"),
        ("\r\nX: y", "X_y.jsonl"),
        ("订单", "messages.jsonl"),
        ("x" * 300, "x" * 100 + ".jsonl"),
    ],
)
def test_file_names_cannot_leave_the_directory(topic: str, name: str) -> None:
    assert file_name(topic, FileFormat.JSONL) == name
