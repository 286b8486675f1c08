"""The table of knobs: ranges, places, what members are told."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.core import knobs
from sparrowmq.core.errors import InvalidNameError, SettingsError
from sparrowmq.core.knobs import KNOBS, Kind, Obeyed, Place, Scope, Setting, Unable

SETTINGS = [
    Setting("threads", Place(), 4, until=1),
    Setting("delay", Place("Orders"), 2),
    Setting("pause", Place(), True),
    Setting("delay", Place(), 1, reason="why"),
    Setting("maximum", Place(), 1),
]
WRONG = (math.nan, math.inf, -math.inf, True, "5", None, [5], 10**5000, -(10**5000))
NUMBERS = [knob for knob in KNOBS.values() if knob.kind in (Kind.COUNT, Kind.NUMBER)]


@pytest.mark.parametrize("knob", NUMBERS, ids=lambda knob: knob.name)
def test_both_ends_of_a_range_are_taken_and_what_is_beyond_is_refused_with_it(knob: knobs.Knob) -> None:
    ends = (int(knob.low), int(knob.high)) if knob.kind is Kind.COUNT else (knob.low, knob.high)
    assert tuple(map(knob.check, ends)) == ends
    for wrong in (knob.low - 1, knob.high + 1, *WRONG):
        with pytest.raises(SettingsError, match=f"{knob.name}=.* is out of range: .*{knob.high:.15g}"):
            knob.check(wrong)


def test_counts_are_whole() -> None:
    with pytest.raises(SettingsError, match=r"threads=2\.5 is out of range: it takes a whole number"):
        KNOBS["threads"].check(2.5)
    assert KNOBS["delay"].check(2.5) == 2.5


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("threads", "8", 8),
        ("delay", "0.5", 0.5),
        ("pause", "true", True),
        ("tags", "TagA || TagB", "TagA || TagB"),
        ("tags", "5", "5"),
        ("deny", "10.0.0.5, 10.1.2.3/16,10.0.0.5", ("10.0.0.5/32", "10.1.0.0/16")),
        ("allow", "fe80::/10", ("fe80::/10",)),
    ],
)
def test_texts_become_values_and_come_back_from_json(name: str, text: str, value: object) -> None:
    found = KNOBS[name].parse(text)
    assert found == value
    assert knobs.load(name, Setting(name, Place(), found).text) == found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("threads", "many"),
        ("threads", "1e999"),
        ("threads", "9" * 5000),
        ("pause", "false"),
        ("pause", "1"),
        ("tags", "  "),
        ("tags", "x" * 1001),
        ("tags", "a\nb"),
        ("allow", ""),
        ("allow", ",".join(f"10.0.{n >> 8}.{n & 255}" for n in range(1001))),
    ],
)
def test_texts_that_are_no_values_are_refused(name: str, text: str) -> None:
    with pytest.raises(SettingsError, match=f"{name}=.* is out of range: it takes"):
        KNOBS[name].parse(text)


@pytest.mark.parametrize("item", ["10.0.0", "host", 5])
def test_a_list_names_what_is_no_address(item: object) -> None:
    with pytest.raises(SettingsError, match="is neither an address nor a network; write"):
        KNOBS["deny"].check(["10.0.0.1", item])


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(SettingsError, match="there is no knob 'thread'; there are threads, batch"):
        knobs.find("thread")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("*", Place()),
        ("", Place()),
        ("Orders", Place("Orders")),
        ("Orders/3", Place("Orders", 3)),
        ("Orders/broker-a/0", Place("Orders", 0, "broker-a")),
        ("Orders/b/c/65535", Place("Orders", 65_535, "b/c")),
    ],
)
def test_places_are_read_and_written(text: str, place: Place) -> None:
    assert Place.parse(text) == place
    assert str(place) == (text or "*")


@pytest.mark.parametrize(
    "text", ["Orders/", "Orders/x", "Orders/65536", "Orders/-1", f"Orders/{129 * 'b'}/1"]
)
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="is no place of a group: write "):
        Place.parse(text)


def test_a_topic_of_a_place_is_a_topic() -> None:
    with pytest.raises(InvalidNameError, match="the topic 'no topic'"):
        Place.parse("no topic/1")


def test_a_knob_says_where_it_can_be_set() -> None:
    KNOBS["pause"].check_place(Place("Orders", 1))
    KNOBS["delay"].check_place(Place("Orders"))
    with pytest.raises(SettingsError, match="threads cannot be set for Orders, a topic: it is a"):
        KNOBS["threads"].check_place(Place("Orders"))
    with pytest.raises(SettingsError, match=r"tags cannot be set for \*, a group"):
        KNOBS["tags"].check_place(Place())


def test_the_narrower_place_counts() -> None:
    settings = [Setting("delay", Place(), 5), Setting("delay", Place("Orders"), 0)]
    assert knobs.value_for(settings, "delay", "Orders") == 0
    assert knobs.value_for(settings, "delay", "Other") == 5
    assert knobs.value_for(settings, "delay") == 5
    assert knobs.value_for(settings, "threads") is None


@given(st.permutations(SETTINGS))
def test_a_fingerprint_is_of_what_members_are_told_in_any_order(settings: list[Setting]) -> None:
    told = [one for one in settings if KNOBS[one.name].obeyed is not Obeyed.PLANS]
    same = [Setting(one.name, one.place, one.value) for one in reversed(told)]
    assert knobs.fingerprint(settings) == knobs.fingerprint(same) > 0
    assert knobs.fingerprint(told[1:]) != knobs.fingerprint(told)
    assert knobs.fingerprint([]) == 0 == knobs.fingerprint([Setting("maximum", Place(), 1)])


def test_another_end_of_a_pause_is_news_to_members_and_other_ends_and_reasons_are_not() -> None:
    pause = Setting("pause", Place("Orders"), True, until=1000)
    assert knobs.fingerprint([pause]) != knobs.fingerprint([replace(pause, until=2000)])
    assert knobs.fingerprint([pause]) == knobs.fingerprint([replace(pause, reason="repair")])
    threads = Setting("threads", Place(), 8)
    assert knobs.fingerprint([threads]) == knobs.fingerprint([replace(threads, until=1000)])


@pytest.mark.parametrize(
    ("first", "growth", "tries", "seconds"),
    [(1, 1, 0, 1), (1, 1, 50, 1), (2, 3, 2, 18), (5, 10, 10**9, 7200), (7200, 1, 0, 7200)],
)
def test_delays_between_tries_grow_to_two_hours(
    first: float, growth: float, tries: int, seconds: float
) -> None:
    assert knobs.retry_seconds(first, growth, tries) == seconds


def test_every_knob_says_its_range_and_who_obeys() -> None:
    for knob in KNOBS.values():
        assert knob.range
        assert knob.help
        assert bool(knob.pull) == (knob.obeyed is not Obeyed.PLANS), "what pull consumers do is said"
        assert Scope.GROUP in knob.scopes or knob.name == "tags"
        json.dumps([knob.name, knob.unit, knob.obeyed.value])


def test_the_page_on_coordination_has_every_knob_with_its_range() -> None:
    page = (Path(__file__).parents[2] / "docs" / "coordination.md").read_text()
    for knob in KNOBS.values():
        scopes = ", ".join(scope.value for scope in knob.scopes)
        assert f"| `{knob.name}` | {knob.range} | {scopes} | {knob.default} | {knob.obeyed.value} |" in page


def test_the_page_says_what_push_and_pull_consumers_do_with_each_knob() -> None:
    page = (Path(__file__).parents[2] / "docs" / "coordination.md").read_text()
    for knob in KNOBS.values():
        if knob.pull:
            text = knob.pull.replace("|", "\\|")
            assert f"| `{knob.name}` | {knob.help.replace('|', chr(92) + '|')} | {text} |" in page
    for why in Unable:
        assert why.text in page
