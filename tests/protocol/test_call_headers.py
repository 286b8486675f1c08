"""Headers of transactions and of calls to clients: every recorded one is read and written the same."""

from __future__ import annotations

import pytest
from tests.protocol import recorded
from tests.support import about

from sparrowmq.core.errors import HeaderError
from sparrowmq.protocol import call_headers as h
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.headers import Header, from_ext, to_ext

REQUESTS: dict[Code, type[Header]] = {
    Code.END_TRANSACTION: h.EndTransactionRequest,
    Code.CHECK_TRANSACTION_STATE: h.CheckTransactionStateRequest,
    Code.RESUME_CHECK_HALF_MESSAGE: h.ResumeCheckHalfMessageRequest,
    Code.PUSH_REPLY_MESSAGE_TO_CLIENT: h.ReplyMessageRequest,
    Code.RESET_CONSUMER_CLIENT_OFFSET: h.ResetOffsetRequest,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: h.ResetOffsetRequest,
    Code.GET_CONSUMER_STATUS_FROM_CLIENT: h.GetConsumerStatusRequest,
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: h.GetConsumerStatusRequest,
    Code.CLONE_GROUP_OFFSET: h.CloneGroupOffsetRequest,
    Code.QUERY_CORRECTION_OFFSET: h.QueryCorrectionOffsetRequest,
    Code.QUERY_CONSUME_TIME_SPAN: h.QueryConsumeTimeSpanRequest,
    Code.GET_CONSUMER_RUNNING_INFO: h.GetConsumerRunningInfoRequest,
    Code.CONSUME_MESSAGE_DIRECTLY: h.ConsumeMessageDirectlyRequest,
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: h.QuerySubscriptionByConsumerRequest,
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: h.UpdateGroupForbiddenRequest,
    Code.GET_BROKER_CONSUME_STATS: h.GetBrokerConsumeStatsRequest,
}
OF_SIGNATURES = {"AccessKey", "Signature", "SecurityToken"}


@pytest.mark.parametrize("code", REQUESTS, ids=lambda code: code.name)
def test_every_recorded_request_is_read_and_written_with_the_same_fields(code: Code) -> None:
    seen = 0
    for exchange, request in recorded.requests(code):
        written = to_ext(from_ext(REQUESTS[code], request.ext))
        kept = {name: text for name, text in request.ext.items() if name not in OF_SIGNATURES}
        assert kept.items() <= written.items(), exchange
        assert all(written[name] in ("false", "-1") for name in written.keys() - kept.keys()), exchange
        seen += 1
    assert seen


def test_an_end_without_its_offsets_is_refused_by_name() -> None:
    with pytest.raises(HeaderError, check=about(what="tranStateTableOffset")):
        from_ext(h.EndTransactionRequest, {"producerGroup": "p", "commitOrRollback": "8"})
