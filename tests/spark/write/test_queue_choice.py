"""The queues of a batch: written down once, the same at every try, new ones from the next batch on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support import about

from sparrowmq.core.errors import NoRouteError, SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.write.queue_choice import (
    FILES_KEPT,
    ArrowFolder,
    QueueChoice,
    choose,
    current_batch,
    note_lost,
    stand_in,
)

FOUR = [MessageQueue("t", "b", number) for number in range(4)]
EIGHT = [MessageQueue("t", "b", number) for number in range(8)]


def ask(root: Path, batch: int, queues: list[MessageQueue]) -> list[MessageQueue]:
    found = choose(ArrowFolder(str(root)), batch, "t", lambda: queues)
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
        choose(ArrowFolder(str(tmp_path)), 0, "t", gone)
    ask(tmp_path, 0, FOUR)
    assert list(choose(ArrowFolder(str(tmp_path)), 1, "t", gone).queues) == FOUR
    assert "the known ones are used" in caplog.text


def test_old_choices_are_deleted(tmp_path: Path) -> None:
    for batch in range(30):
        ask(tmp_path, batch, FOUR if batch % 2 else EIGHT)
    assert len(list(tmp_path.iterdir())) <= FILES_KEPT + 2


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        ("{", {"what": "queues"}),
        ('{"version":1}', {"what": "queues"}),
        ('{"version":2,"topic":"t","queues":[["b",0]]}', {"what": "version", "value": 2, "limit": 1}),
        ('{"version":1,"topic":"u","queues":[["b",0]]}', {"what": "topic", "value": "u", "limit": "t"}),
    ],
)
def test_a_choice_that_cannot_be_used_is_told(tmp_path: Path, data: str, facts: dict[str, object]) -> None:
    (tmp_path / "3.json").write_text(data)
    with pytest.raises(SettingsError, check=about(**facts)):
        ask(tmp_path, 3, FOUR)


def test_the_batch_is_the_newest_in_the_offsets(tmp_path: Path) -> None:
    assert current_batch(str(tmp_path), {}) is None
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    for name in ("9", "10", ".10.crc", "10.tmp"):
        (offsets / name).touch()
    assert current_batch(f"{tmp_path}/", {}) == 10
    assert current_batch(tmp_path.as_uri(), {}) == current_batch(f"file:{tmp_path}", {}) == 10


def test_a_relative_path_is_one_of_the_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ArrowFolder("here").write(1, json.dumps({}).encode())
    assert (tmp_path / "here" / "1.json").exists()


def test_an_unknown_location_is_reported() -> None:
    with pytest.raises(SettingsError, check=about(what="location", value="nowhere:/x")):
        ArrowFolder("nowhere:/x")


MIXED = [MessageQueue("t", broker, number) for broker in ("a", "b") for number in (0, 1)]


def lose(root: Path, batch: int, queues: list[MessageQueue], *lost: str) -> QueueChoice:
    return choose(ArrowFolder(str(root)), batch, "t", lambda: queues, frozenset(lost))


def test_a_lost_brokers_rows_have_the_same_place_elsewhere_at_every_try(tmp_path: Path) -> None:
    ask(tmp_path, 3, MIXED)
    for queues in (MIXED, MIXED[:2], MIXED):
        found = lose(tmp_path, 3, queues, "b", "stranger")
        assert (list(found.queues), found.lost) == (MIXED, {"b"})
        assert [stand_in(queue, found.queues, found.lost) for queue in MIXED[2:]] == MIXED[:2]
    assert ask(tmp_path, 4, MIXED[:2]) == MIXED[:2], "later batches do without it, also without the option"


def test_queues_that_left_the_topic_have_others_in_their_place(tmp_path: Path) -> None:
    """Whether they have rows of the batch is asked by its tasks; they get no more."""
    ask(tmp_path, 3, MIXED)
    few = [queue for queue in MIXED if queue.queue_id == 0]
    for now in (few, few, MIXED):  # what was sent elsewhere once is sent there at every try
        found = lose(tmp_path, 3, now)
        assert (list(found.queues), found.left) == (MIXED, {MIXED[1], MIXED[3]})
        places = [stand_in(queue, found.queues, found.lost, found.left) for queue in sorted(found.left)]
        assert places == [MIXED[0], MIXED[2]], "the first queue of the same broker leaves last"
    assert ask(tmp_path, 4, few) == few
    lost = choose(ArrowFolder(str(tmp_path)), 3, "t", lambda: few, frozenset({"b"}))
    assert (lost.lost, lost.left) == ({"b"}, found.left)


def test_a_broker_without_any_queue_may_be_away(tmp_path: Path) -> None:
    ask(tmp_path, 3, MIXED)
    found = choose(ArrowFolder(str(tmp_path)), 3, "t", lambda: MIXED[:2])
    assert (list(found.queues), found.left) == (MIXED, frozenset())


def test_a_batch_of_which_no_queue_is_left_goes_wherever_there_are_queues(tmp_path: Path) -> None:
    ask(tmp_path, 3, MIXED[:2])
    found = lose(tmp_path, 3, MIXED, "a")
    assert (list(found.queues), found.lost) == (MIXED[2:], frozenset())
    assert ask(tmp_path, 3, MIXED) == MIXED[2:]


def test_a_loss_that_is_noted_holds_for_the_batch_without_an_option(tmp_path: Path) -> None:
    folder = ArrowFolder(str(tmp_path))
    with pytest.raises(SettingsError, check=about(what="queues", value=str(tmp_path))):
        note_lost(folder, "b")
    ask(tmp_path, 3, MIXED)
    ask(tmp_path, 4, MIXED[:2])  # the name server forgot it: the next batch's list is written
    with pytest.raises(SettingsError, check=about(what="broker", value="c")):
        note_lost(folder, "c")
    assert note_lost(folder, "b") == QueueChoice(3, "t", tuple(MIXED), lost=frozenset({"b"}))
    found = lose(tmp_path, 3, MIXED)
    assert found.lost == {"b"} and stand_in(MIXED[3], found.queues, found.lost) == MIXED[1]
    assert lose(tmp_path, 5, MIXED).lost == frozenset()
