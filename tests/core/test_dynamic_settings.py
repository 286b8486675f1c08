"""The table of dynamic settings: ranges, scopes, and what members receive."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.core import dynamic_settings
from sparrowmq.core.dynamic_settings import (
    DYNAMIC_SETTINGS,
    Obeyed,
    SettingKind,
    SettingPlace,
    SettingScope,
    SettingValue,
    Unable,
)
from sparrowmq.core.errors import InvalidNameError, SettingsError

SETTINGS = [
    SettingValue("threads", SettingPlace(), 4, until=1),
    SettingValue("delay", SettingPlace("Orders"), 2),
    SettingValue("pause", SettingPlace(), True),
    SettingValue("delay", SettingPlace(), 1, reason="why"),
    SettingValue("maximum", SettingPlace(), 1),
]
WRONG = (math.nan, math.inf, -math.inf, True, "5", None, [5], 10**5000, -(10**5000))
NUMBERS = [
    setting
    for setting in DYNAMIC_SETTINGS.values()
    if setting.kind in (SettingKind.COUNT, SettingKind.NUMBER)
]


@pytest.mark.parametrize("setting", NUMBERS, ids=lambda setting: setting.name)
def test_both_ends_of_a_range_are_accepted_and_values_beyond_are_refused(
    setting: dynamic_settings.DynamicSetting,
) -> None:
    ends = (
        (int(setting.low), int(setting.high))
        if setting.kind is SettingKind.COUNT
        else (setting.low, setting.high)
    )
    assert tuple(map(setting.check, ends)) == ends
    for wrong in (setting.low - 1, setting.high + 1, *WRONG):
        with pytest.raises(SettingsError, check=about(setting=setting.name, value=wrong)):
            setting.check(wrong)


def test_counts_must_be_whole_numbers() -> None:
    with pytest.raises(SettingsError, check=about(setting="threads", value=2.5, limit="1 to 1000 handlers")):
        DYNAMIC_SETTINGS["threads"].check(2.5)
    assert DYNAMIC_SETTINGS["delay"].check(2.5) == 2.5


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
def test_texts_are_parsed_and_values_survive_json(name: str, text: str, value: object) -> None:
    found = DYNAMIC_SETTINGS[name].parse(text)
    assert found == value
    assert dynamic_settings.load(name, SettingValue(name, SettingPlace(), found).text) == found


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
def test_invalid_texts_are_refused(name: str, text: str) -> None:
    with pytest.raises(SettingsError, check=about(setting=name)):
        DYNAMIC_SETTINGS[name].parse(text)


@pytest.mark.parametrize("item", ["10.0.0", "host", 5])
def test_error_for_a_list_names_the_invalid_address(item: object) -> None:
    with pytest.raises(SettingsError, check=about(value=item)):
        DYNAMIC_SETTINGS["deny"].check(["10.0.0.1", item])


def test_error_for_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(SettingsError, check=about(setting="thread")):
        dynamic_settings.find("thread")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("*", SettingPlace()),
        ("", SettingPlace()),
        ("Orders", SettingPlace("Orders")),
        ("Orders/3", SettingPlace("Orders", 3)),
        ("Orders/broker-a/0", SettingPlace("Orders", 0, "broker-a")),
        ("Orders/b/c/65535", SettingPlace("Orders", 65_535, "b/c")),
    ],
)
def test_scopes_are_parsed_and_written(text: str, place: SettingPlace) -> None:
    assert SettingPlace.parse(text) == place
    assert str(place) == (text or "*")


@pytest.mark.parametrize(
    "text", ["Orders/", "Orders/x", "Orders/65536", "Orders/-1", f"Orders/{129 * 'b'}/1"]
)
def test_invalid_scope_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, check=about(setting="scope", value=text)):
        SettingPlace.parse(text)


def test_topic_of_a_scope_is_checked() -> None:
    with pytest.raises(InvalidNameError, match="the topic 'no topic'"):
        SettingPlace.parse("no topic/1")


def test_setting_in_an_unsupported_scope_is_refused() -> None:
    DYNAMIC_SETTINGS["pause"].check_place(SettingPlace("Orders", 1))
    DYNAMIC_SETTINGS["delay"].check_place(SettingPlace("Orders"))
    with pytest.raises(SettingsError, check=about(setting="threads", other="Orders")):
        DYNAMIC_SETTINGS["threads"].check_place(SettingPlace("Orders"))
    with pytest.raises(SettingsError, check=about(setting="tags", other="*")):
        DYNAMIC_SETTINGS["tags"].check_place(SettingPlace())


def test_narrower_scope_has_precedence() -> None:
    settings = [SettingValue("delay", SettingPlace(), 5), SettingValue("delay", SettingPlace("Orders"), 0)]
    assert dynamic_settings.value_for(settings, "delay", "Orders") == 0
    assert dynamic_settings.value_for(settings, "delay", "Other") == 5
    assert dynamic_settings.value_for(settings, "delay") == 5
    assert dynamic_settings.value_for(settings, "threads") is None


@given(st.permutations(SETTINGS))
def test_fingerprint_covers_what_members_receive_in_any_order(settings: list[SettingValue]) -> None:
    told = [one for one in settings if DYNAMIC_SETTINGS[one.name].obeyed is not Obeyed.PLANS]
    same = [SettingValue(one.name, one.place, one.value) for one in reversed(told)]
    assert dynamic_settings.fingerprint(settings) == dynamic_settings.fingerprint(same) > 0
    assert dynamic_settings.fingerprint(told[1:]) != dynamic_settings.fingerprint(told)
    assert (
        dynamic_settings.fingerprint([])
        == 0
        == dynamic_settings.fingerprint([SettingValue("maximum", SettingPlace(), 1)])
    )


def test_fingerprint_changes_with_the_end_of_a_pause_only() -> None:
    pause = SettingValue("pause", SettingPlace("Orders"), True, until=1000)
    assert dynamic_settings.fingerprint([pause]) != dynamic_settings.fingerprint([replace(pause, until=2000)])
    assert dynamic_settings.fingerprint([pause]) == dynamic_settings.fingerprint(
        [replace(pause, reason="repair")]
    )
    threads = SettingValue("threads", SettingPlace(), 8)
    assert dynamic_settings.fingerprint([threads]) == dynamic_settings.fingerprint(
        [replace(threads, until=1000)]
    )


@pytest.mark.parametrize(
    ("first", "growth", "tries", "seconds"),
    [(1, 1, 0, 1), (1, 1, 50, 1), (2, 3, 2, 18), (5, 10, 10**9, 7200), (7200, 1, 0, 7200)],
)
def test_delays_between_retries_grow_to_two_hours(
    first: float, growth: float, tries: int, seconds: float
) -> None:
    assert dynamic_settings.retry_seconds(first, growth, tries) == seconds


def test_every_setting_has_a_range_and_states_who_applies_it() -> None:
    for setting in DYNAMIC_SETTINGS.values():
        assert setting.range
        assert setting.help
        assert bool(setting.pull) == (setting.obeyed is not Obeyed.PLANS), "what pull consumers do is said"
        assert SettingScope.GROUP in setting.scopes or setting.name == "tags"
        json.dumps([setting.name, setting.unit, setting.obeyed.value])


def test_coordination_guide_has_every_setting_with_its_range() -> None:
    page = (Path(__file__).parents[2] / "docs" / "coordination.md").read_text()
    for setting in DYNAMIC_SETTINGS.values():
        scopes = ", ".join(scope.value for scope in setting.scopes)
        assert (
            f"| `{setting.name}` | {setting.range} | {scopes} | {setting.default} | {setting.obeyed.value} |"
            in page
        )


def test_coordination_guide_describes_how_consumers_apply_each_setting() -> None:
    page = (Path(__file__).parents[2] / "docs" / "coordination.md").read_text()
    for setting in DYNAMIC_SETTINGS.values():
        if setting.pull:
            text = setting.pull.replace("|", "\\|")
            assert f"| `{setting.name}` | {setting.help.replace('|', chr(92) + '|')} | {text} |" in page
    for why in Unable:
        assert why.text in page
