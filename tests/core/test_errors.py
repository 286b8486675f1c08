"""The tree of errors: one root, families by what the caller can do, codes and retryability."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from sparrowmq.core import errors

ALL = [item for _, item in inspect.getmembers(errors, inspect.isclass) if issubclass(item, Exception)]


def test_all_errors_have_one_base_class() -> None:
    assert len(ALL) > 20
    assert all(issubclass(item, errors.SparrowError) for item in ALL)


def test_docstring_shows_the_whole_tree() -> None:
    assert errors.__doc__ is not None
    assert [item.__name__ for item in ALL if item.__name__ not in errors.__doc__] == []


@pytest.mark.parametrize("item", ALL, ids=lambda item: item.__name__)
def test_every_error_has_a_docstring(item: type[Exception]) -> None:
    assert item.__doc__


def test_errors_belong_to_the_expected_family() -> None:
    assert issubclass(errors.InvalidMessageError, errors.ClientError)
    assert issubclass(errors.ConnectError, errors.TransportError)
    for item in (errors.FrameError, errors.HeaderError, errors.RecordError, errors.BodyError):
        assert issubclass(item, errors.ProtocolError)
    assert issubclass(errors.StoreFullError, errors.StoreError)


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (errors.RequestTimeoutError("x", address="h:1"), True),
        (errors.ConnectError("x"), True),
        (errors.NoRouteError("x"), True),
        (errors.NoRoomError("x"), True),
        (errors.StoreFullError("x"), True),
        (errors.InvalidMessageError("x"), False),
        (errors.NoNameServerError("x"), False),
        (errors.FrameError("x"), False),
        (errors.StoreCorruptError("x"), False),
    ],
)
def test_errors_show_whether_a_retry_may_help(error: errors.SparrowError, retryable: bool) -> None:
    assert error.retryable is retryable


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidMessageError("x"), 13),
        (errors.NoNameServerError("x"), 10004),
        (errors.NoRouteError("x"), 10005),
        (errors.InvalidStateError("x"), -1),
        (errors.ConnectError("x"), 10001),
        (errors.RequestTimeoutError("x"), 10002),
    ],
)
def test_error_codes_equal_those_of_java_clients(
    error: errors.ClientError | errors.TransportError, code: int
) -> None:
    assert error.code == code


def test_broker_error_names_code_request_address_and_remark() -> None:
    error = errors.BrokerError(17, "no such topic", address="h:1", request="SEND_MESSAGE (10)")
    assert str(error) == "answer 17 to SEND_MESSAGE (10) from h:1: no such topic"
    assert (error.code, error.remark, error.address) == (17, "no such topic", "h:1")
    assert str(errors.BrokerError(2, "")) == "answer 2: no remark"


def test_transport_error_keeps_its_address() -> None:
    assert errors.ConnectionLostError("gone", address="h:1").address == "h:1"


def test_reply_timeout_has_javas_code() -> None:
    error = errors.ReplyTimeoutError("no reply")
    assert (error.code, error.retryable, str(error)) == (10006, True, "no reply")


BUILT_IN = [
    (errors.RequestTimeoutError("late", address="h:1"), TimeoutError),
    (errors.ReplyTimeoutError("late"), TimeoutError),
    (errors.ConnectError("refused", address="h:1"), ConnectionError),
    (errors.ConnectionLostError("reset", address="h:1"), ConnectionError),
    (errors.SettingsError("bad"), ValueError),
    (errors.InvalidMessageError("bad"), ValueError),
    (errors.InvalidNameError("bad"), ValueError),
    (errors.InvalidExpressionError("bad", position=3, token="x"), ValueError),
]


@pytest.mark.parametrize(("error", "kind"), BUILT_IN, ids=lambda item: getattr(item, "__name__", None))
def test_errors_that_people_catch_are_built_in_ones_too(error: Exception, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=f"^{error.args[0]}$"):
        raise error
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize(
    "kind",
    [errors.InvariantError, errors.ClientError, errors.RecordError, errors.StoreFullError,
     errors.SettingsError, errors.RefusedError, errors.LeaseLostError, errors.DatabaseVersionError],
)  # fmt: skip
def test_errors_keep_what_they_are_about(kind: type[errors.SparrowError]) -> None:
    error = kind("the text", what="body", value=7, limit=5)
    copy = pickle.loads(pickle.dumps(error))
    for one in (error, copy):
        assert (str(one), one.what, one.value, one.limit) == ("the text", "body", 7, 5)
    assert (kind("x").what, kind("x").value, kind("x").limit) == ("", None, None)


def test_former_name_is_the_same_error() -> None:
    assert errors.TooManyRequestsError is errors.NoRoomError


@pytest.mark.parametrize(
    "error",
    [
        errors.BrokerError(14, "wrong", address="h:1", request="SEND"),
        errors.SequenceTooOldError(90002, "old", known_from=3, begins_at=1),
        errors.ProducerFencedError(90004, "later", current=2),
        errors.ProxyRefusal(40001, "no"),
        errors.SettingsError("x", "linger", 1, limit=2, other="idempotent"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_reach_other_processes(error: errors.SparrowError) -> None:
    error.add_note("noted")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
