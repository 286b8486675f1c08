"""Saves of a table: shared, in the background, in order."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support import run, until

from sparrowmq.broker.tables import table_file as module
from sparrowmq.broker.tables.table_file import TableFile
from sparrowmq.core.errors import StoreFullError
from sparrowmq.store.tables.config_file import ConfigFile


class Disk(ConfigFile):
    """Counts saves; each waits while `hold` is cleared, and fails if the test wants it to."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.saves = 0
        self.full = False
        self.hold = threading.Event()
        self.hold.set()

    def save(self, value: dict[str, Any]) -> None:
        self.saves += 1
        assert self.hold.wait(10)
        if self.full:
            raise StoreFullError("the disk is full")
        super().save(value)


class Table:
    """Numbers in a file."""

    def __init__(self, path: Path, pool: ThreadPoolExecutor) -> None:
        self.numbers: tuple[int, ...] = ()
        self.disk = Disk(path / "numbers.json")
        self.settled: list[tuple[int, ...]] = []
        self.file: TableFile[tuple[int, ...]] = TableFile(
            self.disk,
            lambda: self.numbers,
            lambda numbers: {"numbers": [*numbers]},
            pool=pool,
            settled=lambda: self.settled.append(self.file.on_disk),
        )

    def add(self, number: int) -> None:
        self.numbers += (number,)
        self.file.changed()

    def stored(self) -> list[int]:
        numbers: list[int] = json.loads(self.disk.path.read_text())["numbers"]
        return numbers


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    pool = ThreadPoolExecutor(2)
    yield Table(tmp_path, pool)
    pool.shutdown()


def test_many_changes_take_one_save_and_those_during_it_another(table: Table) -> None:
    async def one(number: int) -> None:
        table.add(number)
        await table.file.saved()
        assert number in table.stored()

    async def main() -> None:
        table.disk.hold.clear()
        first = [asyncio.create_task(one(number)) for number in range(100)]
        await until(lambda: table.disk.saves == 1)
        second = [asyncio.create_task(one(number)) for number in range(100, 200)]
        await asyncio.sleep(0)
        table.disk.hold.set()
        await asyncio.gather(*first, *second)
        assert table.disk.saves == 2
        await table.file.saved()
        assert table.disk.saves == 2 and table.file.is_saved

    run(main())
    assert [len(numbers) for numbers in table.settled] == [100, 200]


def test_failed_save_is_reported_to_its_callers(table: Table) -> None:
    async def main() -> None:
        table.disk.full = True
        table.add(1)
        with pytest.raises(StoreFullError):
            await table.file.saved()
        assert not table.file.is_saved and table.file.on_disk == ()
        table.disk.full = False
        await table.file.saved()
        assert table.stored() == [1] and table.file.on_disk == (1,)

    run(main())


def test_older_save_never_replaces_a_newer_one(table: Table) -> None:
    """A save in a worker thread is overtaken by one that does not wait for the loop."""

    async def main() -> None:
        table.add(1)
        older = asyncio.create_task(table.file.saved())
        content = table.file._content
        reached, go = threading.Event(), threading.Event()

        def slow(numbers: tuple[int, ...]) -> dict[str, Any]:
            if numbers == (1,):
                reached.set()
                assert go.wait(10)
            return content(numbers)

        table.file._content = slow
        await until(reached.is_set)
        table.add(2)
        table.file.save()
        go.set()
        await older
        assert table.stored() == [1, 2] and table.file.on_disk == (1, 2)
        assert table.disk.saves == 1

    run(main())


def test_change_is_saved_before_it_applies(table: Table) -> None:
    table.file.save((7,))
    assert table.stored() == [7] and table.numbers == () and table.file.on_disk == (7,)
    table.disk.full = True
    with pytest.raises(StoreFullError):
        table.file.save((8,))
    assert table.file.is_saved and table.file.on_disk == (7,)


def test_unawaited_changes_are_saved_soon_and_retried_after_a_failure(
    table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "SOON_SECONDS", 0.001)
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.001)

    async def main() -> None:
        background = asyncio.create_task(table.file.run())
        table.disk.full = True
        for number in range(50):
            table.add(number)
        await until(lambda: table.disk.saves >= 3)
        table.disk.full = False
        await until(lambda: table.file.is_saved)
        saves = table.disk.saves
        table.add(50)
        await until(lambda: table.file.is_saved)
        assert table.disk.saves == saves + 1
        background.cancel()
        await asyncio.gather(background, return_exceptions=True)

    run(main())
    assert table.stored() == [*range(51)]
    (complaint,) = caplog.messages
    assert complaint == "numbers.json cannot be saved; retrying: the disk is full"
