from __future__ import annotations

from pathlib import Path

import pytest
from tests.protocol.archives import CLEAN_5, unpacked
from tests.store.rig import ManualClock, fill, opened

from sparrowmq.core.errors import StoreCorruptError, StoreError
from sparrowmq.protocol import java_json
from sparrowmq.store.config_file import ConfigFile
from sparrowmq.store.offsets import VERSION_STEP, ConsumerOffsets


def file_in(tmp_path: Path) -> ConfigFile:
    return ConfigFile(tmp_path / "consumerOffset.json")


def test_offsets_come_back(tmp_path: Path) -> None:
    offsets = ConsumerOffsets.load(file_in(tmp_path))
    assert offsets.query("T", "g", 0) is None
    offsets.commit("T", "g", 0, 12)
    offsets.commit("T", "g", 1, 7)
    offsets.commit("T", "g", 0, 5)  # smaller ones are taken too
    offsets.save()
    again = ConsumerOffsets.load(file_in(tmp_path))
    assert (again.query("T", "g", 0), again.query("T", "g", 1), again.query("T", "g", 2)) == (5, 7, None)
    assert "\t\t\t0:5" in (tmp_path / "consumerOffset.json").read_text()


def test_nothing_is_written_without_a_change(tmp_path: Path) -> None:
    offsets = ConsumerOffsets.load(file_in(tmp_path))
    offsets.save()
    assert list(tmp_path.iterdir()) == []


def test_who_consumes_what(tmp_path: Path) -> None:
    offsets = ConsumerOffsets.load(file_in(tmp_path))
    for topic, group in (("B", "g"), ("A", "g"), ("A", "h")):
        offsets.commit(topic, group, 0, 1)
    assert offsets.topics_of("g") == ["A", "B"]
    assert offsets.groups_of("A") == ["g", "h"]
    offsets.forget_topic("A")
    assert offsets.topics_of("g") == ["B"]
    offsets.forget_group("g")
    assert list(offsets.items()) == []


def test_names_with_an_at_sign_belong_to_the_group(tmp_path: Path) -> None:
    file_in(tmp_path).save({"offsetTable": {"T@g@x": {0: 1}}})
    assert ConsumerOffsets.load(file_in(tmp_path)).query("T", "g@x", 0) == 1


def test_version_counts_every_few_commits(tmp_path: Path) -> None:
    clock = ManualClock()
    offsets = ConsumerOffsets.load(file_in(tmp_path), clock)
    for offset in range(2 * VERSION_STEP):
        offsets.commit("T", "g", 0, offset)
    offsets.save()
    version = file_in(tmp_path).load()["dataVersion"]
    assert version == {"counter": 2, "stateVersion": 0, "timestamp": clock.ms}


def test_members_of_newer_brokers_are_kept(tmp_path: Path) -> None:
    source = unpacked(CLEAN_5) / "config" / "consumerOffset.json"
    before = java_json.loads(source.read_bytes())
    (tmp_path / "consumerOffset.json").write_bytes(source.read_bytes())
    offsets = ConsumerOffsets.load(file_in(tmp_path))
    offsets.commit("T", "g", 0, 1)
    offsets.save()
    after = file_in(tmp_path).load()
    assert after["pullOffsetTable"] == before["pullOffsetTable"]
    assert after["dataVersion"] == before["dataVersion"]
    assert after["offsetTable"] == before["offsetTable"] | {"T@g": {"0": 1}}


@pytest.mark.parametrize(
    "content",
    [
        {"offsetTable": []},
        {"offsetTable": {"T@g": {"x": 1}}},
        {"offsetTable": {"T@g": 5}},
        {"dataVersion": 3},
    ],
)
def test_another_kind_of_file_is_refused(content: dict[str, object], tmp_path: Path) -> None:
    file_in(tmp_path).save(content)
    with pytest.raises(StoreCorruptError, match="not a table of consumer offsets"):
        ConsumerOffsets.load(file_in(tmp_path))


def test_offsets_beyond_the_end_of_a_queue_are_lowered(tmp_path: Path) -> None:
    offsets = ConsumerOffsets.load(file_in(tmp_path))
    with opened(tmp_path / "store") as store:
        fill(store, store.queue("T", 0), 3)
        offsets.commit("T", "fine", 0, 3)
        offsets.commit("T", "beyond", 0, 4)
        offsets.commit("Unknown", "g", 0, 9)
        warnings = offsets.clamp(store)
        assert offsets.clamp(store) == []
    assert warnings == [
        "group beyond had consumed T/0 up to 4, but the queue ends at 3: the offset is lowered to it"
    ]
    assert offsets.query("T", "beyond", 0) == 3
    assert offsets.query("T", "fine", 0) == 3
    assert offsets.query("Unknown", "g", 0) == 9


def test_what_is_written_is_what_was_there_when_it_was_taken(tmp_path: Path) -> None:
    offsets = ConsumerOffsets.load(file_in(tmp_path))
    offsets.commit("T", "g", 0, 1)
    taken = offsets.unsaved()
    assert taken is not None
    offsets.commit("T", "g", 0, 2)
    offsets.write(taken)
    assert ConsumerOffsets.load(file_in(tmp_path)).query("T", "g", 0) == 1
    later = offsets.unsaved()
    assert later is not None
    offsets.write(later)
    assert offsets.unsaved() is None
    assert ConsumerOffsets.load(file_in(tmp_path)).query("T", "g", 0) == 2


def test_failed_save_is_tried_again(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "blocked" / "consumerOffset.json")
    offsets = ConsumerOffsets.load(file)
    offsets.commit("T", "g", 0, 1)
    (tmp_path / "blocked").write_bytes(b"a file where the directory should be")
    with pytest.raises(StoreError, match="cannot write"):
        offsets.save()
    (tmp_path / "blocked").unlink()
    offsets.save()
    assert ConsumerOffsets.load(file).query("T", "g", 0) == 1


def test_what_changes_while_it_is_written_is_written_next(tmp_path: Path) -> None:
    offsets = ConsumerOffsets.load(file_in(tmp_path))
    offsets.commit("T", "g", 0, 1)
    first = offsets.unsaved()
    assert first is not None
    offsets.commit("T", "g", 0, 2)
    offsets.commit("T", "h", 0, 3)
    offsets.write(first)
    assert list(ConsumerOffsets.load(file_in(tmp_path)).items()) == [("T", "g", 0, 1)]
    offsets.save()
    assert list(ConsumerOffsets.load(file_in(tmp_path)).items()) == [("T", "g", 0, 2), ("T", "h", 0, 3)]
    assert offsets.unsaved() is None
