"""Results of handlers, and their meaning."""

from __future__ import annotations

from typing import Any

import pytest

from sparrowmq.client.consumer.outcomes import (
    ConsumeResult,
    Outcome,
    Retry,
    ReturnType,
    outcome_of,
    refuse_unfinished,
    return_type,
)


@pytest.mark.proves("client:D-50", "client:D-51")
@pytest.mark.parametrize(
    ("result", "error", "expected"),
    [
        (None, None, Outcome(5)),
        ("anything else", None, Outcome(5)),
        (ConsumeResult.SUCCESS, None, Outcome(5)),
        (ConsumeResult.LATER, None, Outcome(0)),
        (None, ValueError("bad"), Outcome(0)),
        (None, Retry(done=3), Outcome(3)),
        (Retry(done=3, after=60), None, Outcome(3, 60)),
        (None, Retry(done=99), Outcome(5)),
        (None, Retry(dead=True), Outcome(0, dead=True)),
    ],
)
def test_results_of_a_call_with_five_messages_are_applied(
    result: Any, error: BaseException | None, expected: Outcome
) -> None:
    assert outcome_of(5, result, error) == expected


def test_invalid_retries_are_refused() -> None:
    with pytest.raises(ValueError, match="after=-1"):
        Retry(after=-1)
    with pytest.raises(ValueError, match="after=nan"):
        Retry(after=float("nan"))
    with pytest.raises(ValueError, match="done=-2"):
        Retry(done=-2)
    assert str(Retry()) == "the handler asked for a retry"
    assert str(Retry("no stock")) == "no stock"


def test_retry_shows_its_arguments() -> None:
    plain = Retry()
    assert (plain.after, plain.done, plain.dead) == (None, 0, False)
    for after in (0, 0.5):
        assert Retry(after=after).after == after
    told = Retry(after=60, done=2, dead=True)
    assert (told.after, told.done, told.dead) == (60, 2, True)


class Future:
    """An awaitable that is no coroutine."""

    def __await__(self) -> Any:
        """Never called."""
        raise AssertionError


async def coroutine() -> None:
    """Never runs."""


async def async_generator() -> Any:
    """Never runs."""
    yield


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (lambda: coroutine(), "a plain handler returned a coroutine; write it with `async def`"),
        (lambda: (n for n in ()), "returned a generator, which has not run; write it without `yield`"),
        (async_generator, "returned a generator, which has not run"),
        (Future, r"returned <.*Future object.*>, which nothing awaits"),
    ],
)
def test_awaitable_or_iterable_results_are_refused(result: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        refuse_unfinished(result())


@pytest.mark.parametrize(
    "result", [0, False, "RECONSUME_LATER", [], {}, object(), ConsumeResult.LATER, range(3)]
)
def test_any_other_value_is_accepted(result: object) -> None:
    refuse_unfinished(result)  # raises when it is not
    assert outcome_of(5, result, None) == Outcome(0 if result is ConsumeResult.LATER else 5)


@pytest.mark.proves("MUST-35")
@pytest.mark.parametrize(
    ("result", "error", "seconds", "expected"),
    [
        (None, None, 1.0, ReturnType.SUCCESS),
        (None, None, 10.0, ReturnType.TIME_OUT),
        (None, Retry(), 11.0, ReturnType.TIME_OUT),
        (None, ValueError(), 11.0, ReturnType.EXCEPTION),
        (None, Retry(), 1.0, ReturnType.FAILED),
        (ConsumeResult.LATER, None, 1.0, ReturnType.FAILED),
    ],
)
def test_result_of_a_call_is_classified(
    result: Any, error: BaseException | None, seconds: float, expected: ReturnType
) -> None:
    assert return_type(result, error, seconds, limit=10.0) is expected
