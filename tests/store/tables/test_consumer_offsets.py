from __future__ import annotations

from pathlib import Path

import pytest
from tests.protocol.archives import CLEAN_5, unpacked
from tests.store.rig import ManualClock, fill, opened
from tests.support import about

from sparrowmq.core.errors import StoreCorruptError, StoreError
from sparrowmq.protocol import java_json
from sparrowmq.store.tables.config_file import ConfigFile
from sparrowmq.store.tables.consumer_offsets import VERSION_STEP, ConsumerOffsets


def file_in(tmp_path: Path) -> ConfigFile:
    return ConfigFile(tmp_path / "consumerOffset.json")


def test_offsets_survive_saving_and_loading(tmp_path: Path) -> None:
    offsets = ConsumerOffsets.load(file_in(tmp_path))
    assert offsets.query("T", "g", 0) is None
    offsets.commit("T", "g", 0, 12)
    offsets.commit("T", "g", 1, 7)
    offsets.commit("T", "g", 0, 5)  # smaller ones are taken too
    offsets.save()
    again = ConsumerOffsets.load(file_in(tmp_path))
    assert (again.query("T", "g", 0), again.query("T", "g", 1), again.query("T", "g", 2)) == (5, 7, None)
    assert "\t\t\t0:5" in (tmp_path / "consumerOffset.json").read_text()


def test_file_is_not_written_without_a_change(tmp_path: Path) -> None:
    offsets = ConsumerOffsets.load(file_in(tmp_path))
    offsets.save()
    assert list(tmp_path.iterdir()) == []


def test_groups_of_a_topic_are_listed(tmp_path: Path) -> None:
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
def test_file_of_another_kind_is_refused(content: dict[str, object], tmp_path: Path) -> None:
    file_in(tmp_path).save(content)
    with pytest.raises(StoreCorruptError, check=about(what="consumer offsets")):
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
        "group beyond had consumed T/0 up to 4, but the queue ends at 3: the offset is lowered to it",
        "group g had consumed Unknown/0 up to 9, but the queue ends at 0: the offset is lowered to it",
    ]
    assert offsets.query("T", "beyond", 0) == 3
    assert offsets.query("T", "fine", 0) == 3
    assert offsets.query("Unknown", "g", 0) == 0


def test_snapshot_is_written_unchanged(tmp_path: Path) -> None:
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


def test_failed_save_is_repeated(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "blocked" / "consumerOffset.json")
    offsets = ConsumerOffsets.load(file)
    offsets.commit("T", "g", 0, 1)
    (tmp_path / "blocked").write_bytes(b"a file where the directory should be")
    with pytest.raises(StoreError, check=about(what="write", value=file.path)):
        offsets.save()
    (tmp_path / "blocked").unlink()
    offsets.save()
    assert ConsumerOffsets.load(file).query("T", "g", 0) == 1


def test_changes_during_a_write_are_written_next(tmp_path: Path) -> None:
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


def test_snapshot_is_unchanged_and_shares_unchanged_parts(tmp_path: Path) -> None:
    """Taking it must not copy the queues' offsets: for a large table this would block other requests."""
    offsets = ConsumerOffsets(file_in(tmp_path))
    for topic in ("A", "B", "C"):
        for queue_id in range(3):
            offsets.commit(topic, "g", queue_id, 1)
    first = offsets.unsaved()
    second = offsets.unsaved()
    assert first is not None and second is not None
    assert all(first.table[key] is second.table[key] for key in first.table)
    offsets.commit("A", "g", 0, 2)
    offsets.commit("A", "g", 1, 2)
    offsets.forget_queue("B", 1)
    offsets.forget_topic("C")
    offsets.clone("A", "g", "h")
    offsets.commit("A", "h", 2, 9)
    assert first.content()["offsetTable"] == {f"{topic}@g": {0: 1, 1: 1, 2: 1} for topic in "ABC"}
    now = offsets.snapshot()
    assert now.content()["offsetTable"] == {
        "A@g": {0: 2, 1: 2, 2: 1},
        "A@h": {0: 2, 1: 2, 2: 9},
        "B@g": {0: 1, 2: 1},
    }
    offsets.write(first)
    assert offsets.unsaved() is not None
    offsets.save()
    assert ConsumerOffsets.load(file_in(tmp_path)).query("A", "h", 2) == 9


def test_table_read_in_steps_equals_the_file(tmp_path: Path) -> None:
    file_in(tmp_path).save({"offsetTable": {"T@g": {0: 1}}, "pullOffsetTable": {"T@g": {1: 3}}, "x": [None]})
    offsets = ConsumerOffsets.load(file_in(tmp_path))
    offsets.commit('quoted"', "g@x", 7, 2**62)
    snapshot = offsets.snapshot()
    work = snapshot.encoding()
    count = 0
    try:
        while True:
            next(work)
            count += 1
    except StopIteration as end:
        text: bytes = end.value
    assert count == 2
    assert b'"T@g":{0:1}' in text
    told = java_json.loads(text)
    assert told == java_json.loads(java_json.dumps(snapshot.content()))
    assert told["offsetTable"]['quoted"@g@x'] == {"7": 2**62}
