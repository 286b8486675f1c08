"""The queues of a batch: written down once, the same at every try, new ones from the next batch on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparrowmq.core.errors import NoRouteError, SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.queue_choice import FILES_KEPT, Folder, choose, current_batch

FOUR = [MessageQueue("t", "b", number) for number in range(4)]
EIGHT = [MessageQueue("t", "b", number) for number in range(8)]


def ask(root: Path, batch: int, queues: list[MessageQueue]) -> list[MessageQueue]:
    found = choose(Folder(str(root)), batch, "t", lambda: queues)
    assert (found.batch, found.topic) == (batch, "t")
    return list(found.queues)


def test_a_batch_keeps_its_queues_and_the_next_one_has_the_new_ones(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "choices"
    assert ask(root, 5, FOUR) == FOUR
    assert ask(root, 5, EIGHT) == FOUR
    assert ask(root, 5, FOUR) == FOUR
    assert ask(root, 6, EIGHT) == EIGHT
    assert ask(root, 5, EIGHT) == FOUR
    assert ask(root, 9, EIGHT) == EIGHT
    assert sorted(path.name for path in root.iterdir()) == ["5.json", "6.json"]


def test_without_a_name_server_the_known_queues_do(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def gone() -> list[MessageQueue]:
        raise NoRouteError("gone")

    with pytest.raises(NoRouteError):
        choose(Folder(str(tmp_path)), 0, "t", gone)
    ask(tmp_path, 0, FOUR)
    assert list(choose(Folder(str(tmp_path)), 1, "t", gone).queues) == FOUR
    assert "the known ones are used" in caplog.text


def test_old_choices_are_deleted(tmp_path: Path) -> None:
    for batch in range(30):
        ask(tmp_path, batch, FOUR if batch % 2 else EIGHT)
    assert len(list(tmp_path.iterdir())) <= FILES_KEPT + 2


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("{", "cannot be read as a choice of queues"),
        ('{"version":1}', "cannot be read as a choice of queues"),
        ('{"version":2,"topic":"t","queues":[["b",0]]}', "was written by another release"),
        ('{"version":1,"topic":"u","queues":[["b",0]]}', "belongs to topic 'u', this query writes to 't'"),
    ],
)
def test_a_choice_that_cannot_be_used_is_told(tmp_path: Path, data: str, text: str) -> None:
    (tmp_path / "3.json").write_text(data)
    with pytest.raises(SettingsError, match=text):
        ask(tmp_path, 3, FOUR)


def test_the_batch_is_the_newest_in_the_offsets(tmp_path: Path) -> None:
    assert current_batch(str(tmp_path)) is None
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    for name in ("9", "10", ".10.crc", "10.tmp"):
        (offsets / name).touch()
    assert current_batch(f"{tmp_path}/") == 10
    assert current_batch(tmp_path.as_uri()) == current_batch(f"file:{tmp_path}") == 10


def test_a_relative_path_is_one_of_the_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Folder("here").write(1, json.dumps({}).encode())
    assert (tmp_path / "here" / "1.json").exists()


def test_a_place_that_nobody_knows_is_told() -> None:
    with pytest.raises(SettingsError, match="is no directory that Arrow can reach"):
        Folder("nowhere:/x")
