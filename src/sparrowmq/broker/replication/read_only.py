"""Requests that a slave refuses: what would write to the log or change its master's tables (broker:12.5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.broker.base.offsets import refusal
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from sparrowmq.protocol.frame import Command
    from sparrowmq.transport.connection import Connection

_BUSY: Final = "[REJECTREQUEST]system busy, start flow control for a while: this broker is a slave"
_TABLES: Final = (
    "Can't modify topic or subscription group from slave broker, please execute it from master broker."
)
_POP: Final = "POP needs a broker that can write; this one is a slave"
_ERROR: Final = ResponseCode.SYSTEM_ERROR

REFUSED: Final[dict[int, tuple[int, str]]] = {
    Code.END_TRANSACTION: (
        ResponseCode.SLAVE_NOT_AVAILABLE,
        "Message store is slave mode, so end transaction is forbidden.",
    ),
    Code.RESUME_CHECK_HALF_MESSAGE: (_ERROR, "this broker is a slave; ask its master"),
    Code.RECALL_MESSAGE: (
        ResponseCode.SLAVE_NOT_AVAILABLE,
        "recall failed, broker service not available: this broker is a slave",
    ),
    Code.CONSUMER_SEND_MSG_BACK: (_ERROR, "no master available along with this slave"),
    Code.SEND_REPLY_MESSAGE: (ResponseCode.SYSTEM_BUSY, _BUSY),
    Code.SEND_REPLY_MESSAGE_V2: (ResponseCode.SYSTEM_BUSY, _BUSY),
    Code.UPDATE_AND_CREATE_TOPIC: (_ERROR, _TABLES),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: (_ERROR, _TABLES),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (_ERROR, _TABLES),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: (_ERROR, _TABLES),
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: (_ERROR, _TABLES),
    Code.SET_MESSAGE_REQUEST_MODE: (_ERROR, _TABLES),
    Code.REGISTER_PROXIED_CLIENT: (_ERROR, "this broker is a slave; tell its master of clients"),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: (_ERROR, "Can not reset offset in slave broker"),
    Code.CLONE_GROUP_OFFSET: (_ERROR, "Can not clone offsets in slave broker"),
    Code.POP_MESSAGE: (_ERROR, _POP),
    Code.ACK_MESSAGE: (_ERROR, _POP),
    Code.BATCH_ACK_MESSAGE: (_ERROR, _POP),
    Code.CHANGE_MESSAGE_INVISIBLETIME: (_ERROR, _POP),
    Code.END_PRODUCERS: (_ERROR, "this broker is a slave; end producers at its master"),
}
"""Code and remark of the answer by request code."""


def refuse_writes(handlers: dict[int, Any]) -> dict[int, Any]:
    """The handlers of a slave."""
    return handlers | {code: _refuse(*REFUSED[code]) for code in REFUSED if code in handlers}


def _refuse(code: int, remark: str) -> Callable[[Connection, Command], Command]:
    def handle(connection: Connection, command: Command) -> Command:
        return refusal(command, code, remark)

    return handle
