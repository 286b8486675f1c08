from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparrowmq.client.base.settings import RETRY_CODES
from sparrowmq.client.send.retry import final_error, is_retryable, is_retryable_async
from sparrowmq.core.errors import (
    BrokerError,
    ClientError,
    ConnectError,
    ConnectionLostError,
    InvalidMessageError,
    InvalidStateError,
    NoRoomError,
    NoRouteError,
    ProtocolError,
    RequestTimeoutError,
    SparrowError,
)


@pytest.mark.proves("client:B-36", "client:B-37", "client:B-38", "client:B-39", "client:B.8")
@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ConnectError("x"), True),
        (ConnectionLostError("x"), True),
        (RequestTimeoutError("x"), True),
        (NoRouteError("x"), True),
        (ClientError("a hook refused"), True),
        *((BrokerError(code, "x"), True) for code in sorted(RETRY_CODES["5.x"])),
        *((BrokerError(code, "x"), False) for code in (3, 13, 26, 29, 207)),
        (InvalidMessageError("x"), False),
        (InvalidStateError("x"), False),
        (NoRoomError("x"), False),
        (ProtocolError("x"), False),
    ],
)
def test_retried_errors_are_selected(error: SparrowError, again: bool) -> None:
    assert is_retryable(error, RETRY_CODES["5.x"]) is again


@pytest.mark.proves("client:B-41")
def test_retried_codes_are_configurable() -> None:
    assert RETRY_CODES["4.9"] == {1, 14, 16, 17, 204, 205}
    assert RETRY_CODES["5.x"] == RETRY_CODES["4.9"] | {2, 1500}
    assert is_retryable(BrokerError(13, "x"), {13})
    assert not is_retryable(BrokerError(1, "x"), {13})


@pytest.mark.proves("client:B-43")
def test_last_error_keeps_type_and_code_and_lists_the_attempts() -> None:
    error = BrokerError(2, "busy")
    final = final_error(error, topic="T", message_id="A", tries=3, seconds=0.5, brokers=["a", "b", "a"])
    assert final is error
    assert final.__notes__ == ["the send of message A to 'T' was tried 3 times in 0.500 s, on a, b"]
    error = BrokerError(2, "busy")
    single = final_error(error, topic="T", message_id="A,B,C", tries=1, seconds=0.1, brokers=["a"])
    assert single.__notes__ == ["the send of message A and 2 others to 'T' was tried once in 0.100 s, on a"]
    twice = final_error(ConnectError("x"), topic="T", message_id="A", tries=2, seconds=0.1, brokers=[])
    assert twice.__notes__ == ["the send of message A to 'T' was tried 2 times in 0.100 s, on no broker"]


@pytest.mark.proves("client:B-27", "client:B-28")
@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ConnectError("x"), True),
        (ConnectionLostError("x"), True),
        (RequestTimeoutError("x"), True),
        (BrokerError(2, "x"), False),
        (NoRoomError("x"), False),
        (ClientError("x"), False),
    ],
)
def test_asynchronously_retried_errors_are_selected(error: SparrowError, again: bool) -> None:
    assert is_retryable_async(error) is again


@pytest.mark.proves("client:B-43")
@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: ConnectError("x"), 10001),
        (lambda: RequestTimeoutError("x"), 10002),
        (lambda: ClientError("x"), 10003),
        (lambda: ClientError("x", code=7), 7),
        (lambda: InvalidStateError("x"), -1),
        (lambda: NoRouteError("x"), 10005),
        (lambda: BrokerError(14, "x"), 14),
        (lambda: BrokerError(-1, "x"), -1),
    ],
)
def test_last_error_has_rocketmqs_code(make: Callable[[], Any], code: int) -> None:
    error = make()
    last = final_error(error, topic="T", message_id="A", tries=2, seconds=1, brokers=["a", "b"])
    assert last is error and last.code == code
