"""The progress of the delay levels, on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.protocol.archives import CLEAN_4, CLEAN_5, unpacked
from tests.store.rig import ManualClock
from tests.support import about

from sparrowmq.core.errors import StoreCorruptError
from sparrowmq.store.tables.config_file import ConfigFile
from sparrowmq.store.tables.delay_offsets import VERSION_STEP, DelayOffsets


def load(path: Path) -> DelayOffsets:
    return DelayOffsets.load(ConfigFile(path), ManualClock())


@pytest.mark.parametrize(("name", "first"), [(CLEAN_5, 95), (CLEAN_4, 95)])
def test_references_file_is_read(name: str, first: int) -> None:
    offsets = load(unpacked(name) / "config" / "delayOffset.json")
    assert offsets.get(1) > 0
    if name == CLEAN_5:
        assert [offsets.get(level) for level in (1, 2, 3, 4, 5, 6)] == [first, 20, 20, 0, 2, 0]


def test_progress_is_read_back_and_only_written_when_changed(tmp_path: Path) -> None:
    path = tmp_path / "config" / "delayOffset.json"
    offsets = load(path)
    offsets.save()
    assert not path.exists()
    offsets.set(3, 7)
    offsets.set(18, 1)
    offsets.save()
    assert offsets.unsaved() is None
    offsets.set(3, 7)
    assert offsets.unsaved() is None
    again = load(path)
    assert (again.get(3), again.get(18), again.get(1)) == (7, 1, 0)


def test_changes_during_a_write_are_written_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "delayOffset.json"
    offsets = load(path)
    offsets.set(1, 1)
    unsaved = offsets.unsaved()
    assert unsaved is not None
    offsets.set(1, 2)
    offsets.write(unsaved)
    offsets.save()
    assert load(path).get(1) == 2


def test_version_grows_as_slowly_as_the_references(tmp_path: Path) -> None:
    offsets = load(tmp_path / "delayOffset.json")
    for offset in range(1, VERSION_STEP + 1):
        unsaved = offsets.unsaved()
        assert unsaved is None or unsaved.content["dataVersion"]["counter"] == 0
        offsets.set(1, offset)
    unsaved = offsets.unsaved()
    assert unsaved is not None and unsaved.content["dataVersion"]["counter"] == 1


@pytest.mark.parametrize(
    "text", ['{"offsetTable":[1]}', '{"offsetTable":{"x":1}}', '{"dataVersion":{"counter":"x"}}']
)
def test_invalid_table_file_prevents_the_start(tmp_path: Path, text: str) -> None:
    path = tmp_path / "delayOffset.json"
    path.write_text(text)
    with pytest.raises(StoreCorruptError, check=about(what="delay levels")):
        load(path)
