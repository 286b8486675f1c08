from __future__ import annotations

from pathlib import Path

import pytest

from sparrowmq.store.recovery.safe_point import FILE_NAME, SafePoint


def test_numbers_survive_writing_and_reading(tmp_path: Path) -> None:
    point = SafePoint(5, 100, {"T": {0: 3, 7: 9}}, {"Gone": 44})
    point.save(tmp_path)
    assert SafePoint.load(tmp_path) == point
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_missing_file_contains_nothing(tmp_path: Path) -> None:
    point = SafePoint.load(tmp_path)
    assert (point.record, point.queues, point.deleted) == (-1, {}, {})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"version":2,"record":1,"position":1,"queues":{},"deleted":{}}',
        '{"version":1,"record":1,"position":1,"queues":[],"deleted":{}}',
        '{"version":1,"record":1,"position":1,"queues":{"T":{"x":1}},"deleted":{}}',
        '{"version":1,"record":null,"position":1,"queues":{},"deleted":{}}',
        '{"version":1,"position":1,"queues":{},"deleted":{}}',
        b"\xff\xfe",
    ],
)
def test_unusable_file_is_ignored_with_a_warning(
    text: str | bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE_NAME).write_bytes(text if isinstance(text, bytes) else text.encode())
    assert SafePoint.load(tmp_path) == SafePoint()
    assert "recovery starts from the checkpoint" in caplog.text
