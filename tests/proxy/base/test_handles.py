"""Receipt handles and transaction ids."""

from __future__ import annotations

import base64

import pytest
from tests.support import about

from sparrowmq.core.errors import ProxyRefusal
from sparrowmq.proxy.base.handles import HalfPlace, parse_handle, parse_transaction_id
from sparrowmq.proxy.definition.messages import Code

TEXT = "7 1700000000000 60000 3 1 broker-a 2 9 4711"


def test_handles_have_the_format_of_apaches_proxy() -> None:
    handle = parse_handle(TEXT)
    assert handle.encode() == TEXT
    assert handle.physical_offset == 4711
    assert handle.visible_ms == 1_700_000_060_000
    assert handle.topic("orders", "billing") == "%RETRY%billing_orders"
    assert parse_handle(TEXT.replace(" 1 broker", " 2 broker")).topic("t", "g") == "%RETRY%g+t"
    assert parse_handle(TEXT.rpartition(" ")[0]).physical_offset == -1


def test_expired_handle_is_refused() -> None:
    assert parse_handle(TEXT, 1_700_000_059_999).receipt.offset == 9
    with pytest.raises(ProxyRefusal, check=about(code=Code.INVALID_RECEIPT_HANDLE)):
        parse_handle(TEXT, 1_700_000_060_001)


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "1 2 3 4 0 b 5", f"{TEXT} 1", "1 " * 600),
        *(TEXT.replace("60000", "6e4"), TEXT.replace(" 1 b", " 9 b")),
    ],
)
def test_forged_handle_is_refused(text: str) -> None:
    with pytest.raises(ProxyRefusal) as raised:
        parse_handle(text)
    assert raised.value.code == Code.INVALID_RECEIPT_HANDLE


def test_transaction_id_identifies_its_half_message() -> None:
    half = HalfPlace("broker-a", 5, 4711, "ABC")
    assert parse_transaction_id(half.encode()) == half


@pytest.mark.parametrize("words", ["t1 b 1 2", "t2 b 1 2 k", "t1 b one 2 k", "t1 b 1 2 k k"])
def test_forged_transaction_id_is_refused(words: str) -> None:
    for text in (words, base64.urlsafe_b64encode(words.encode()).decode(), "A" * 2000):
        with pytest.raises(ProxyRefusal) as raised:
            parse_transaction_id(text)
        assert raised.value.code == Code.INVALID_TRANSACTION_ID
