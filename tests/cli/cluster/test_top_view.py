"""The tables of `sparrow top` on screens of any size."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from sparrowmq.aio import GroupMemberInfo
from sparrowmq.cli.cluster.cluster_rows import (
    ClusterRows,
    TopBroker,
    TopGroup,
    TopInside,
    TopPlace,
    TopQueue,
    TopTopic,
)
from sparrowmq.cli.cluster.top_screen import keys_in
from sparrowmq.cli.cluster.top_view import (
    DOWN,
    ESCAPE,
    KEYS,
    OPEN_KEYS,
    UP,
    TopChoice,
    open_view,
    places,
    shares,
    view,
)

ROWS = ClusterRows(
    [
        TopBroker("broker-a", 0, "10.0.0.1:10911", 1234.5, 99.0, 41, None, 2, 70.25, None),
        TopBroker("broker-a", 1, "10.0.0.2:10911", 0.0, 0.0, 41, 600, 0, None, None),
        TopBroker("broker-b", 0, "10.0.0.3:10911", None, None, None, None, None, None, "it is gone"),
    ],
    [TopTopic("slow", 1.0, 0), TopTopic("unknown", None, 1), TopTopic("busy", 1500.0, 2)],
    [
        TopGroup("behind", 1_234_567, 3725.0, 10.0, 0),
        TopGroup("new", None, None, None, 4),
        TopGroup("quick", 0, 0.0, 500.0, 0),
    ],
    {"broker-b": "it is gone"},
)


def shown(rows: ClusterRows = ROWS, width: int | None = None, height: int | None = None, **more: str) -> str:
    choice = TopChoice(**more)
    console = Console(file=io.StringIO(), width=width or 1000, color_system=None)
    with console.capture() as capture:
        console.print(view(rows, choice, width=width, height=height))
    return capture.get()


def lines_of(text: str, first: str) -> list[str]:
    """The words of the line that begins with a name."""
    return next(line.split() for line in text.splitlines() if line.startswith(first))


def test_all_figures_on_a_wide_screen() -> None:
    text = shown()
    assert lines_of(text, "broker-a") == "broker-a 0 10.0.0.1:10911 1,234.5 99.0 41 % 2 70.2 ms".split()
    assert "600 B" in text
    assert lines_of(text, "broker-b  ")[3:] == ["-"] * 5, "unknown is not zero"
    assert lines_of(text, "behind") == "behind 1,234,567 1 h 2 min 10.0".split()
    assert lines_of(text, "new") == "new - - - 4".split()
    assert lines_of(text, "quick") == "quick 0 0 s 500.0".split()
    assert "broker-b: it is gone; topics and groups do not include it" in text


def test_topics_by_rate_and_groups_as_chosen() -> None:
    def order(of: str) -> list[str]:
        names = [line.split()[0] for line in shown(order=of).splitlines() if line.strip()]
        return [name for name in names if name in ("behind", "new", "quick")]

    words = [line.split()[0] for line in shown().splitlines() if line.strip()]
    assert [word for word in words if word in ("busy", "slow", "unknown")] == ["busy", "slow", "unknown"]
    assert order("l") == ["behind", "new", "quick"]
    assert order("r") == ["quick", "behind", "new"]
    assert order("n") == ["behind", "new", "quick"]


@pytest.mark.parametrize("width", range(1, 130))
def test_no_line_is_longer_than_the_screen_or_broken(width: int) -> None:
    text = shown(width=width, height=40)
    assert all(len(line) <= width for line in text.splitlines())
    assert len(text.splitlines()) == 3 + 3 + 3 + 3 + 2 + 1 + 1, "headings, rows, gaps, the failure, the keys"


def test_narrow_screens_keep_what_matters_most() -> None:
    assert "address" in shown(width=90)
    text = shown(width=30)
    assert "1,234.5" in text and "1,234,567" in text
    assert "10.0.0.1" not in text and "longest" not in text
    assert lines_of(text, "behind")[:2] == ["behind", "1,234,567"]
    long = ClusterRows([], [], [TopGroup("a" * 100, 12, 1.0, None, 0)])
    assert "…" in shown(long, width=40) and "12" in shown(long, width=40)


@pytest.mark.parametrize("height", range(1, 60))
def test_rows_that_do_not_fit_are_counted(height: int) -> None:
    many = ClusterRows(
        list(ROWS.brokers) * 10,
        [TopTopic(f"t{at}", 1.0, 0) for at in range(100)],
        [TopGroup(f"g{at}", 1, 1.0, 1.0, 0) for at in range(5)],
    )
    lines = shown(many, 100, height).splitlines()
    assert len(lines) <= max(height, 9), "one row of each at least"
    left_out = 135 - sum(line.startswith(("broker-", "t", "g")) for line in lines) + 2
    assert f"({left_out} more rows do not fit)" in lines[-1]


def test_small_tables_leave_their_room_to_others() -> None:
    assert shares(30, [2, 100, 5]) == [2, 23, 5]
    assert shares(30, [100, 100, 100]) == [10, 10, 10]
    assert shares(-5, [3, 0, 9]) == [1, 0, 1]


def test_names_cannot_steer_the_terminal() -> None:
    bad = ClusterRows([], [TopTopic("x\x1b[2J\n", 1.0, 0)], [], {"b\x1b]0;": "w\x07y[red]"})
    text = shown(bad)
    assert "\x1b" not in text and "\x07" not in text
    assert "x\\x1b[2J\\n" in text and "w\\x07y[red]" in text


@pytest.mark.parametrize(
    ("text", "more", "pressed", "begun"),
    [
        ("lq", False, "lq", ""),
        ("\x1b[A\x1bOBn", False, f"{UP}{DOWN}n", ""),
        ("\x1b[C\x1b[H\x1b[3~\x1bOP\x1b[1;5Dq", False, "q", ""),
        (ESCAPE, False, ESCAPE, ""),
        (ESCAPE, True, "", ESCAPE),
        ("r\x1b[", False, "r", "\x1b["),
        ("\x1b[" + "1" * 64, False, "\x1b[" + "1" * 64, ""),
    ],
    ids=["characters", "arrows", "others", "esc", "begun", "cut", "endless"],
)
def test_keys_of_several_characters(text: str, more: bool, pressed: str, begun: str) -> None:
    """Each begins with Esc, which would close what is open."""
    assert keys_in(text, more=more) == (pressed, begun)


def test_keys() -> None:
    choice = TopChoice()
    for key in "rx\x1b":
        choice.press(key)
    assert (choice.order, choice.is_paused, choice.is_over) == ("r", False, False)
    choice.press(" ")
    assert choice.is_paused and f"paused  {KEYS}" in shown(width=100, height=30, is_paused=True)  # type: ignore[arg-type]
    choice.press("q")
    assert choice.is_over


def typed(text: str) -> TopChoice:
    choice = TopChoice()
    for key in text:
        choice.press(key)
    return choice


@pytest.mark.parametrize(
    ("keys", "filtered", "is_typing"),
    [
        ("/bill", "bill", True),
        ("/bilk\x7fl\r", "bill", False),
        ("/nlrq ", "nlrq ", True),
        ("/bill\x1b", "", False),
        ("/bill\r\x1b", "", False),
        ("/bill\r/", "", True),
        ("/\x00\x7f\x08", "", True),
        ("/" + "x" * 1000, "x" * 255, True),
    ],
)
def test_a_filter_is_typed(keys: str, filtered: str, is_typing: bool) -> None:
    choice = typed(keys)
    assert (choice.filter, choice.is_typing) == (filtered, is_typing)
    assert not choice.is_over and not choice.is_paused and choice.order == "l"


def test_the_end_of_the_input_ends_a_filter_too() -> None:
    assert typed("/bill\x04").is_over


def test_a_filter_shows_topics_and_groups_whose_names_contain_it() -> None:
    text = shown(width=100, height=30, filter="BUS")
    assert "busy" in text and f"/BUS  {KEYS}" in text
    assert "slow" not in text and "quick" not in text
    assert "broker-b" in text, "brokers are always shown"


def test_arrows_choose_a_row_and_enter_opens_it() -> None:
    choice = TopChoice()
    here = places(ROWS, choice, 30)
    assert [place.name for place in here[3:6]] == ["busy", "slow", "unknown"], "in the order of the screen"

    def press(keys: str) -> None:
        for key in keys:
            choice.press(key, here)

    press(UP + DOWN * 3 + "\r")
    assert choice.opened == TopPlace("topic", "busy")
    press(DOWN * 9 + "\r")
    assert choice.opened == TopPlace("topic", "busy"), "it stays open until Escape"
    press(ESCAPE)
    assert choice.opened is None and not choice.is_over
    press(DOWN * 99 + "\n")
    assert choice.opened == TopPlace("group", "quick"), "the last row"
    choice.press(ESCAPE, here)
    choice.press("\r", here[:1])
    assert choice.opened == TopPlace("broker", "broker-a"), "rows may go while the last one is chosen"
    empty = TopChoice()
    empty.press("\r")
    assert empty.opened is None


def test_enter_keeps_a_filter_and_opens_nothing() -> None:
    choice = TopChoice()
    for key in "/b" + DOWN + "\r":
        choice.press(key, places(ROWS, choice, 30))
    assert (choice.opened, choice.filter, choice.cursor) == (None, "b", 0)


INSIDE = TopInside(
    [
        TopQueue("orders", "broker-a", 0, 5.0, "billing", 7, 1.0),
        TopQueue("orders", "broker-a", 1, None, "billing", None, None),
        TopQueue("orders", "broker-b", 0, 2.5, "billing", 1234, 9.0),
    ],
    [GroupMemberInfo("c\x1b[2J", "10.0.0.7:5", "JAVA", 1)],
)


def opened(width: int = 100, height: int = 30, **more: str) -> str:
    choice = TopChoice(opened=TopPlace("group", "billing"), **more)  # type: ignore[arg-type]
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as capture:
        console.print(open_view(INSIDE, choice, width=width, height=height))
    return capture.get()


def test_what_is_open_shows_its_queues_and_members() -> None:
    lines = [line.split() for line in opened().splitlines()]
    assert lines[:5] == [
        ["group", "billing"],
        ["topic", "broker", "queue", "in/s", "lag", "out/s"],
        ["orders", "broker-b", "0", "2.5", "1,234", "9.0"],
        ["orders", "broker-a", "0", "5.0", "7", "1.0"],
        ["orders", "broker-a", "1", "-", "-", "-"],
    ]
    assert ["c\\x1b[2J", "10.0.0.7:5", "JAVA"] in lines, "names cannot steer the terminal"
    assert OPEN_KEYS in opened()
    assert [line.split()[2] for line in opened(order="n").splitlines()[2:5]] == ["0", "1", "0"]


@pytest.mark.parametrize("width", range(1, 100, 7))
@pytest.mark.parametrize("height", [1, 9, 40])
def test_what_is_open_fits_the_screen(width: int, height: int) -> None:
    lines = opened(width, height).splitlines()
    assert all(len(line) <= width for line in lines)
    assert len(lines) <= max(height, 9)
