"""The name server's table of rights: each request that it serves has a row."""

from __future__ import annotations

from typing import Any

import pytest
from tests.nameserver.helpers import Ask, asked

from sparrowmq.nameserver.handlers import Handlers
from sparrowmq.nameserver.rights import RIGHTS
from sparrowmq.nameserver.server import NameServer
from sparrowmq.protocol.codes import RequestCode


def test_requests_and_rows_match(monkeypatch: pytest.MonkeyPatch) -> None:
    served: set[int] = set()
    real = Handlers.table

    def noted(handlers: Handlers) -> Any:
        served.update(table := real(handlers))
        return table

    monkeypatch.setattr(Handlers, "table", noted)
    NameServer(port=0)
    assert served == RIGHTS.keys()


def test_name_server_is_not_created_with_a_handler_without_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Handlers.table
    monkeypatch.setattr(Handlers, "table", lambda handlers: {**real(handlers), 90399: print})
    with pytest.raises(LookupError, match=r"90399: .* no row in RIGHTS of sparrowmq\.nameserver\.rights"):
        NameServer(port=0)


def test_rows_ask_for_no_account_and_none_is_asked_for() -> None:
    """An unsigned request of any code is served, and none is refused with 16 as by a broker's gate."""
    assert not any(right.actions or not right.free for right in RIGHTS.values())

    async def main(server: NameServer, ask: Ask) -> None:
        answers = {code: await ask(code, topic="T") for code in RIGHTS}
        refused = [code for code, answer in answers.items() if answer.code in (3, 16)]
        assert refused == []

    asked(main)


def test_topics_that_requests_name_are_in_their_rows() -> None:
    named = {
        code for code, right in RIGHTS.items() if right.resources({"topic": "T"}, b"") == [("Topic", "T")]
    }
    assert named == {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
    }
