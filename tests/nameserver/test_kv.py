"""The key-value tables and their file."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.support import run

from sparrowmq.core.errors import StoreCorruptError, StoreError
from sparrowmq.nameserver.kv import KeyValues


def loaded(path: Path) -> KeyValues:
    values = KeyValues(path)
    values.load()
    return values


def test_values_are_found_by_name_space_and_key() -> None:
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


def test_the_file_has_the_references_form_and_is_read_again(tmp_path: Path) -> None:
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
def test_a_damaged_file_is_replaced_by_the_one_before(
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


def test_two_damaged_files_stop_the_start_and_are_named(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text("{")
    path.with_name("kvConfig.json.bak").write_text("[]")
    with pytest.raises(StoreCorruptError, match=r"kvConfig\.json: .*kvConfig\.json\.bak: .*move it away"):
        loaded(path)


def test_a_file_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
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
