"""A backfill's settings: what does not fit is refused, and what decides its windows stays the same."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.pipelines.backfill.settings import ROWS, BackfillSettings


def made(**values: Any) -> BackfillSettings:
    return BackfillSettings(**{"directory": "out", "topics": ("T",), **values})


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"topics": ()}, {"setting": "topics", "other": "pattern"}),
        ({"pattern": "T.*"}, {"setting": "topics", "other": "pattern"}),
        ({"window": 60, "window_rows": 5}, {"setting": "window", "other": "window_rows"}),
        ({"window": 0}, {"setting": "window", "value": 0}),
        ({"window_rows": 0}, {"setting": "window_rows", "value": 0}),
        ({"parallel": 0}, {"setting": "parallel", "value": 0}),
        ({"since": 5, "until": 5}, {"setting": "since", "value": 5}),
        ({"columns": ("bodies",)}, {"setting": "columns", "value": "bodies"}),
    ],
)
def test_what_does_not_fit_is_refused(values: dict[str, Any], facts: dict[str, object]) -> None:
    with pytest.raises(SettingsError, check=about(**facts)):
        made(**values)


def test_what_is_asked_leaves_out_how_fast_and_by_whom() -> None:
    """So a run with another account, more tasks or other patience goes on where the first one was."""
    options = {
        "batchRows": "5",
        "secretKey": "hidden",
        "tags": "a",
        "nameServer": "x:1",
        "failOnDataLoss": "no",
    }
    one = made(options=options, parallel=4, name_server="n:1")
    assert one.asked["options"] == {"tags": "a"}
    assert "hidden" not in str(one.asked)
    assert one.asked == made(options={"tags": "a"}, parallel=1, name_server="m:2").asked
    assert one.asked != made(options={"tags": "b"}).asked
    assert made().asked == made(window_rows=ROWS).asked
    assert made(window=3600).asked["window"] == 3_600_000


@pytest.mark.parametrize(
    ("values", "narrowed"),
    [
        ({}, False),
        ({"where": "tags = 'a'"}, True),
        ({"options": {"tags": "a"}}, True),
        ({"options": {"failOnDataLoss": "false"}}, True),
        ({"fail_on_data_loss": False}, True),
        ({"fail_on_data_loss": False, "options": {"failOnDataLoss": "true"}}, False),
    ],
)
def test_rows_may_be_fewer_than_offsets_only_where_something_leaves_them_out(
    values: dict[str, Any], narrowed: bool
) -> None:
    assert made(**values).is_narrowed is narrowed
