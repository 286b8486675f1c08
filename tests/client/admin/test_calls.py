from __future__ import annotations

from typing import Any

import pytest
from tests.support import run

from sparrowmq.client.admin.calls import at_each, masters_of
from sparrowmq.core.errors import BrokerError
from sparrowmq.core.route import BrokerData, QueueData, TopicRoute


def test_masters_are_those_of_the_route() -> None:
    brokers = (
        BrokerData("c", "broker-a", {0: "1.1.1.1:1", 1: "1.1.1.2:1"}),
        BrokerData("c", "broker-b", {1: "2.2.2.2:1"}),
        BrokerData("c", "broker-c", {0: "3.3.3.3:1"}),
    )
    route = TopicRoute((QueueData("broker-a", 1, 1, 6),), brokers)
    assert masters_of(route) == {"broker-a": "1.1.1.1:1", "broker-c": "3.3.3.3:1"}
    assert masters_of(TopicRoute((), ())) == {}


def change(error: Exception | None = None) -> Any:
    """A change at one broker that fails with this error."""

    async def asked() -> bytes:
        if error is not None:
            raise error
        return b""

    return asked()


def test_change_that_one_broker_refuses_says_where_it_was_made() -> None:
    """The rest of it is for whoever asked: the others are changed already."""
    refused = BrokerError(1, "12 unread messages of group g", address="2.2.2.2:1")
    with pytest.raises(BrokerError) as told:
        run(at_each({"broker-a": change(), "broker-b": change(refused), "broker-c": change()}))
    assert told.value.code == 1
    assert str(told.value) == (
        "answer 1 from 2.2.2.2:1: 12 unread messages of group g; the change was made at broker-a, broker-c "
        "and not at broker-b: repeat the call when that can do it, or change broker-a, broker-c back"
    )


@pytest.mark.parametrize("others", [0, 1])
def test_change_that_all_brokers_refuse_has_the_first_error_as_it_is(others: int) -> None:
    errors = [BrokerError(1, f"no {number}") for number in range(1 + others)]
    with pytest.raises(BrokerError) as told:
        run(at_each({f"broker-{number}": change(error) for number, error in enumerate(errors)}))
    assert told.value is errors[0]
    assert str(told.value) == "answer 1: no 0"
