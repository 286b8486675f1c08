"""Tables of epochs: RocketMQ's file, and where two logs diverge."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

from sparrowmq.core.errors import InvariantError, StoreCorruptError
from sparrowmq.store.tables.epochs import NOTHING_COMMON, EpochFile, EpochTable


def table(*starts: tuple[int, int]) -> EpochTable:
    return EpochTable(starts)


def test_file_has_rocketmqs_format(tmp_path: Path) -> None:
    """The example in RocketMQ's `CheckpointFile`: number of lines, checksum, lines."""
    file = EpochFile(tmp_path)
    assert file.load() == table()
    file.save(table())
    assert not file.path.exists()
    file.save(table((7, 7000), (8, 8000)))
    lines = b"7-7000\n8-8000\n"
    assert file.path.read_bytes() == b"2\n%d\n%b" % (crc32(lines) & 0x7FFFFFFF, lines)
    assert file.path.read_bytes().startswith(b"2\n773307083\n")
    assert file.load() == table((7, 7000), (8, 8000))
    file.path.write_bytes(b"1\n0\n9-9000\n")
    assert file.load() == table((9, 9000))


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"x",
        b"2\n0\n7-7000\n",
        b"1\n5\n7-7000\n",
        b"1\n0\n7\n",
        b"2\n0\n8-8000\n7-9000\n",
        b"2\n0\n7-8000\n8-8000\n",
        b"1\n0\n-1-5\n",
        b"1\n0\n99999999999-5\n",
        b"\xff\xfe",
    ],
)
def test_damaged_file_is_replaced_by_its_backup_or_refused(tmp_path: Path, damage: bytes) -> None:
    file = EpochFile(tmp_path)
    file.save(table((1, 10)))
    file.path.write_bytes(damage)
    with pytest.raises(StoreCorruptError):
        file.load()
    file.path.unlink()
    file.save(table((1, 10)))
    file.save(table((1, 10), (2, 20)))
    file.path.write_bytes(damage)
    assert file.load() == table((1, 10))


def test_epoch_begins_at_the_end_of_the_log() -> None:
    first = table().begun(1, 100)
    assert first.starts == ((1, 100),) and first.last == 1
    assert first.begun(4, 100).starts == ((4, 100),)  # nothing was written in epoch 1
    assert first.begun(2, 250).starts == ((1, 100), (2, 250))
    with pytest.raises(InvariantError):
        first.begun(1, 200)
    assert [tuple(span) for span in first.spans(300)] == [(0, 0, 100), (1, 100, 300)]
    assert [tuple(span) for span in first.spans(100)] == [(0, 0, 100)]
    assert (first.log_epoch(100), first.log_epoch(101), table().log_epoch(5)) == (0, 1, 0)


def test_table_is_truncated() -> None:
    made = table((1, 0), (2, 100), (5, 300))
    assert made.cut(300).starts == ((1, 0), (2, 100))
    assert made.cut(301) == made
    assert made.cut(0).starts == ()


@pytest.mark.parametrize(
    ("own", "end", "other", "other_end", "common"),
    [
        ((), 500, (), 700, 500),
        ((), 700, ((1, 500),), 600, 500),
        ((), 400, ((1, 500),), 600, 400),
        (((1, 0),), 900, ((1, 0), (2, 600)), 800, 600),
        (((1, 0), (2, 600)), 900, ((1, 0), (3, 600)), 900, 600),
        (((1, 0), (2, 600)), 900, ((1, 0), (3, 700)), 900, 600),
        (((1, 0), (3, 700)), 900, ((1, 0), (2, 600)), 900, 600),
        (((1, 0), (2, 600), (3, 800)), 900, ((1, 0), (2, 600), (4, 700)), 900, 700),
        (((3, 0),), 900, ((4, 0),), 900, NOTHING_COMMON),
        (((2, 100),), 900, ((2, 200),), 900, 100),
        ((), 0, ((4, 0),), 900, 0),
        (((4, 0),), 900, (), 0, 0),
    ],
)
def test_end_of_the_common_part_of_two_logs_is_found(
    own: tuple[tuple[int, int], ...],
    end: int,
    other: tuple[tuple[int, int], ...],
    other_end: int,
    common: int,
) -> None:
    assert table(*own).common_end(end, table(*other), other_end) == common
    assert table(*other).common_end(other_end, table(*own), end) == common
