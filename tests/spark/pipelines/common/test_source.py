"""The settings that pipelines share, and the options of their reads."""

from __future__ import annotations

import pytest
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.pipelines.common.source import (
    FollowedSource,
    Source,
    TopicSource,
    WholeSource,
    between,
    check_least,
    check_times,
)


def test_options_of_a_read() -> None:
    assert (Source().source_options, WholeSource().source_options) == ({}, {"failOnDataLoss": "true"})
    given = WholeSource(topics=("A", "B"), name_server="h:1", fail_on_data_loss=False, options={"a": "b"})
    assert given.source_options == {
        "failOnDataLoss": "false",
        "a": "b",
        "nameServer": "h:1",
        "subscribe": "A,B",
    }
    assert TopicSource(pattern="A.*").source_options["subscribePattern"] == "A.*"


def test_an_option_goes_before_the_setting() -> None:
    assert not WholeSource().may_lose and WholeSource(fail_on_data_loss=False).may_lose
    assert WholeSource(options={"FailOnDataLoss": " False"}).may_lose
    given = WholeSource(fail_on_data_loss=False, options={"failOnDataLoss": "true"})
    assert not given.may_lose and given.source_options["failOnDataLoss"] == "true"


def test_a_time_range_is_part_of_a_read() -> None:
    assert between({"a": "b"}, None, None) == {"a": "b"}
    assert between({"a": "b"}, -5, 7) == {
        "a": "b",
        "startingTimestamp": "0",
        "startingOffsetsByTimestampStrategy": "latest",
        "endingTimestamp": "7",
    }


def test_wrong_settings_are_refused() -> None:
    check_times(1, 2)
    with pytest.raises(SettingsError, match=r"^a copy needs either topics or a pattern$"):
        TopicSource().check_topics("a copy")
    with pytest.raises(SettingsError, check=about(setting="start", value="now")):
        FollowedSource(topics=("T",), start="now").check_followed("a copy")
    with pytest.raises(SettingsError, check=about(setting="batch_rows", value=0)):
        FollowedSource(topics=("T",), batch_rows=0).check_followed("a copy")
    with pytest.raises(SettingsError, check=about(setting="every", value=-1)):
        check_least(FollowedSource(every=-1), every=0)
    with pytest.raises(SettingsError, check=about(setting="since", value=2)):
        check_times(2, 2)
