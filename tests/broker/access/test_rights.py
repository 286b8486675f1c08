"""The table of rights: each request and each handler has a row, and rows name the right permissions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.broker.test_server import settings
from tests.support import run

from sparrowmq.broker import parts, request_table
from sparrowmq.broker.access.rights import RIGHTS
from sparrowmq.broker.server import Broker
from sparrowmq.core.rights import RightScope, Without
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.transport.dispatch import check_rows

FIRST = '{"username":"root","password":"toor1234"}'


def served(root: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> set[int]:
    """The codes that a broker with these settings has handlers for."""
    seen: set[int] = set()

    def noted(codes: Any, *table: Any, guarded: bool) -> None:
        seen.update(codes)
        check_rows(codes, *table, guarded=guarded)

    monkeypatch.setattr(parts, "check_rows", noted)

    async def main() -> None:
        broker = Broker(settings(root, **changes))
        await broker.start()
        await broker.close()

    run(main())
    return seen


def test_requests_and_rows_match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    auth = served(tmp_path / "5", monkeypatch, authentication_enabled=True, init_authentication_user=FIRST)
    alone = served(tmp_path / "0", monkeypatch)
    assert auth | alone == RIGHTS.keys()
    assert alone == {code for code, right in RIGHTS.items() if right.without is Without.EVERYBODY}


def test_broker_does_not_start_with_a_handler_without_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = request_table.request_handlers
    monkeypatch.setattr(parts, "request_handlers", lambda broker: {**real(broker), 90399: print})

    async def main() -> None:
        broker = Broker(settings(tmp_path))
        with pytest.raises(LookupError, match=r"90399: these requests have handlers, but no row in RIGHTS"):
            await broker.start()
        assert broker.port == 0

    run(main())


def test_user_changes_need_access_control() -> None:
    check_rows([3001, 3006], RIGHTS, "rights", guarded=True)
    with pytest.raises(LookupError, match=r"AUTH_CREATE_USER \(3001\): .* register them with a gate only"):
        check_rows([310, 3001], RIGHTS, "rights", guarded=False)


@pytest.mark.parametrize(
    ("code", "scope"),
    [
        (310, RightScope.NAMED),
        (12, RightScope.NAMED),
        (34, RightScope.NAMED),
        (33, RightScope.PLACED),
        (37, RightScope.PLACED),
        (28, RightScope.BROKER),
        (90201, RightScope.BROKER),
    ],
)
def test_topics_of_an_answer_are_checked(code: int, scope: RightScope) -> None:
    assert RIGHTS[code].scope is scope


def test_retry_topic_counts_as_its_group_and_each_name_once() -> None:
    pull = RIGHTS[RequestCode.PULL_MESSAGE]
    assert pull.resources({"topic": "%RETRY%g", "consumerGroup": "g"}, b"") == [("Group", "g")]
    assert pull.resources({"topic": "T"}, b"") == [("Topic", "T"), ("Group", "")]
    assert RIGHTS[RequestCode.UNREGISTER_CLIENT].resources({}, b"") == []


@pytest.mark.parametrize("code", [90101, 90102, 90201, 90202])
def test_only_admins_change_holds_and_policies(code: int) -> None:
    assert RIGHTS[code].actions == {"Update"}
