from __future__ import annotations

import pytest

from sparrowmq.client.retry import final_error, is_retryable
from sparrowmq.client.settings import RETRY_CODES
from sparrowmq.core.errors import (
    BrokerError,
    ConnectError,
    ConnectionLostError,
    InvalidMessageError,
    InvalidStateError,
    NoRouteError,
    ProtocolError,
    RequestTimeoutError,
    SparrowError,
    TooManyRequestsError,
)


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ConnectError("x"), True),
        (ConnectionLostError("x"), True),
        (RequestTimeoutError("x"), True),
        (NoRouteError("x"), True),
        *((BrokerError(code, "x"), True) for code in sorted(RETRY_CODES["5.x"])),
        *((BrokerError(code, "x"), False) for code in (3, 13, 26, 29, 207)),
        (InvalidMessageError("x"), False),
        (InvalidStateError("x"), False),
        (TooManyRequestsError("x"), False),
        (ProtocolError("x"), False),
    ],
)
def test_what_is_tried_again(error: SparrowError, again: bool) -> None:
    assert is_retryable(error, RETRY_CODES["5.x"]) is again


def test_the_codes_can_be_chosen() -> None:
    assert is_retryable(BrokerError(13, "x"), {13})
    assert not is_retryable(BrokerError(1, "x"), {13})


def test_the_last_error_keeps_type_and_code_and_says_what_was_tried() -> None:
    error = BrokerError(2, "busy")
    final = final_error(error, topic="T", tries=3, seconds=0.5, brokers=["a", "b", "a"])
    assert final is error
    assert final.__notes__ == ["the send to 'T' was tried 3 times in 0.500 s, on a, b"]
    single = final_error(BrokerError(2, "busy"), topic="T", tries=1, seconds=0.1, brokers=["a"])
    assert not hasattr(single, "__notes__")
