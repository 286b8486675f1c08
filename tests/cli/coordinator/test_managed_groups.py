"""`sparrow group show|members|plans`, of a real coordinator that plans a real consumer's group."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from tests.coordinator.running import Running, running
from tests.support import sqlite_url, until_sync
from typer.testing import CliRunner

import sparrowmq as mq
from sparrowmq.cli.main import app
from sparrowmq.testing import LocalCluster

if TYPE_CHECKING:
    from tests.cli.conftest import Outcome

Call = Callable[..., "Outcome"]


@pytest.fixture(scope="module")
def local() -> Iterator[LocalCluster]:
    with LocalCluster() as found:
        found.create_topic("Planned", queues=2)
        yield found


@pytest.fixture(scope="module")
def server(local: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    url = sqlite_url(tmp_path_factory.mktemp("groups") / "c.db")
    with running(database_url=url, namesrv_addr=local.namesrv) as found:
        yield found


@pytest.fixture
def sparrow(server: Running, local: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Call:
    from tests.cli.conftest import Outcome

    monkeypatch.setenv("SPARROW_COORDINATOR_URL", server.url)
    monkeypatch.setenv("SPARROW_TOKEN", server.token)
    monkeypatch.setenv("SPARROW_NAMESRV", local.namesrv)

    def call(*arguments: str, status: int = 0) -> Outcome:
        result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "300"})
        outcome = Outcome(result.exit_code, result.stdout, result.stderr)
        assert outcome.status == status, f"{outcome}\n{result.exception!r}"
        return outcome

    return call


@pytest.mark.proves("MUST-70", "MUST-72", "pmq:R13")
def test_a_consumer_is_planned_by_the_coordinator_alone_and_shown(local: LocalCluster, sparrow: Call) -> None:
    settings = mq.ConsumerSettings(managed=True, consume_from="first")
    seen: list[bytes] = []
    with mq.PushConsumer("planned", namesrv=local.namesrv, settings=settings) as consumer:
        consumer.subscribe("Planned", handler=lambda message: seen.append(message.body))
        with mq.Producer("senders", namesrv=local.namesrv) as producer:
            producer.send(mq.Message("Planned", b"hello"))
        until_sync(lambda: seen == [b"hello"])
        found = until_sync(lambda: settled(sparrow))
        mine = [one for one in found["queues"] if one["topic"] == "Planned"]
        assert {one["client_id"] for one in mine} == {consumer.client_id}
        shown = sparrow("group", "show", "planned").out
        assert "had no owner; each of 1 has 2" in shown
        assert "generation 1 under epoch" in shown or "in force; 1 members" in shown
        assert "planned" in sparrow("group", "show").out
        assert consumer.client_id in sparrow("group", "members", "planned").out
        (member,) = sparrow("group", "members", "planned", "--json").values
        assert (member["standing"], member["client_id"]) == ("active", consumer.client_id)
        assert "joined: " in sparrow("group", "plans", "planned").out
        assert sparrow("group", "plans", "planned", "--json").values[-1]["generation"] == 1
        (group,) = sparrow("group", "show", "--json").values
        assert (group["group"], group["members"]) == ("planned", 1)
        assert "paused" not in shown
        sparrow("group", "pause", "planned", "Planned/1", "--minutes", "5", "--reason", "repair")
        paused = sparrow("group", "show", "planned").out
        assert ": Planned/1: repair\n" in paused
        assert "paused by test until " in paused or "paused by admin until " in paused
        sparrow("group", "resume", "planned", "Planned/1")
        assert "paused" not in sparrow("group", "show", "planned").out
        sparrow("setting", "set", "planned", "maximum", "1", "--reason", "one at a time")
        with mq.PushConsumer("planned", namesrv=local.namesrv, settings=settings) as other:
            other.subscribe("Planned", handler=lambda message: seen.append(message.body))
            until_sync(lambda: "standby" in sparrow("group", "members", "planned").out)
            preview = sparrow("group", "plan", "planned").out
            assert "standby" in preview
            assert "0 of " in preview
            wider = sparrow("group", "plan", "planned", "--maximum", "0").out
            assert "standby" not in wider
            assert "1 of 2 queues would move" in wider or "of 3 queues would move" in wider
            unasked = sparrow("group", "plan", "planned", "--namesrv", local.namesrv)
            assert "standby" not in unasked.out
            assert "its coordinator could not be asked" in unasked.err
        assert "managed" in sparrow("group", "policy", "planned", "--maximum", "2", status=1).err
    service = json.loads(sparrow("service", "show", "rebalance", "--json").out)
    assert service["leader"]
    assert "is not managed" in sparrow("group", "show", "nobody", status=1).err


def settled(sparrow: Call) -> dict[str, object] | None:
    """The group once its plan is in force; None before."""
    if not [one for one in sparrow("group", "show", "--json").values if one["settled"]]:
        return None
    found: dict[str, object] = json.loads(sparrow("group", "show", "planned", "--json").out)
    return found
