from __future__ import annotations

from sparrowmq.console.pages.picture import QUEUES_MAX, QueueLine, picture, short


def test_each_assigned_queue_has_a_line() -> None:
    drawn = picture(
        [QueueLine("T/a/0", "one"), QueueLine("T/a/1", "two"), QueueLine("T/a/2", "")], ["one", "two", "idle"]
    )
    assert [box.name for box in drawn.queues] == ["T/a/0", "T/a/1", "T/a/2"]
    assert [box.name for box in drawn.members] == ["idle", "one", "two"]
    assert len(drawn.paths) == 2 and [box.name for box in drawn.free] == ["T/a/2"]
    assert all(0 < box.y < drawn.height for box in (*drawn.queues, *drawn.members))
    assert len({box.y for box in drawn.members}) == 3


def test_picture_is_omitted_for_very_many_queues() -> None:
    drawn = picture([QueueLine(f"T/a/{number:05}", f"m{number}") for number in range(5000)], [])
    assert (len(drawn.queues), drawn.left_out) == (QUEUES_MAX, 5000 - QUEUES_MAX)


def test_members_with_queues_come_first() -> None:
    drawn = picture([QueueLine("T/b/0", "z-last")], [f"idle-{number:04}" for number in range(5000)])
    assert len(drawn.members) == QUEUES_MAX and len(drawn.paths) == 1
    assert drawn.members[-1].name == "z-last"


def test_empty_picture_and_long_names_are_drawn() -> None:
    assert picture([], []).queues == []
    assert short("x" * 100).startswith("…") and len(short("x" * 100)) == 44


def test_line_says_which_member_has_which_queue_and_why() -> None:
    (line,) = picture([QueueLine("T/a/0", "one", "generation 3")], []).paths
    assert line.title == "T/a/0 – one – generation 3" and line.path.startswith("M ")
    (line,) = picture([QueueLine("T/a/0", "one")], []).paths
    assert line.title == "T/a/0 – one"
