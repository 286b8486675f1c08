"""One exception for requests that are refused, and one place that gives errors their codes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.test_docs import refused_codes

from sparrowmq.core.errors import (
    BrokerError,
    InvalidMessageError,
    InvalidNameError,
    NoRoomError,
    StoreBusyError,
    StoreError,
    StoreFullError,
)
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import FrameReader, decode, encode
from sparrowmq.protocol.refusals import UNSERVED, Refused, refusal_remark

ROOT = Path(__file__).parents[2] / "src" / "sparrowmq"
SERVERS = ("broker", "store", "nameserver", "transport", "protocol")


def test_a_refusal_is_its_answer() -> None:
    refused = Refused(ResponseCode.NO_PERMISSION, "no", {"forbiddenType": "5"})
    (frame,) = FrameReader().feed(encode(refused.answer(7, {"MSG_REGION": "R"})))
    answer = decode(*frame)
    assert (answer.code, answer.opaque, answer.remark, answer.is_response) == (16, 7, "no", True)
    assert answer.ext == {"MSG_REGION": "R", "forbiddenType": "5"}
    assert str(refused) == "no"


@pytest.mark.parametrize(
    ("error", "code", "remark"),
    [
        (InvalidMessageError("text"), ResponseCode.MESSAGE_ILLEGAL, "text"),
        (InvalidNameError("text"), ResponseCode.INVALID_PARAMETER, "text"),
        (StoreFullError("text"), ResponseCode.SERVICE_NOT_AVAILABLE, "text"),
        (StoreBusyError("text"), ResponseCode.SERVICE_NOT_AVAILABLE, "text"),
        (NoRoomError("text"), ResponseCode.SYSTEM_BUSY, "text"),
        (StoreError("text"), ResponseCode.SYSTEM_ERROR, "text"),
        (BrokerError(215, "text", address="b:1"), ResponseCode.FLOW_CONTROL, "text"),
        (ValueError("text"), ResponseCode.SYSTEM_ERROR, "ValueError: text"),
        (Refused(ResponseCode.FLOW_CONTROL, "text"), ResponseCode.FLOW_CONTROL, "text"),
    ],
)
def test_every_error_has_a_code(error: Exception, code: ResponseCode, remark: str) -> None:
    refused = Refused.of(error)
    assert (refused.code, refused.remark) == (code, remark)


def carries_a_code(node: ast.ClassDef) -> bool:
    """Whether it is an exception that sets `code` or `remark`."""
    if not any("Error" in ast.unparse(base) or "Exception" in ast.unparse(base) for base in node.bases):
        return False
    targets = (one for one in ast.walk(node) if isinstance(one, ast.Attribute))
    return any(isinstance(one.ctx, ast.Store) and one.attr in ("code", "remark") for one in targets)


def test_no_other_exception_of_the_servers_carries_a_code() -> None:
    found = {
        node.name
        for package in SERVERS
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and carries_a_code(node)
    }
    assert found == {"Refused"}


NOT_EVEN_ROCKETMQ = {13, 22, 23, 27, 47, *range(209, 215), 301, 302}


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (9999, " request type 9999 not supported"),
        (2003, " request type 2003 not supported by this server: it does not limit reads of old messages"),
        (200_070, " request type 200070 not supported by this server: it has no lite topics"),
    ],
)
def test_remarks(code: int, remark: str) -> None:
    assert refusal_remark(code) == remark


def test_no_code_has_two_reasons() -> None:
    codes = [code for codes, _ in UNSERVED for code in codes]
    assert len(codes) == len(set(codes))


def test_each_code_that_the_page_calls_refused_has_a_reason() -> None:
    known = {code for codes, _ in UNSERVED for code in codes}
    assert refused_codes() - known == NOT_EVEN_ROCKETMQ
