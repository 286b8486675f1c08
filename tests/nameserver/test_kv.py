"""The key-value tables and their file."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.support import about, run

from sparrowmq.core.errors import NoRoomError, StoreCorruptError, StoreError
from sparrowmq.nameserver import kv
from sparrowmq.nameserver.kv import KeyValues


def loaded(path: Path) -> KeyValues:
    values = KeyValues(path)
    values.load()
    return values


def test_values_are_found_by_namespace_and_key() -> None:
    async def main() -> None:
        values = KeyValues(None)
        values.load()
        await values.put("A", "k", "1")
        await values.put("A", "l", "2")
        await values.put("B", "k", "3")
        assert (values.get("A", "k"), values.get("B", "k"), values.get("B", "l")) == ("1", "3", None)
        assert values.namespace("A") == {"k": "1", "l": "2"}
        await values.delete("A", "k")
        await values.delete("A", "k")
        await values.delete("nowhere", "k")
        assert values.namespace("A") == {"l": "2"}
        await values.delete("B", "k")
        assert values.namespace("B") == {}
        assert "1 name spaces" in repr(values)

    run(main())


def test_file_has_rocketmqs_format_and_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "namesrv" / "kvConfig.json"

    async def main() -> None:
        values = loaded(path)
        await values.put("ORDER_TOPIC_CONFIG", "Fifo", "broker-a:2")
        await asyncio.gather(*(values.put("N", f"k{n}", str(n)) for n in range(20)))

    run(main())
    assert json.loads(path.read_text())["configTable"]["ORDER_TOPIC_CONFIG"] == {"Fifo": "broker-a:2"}
    assert loaded(path).namespace("N") == {f"k{n}": str(n) for n in range(20)}
    assert sorted(p.name for p in path.parent.iterdir()) == ["kvConfig.json", "kvConfig.json.bak"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"configTable":{"N":5}}', '{"configTable":{"N":{}}'])
def test_damaged_file_is_replaced_by_the_previous_one(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "kvConfig.json"

    async def main() -> None:
        values = loaded(path)
        await values.put("N", "k", "before")
        await values.put("N", "k", "after")

    run(main())
    path.write_text(text)
    assert loaded(path).get("N", "k") == "before"
    assert "kvConfig.json.bak, because" in caplog.text
    path.unlink()
    assert loaded(path).get("N", "k") == "before"


def test_start_fails_and_names_both_files_if_both_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text("{")
    path.with_name("kvConfig.json.bak").write_text("[]")
    with pytest.raises(StoreCorruptError, match=r"kvConfig\.json: .*kvConfig\.json\.bak: .*move it away"):
        loaded(path)


def test_failed_write_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file" / "kvConfig.json"

    async def main() -> None:
        values = loaded(path)
        await values.put("N", "k", "1")
        path.unlink()
        path.with_name("kvConfig.json.bak").unlink(missing_ok=True)
        path.parent.rmdir()
        path.parent.write_text("in the way")
        with pytest.raises(StoreError, match="nothing was changed"):
            await values.put("N", "k", "2")
        with pytest.raises(StoreError, match="nothing was changed"):
            await values.delete("N", "k")
        assert values.get("N", "k") == "1"

    run(main())


def test_number_of_keys_and_total_length_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv, "KEYS_MAX", 3)
    monkeypatch.setattr(kv, "CHARS_MAX", 100)

    async def main() -> None:
        values = KeyValues(None)
        for key in "abc":
            await values.put("N", key, "1")
        with pytest.raises(NoRoomError, check=about(limit=3)):
            await values.put("M", "d", "1")
        await values.put("N", "a", "2")
        with pytest.raises(NoRoomError, check=about(limit=100)):
            await values.put("N", "a", "x" * 100)
        assert values.namespace("N") == {"a": "2", "b": "1", "c": "1"}

    run(main())
