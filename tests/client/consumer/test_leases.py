"""Process queues created under grants, and which of them still have running handlers."""

from __future__ import annotations

from sparrowmq.client.cluster.broker_api import no_generation
from sparrowmq.client.consumer.leases import Leases
from sparrowmq.client.consumer.process_queue import Limits
from sparrowmq.core.grants import Orders
from sparrowmq.core.message import MessageQueue

QUEUE = MessageQueue("T", "b", 0)


def test_requests_have_the_current_generation_and_none_for_another_member() -> None:
    leases = Leases(lambda: 0.0)
    carried = leases.generation
    assert carried(QUEUE) is None
    leases.grants.obey(Orders(1, 5.0, {QUEUE: 3}), sent=0.0)
    assert carried(QUEUE) == 3
    leases.begin_again()
    assert carried(QUEUE) is None, "what was made with it hears of other grants"
    assert no_generation(QUEUE) is None


def test_running_handlers_are_known_whatever_read_their_queue() -> None:
    leases = Leases(lambda: 0.0)
    leases.grants.obey(Orders(1, 5.0, {QUEUE: 3}), sent=0.0)
    first = leases.make_queue(QUEUE, 0, Limits(), now=0.0)
    first.began(0.0)
    idle = leases.make_queue(QUEUE, 0, Limits(), now=0.0)
    last = leases.make_queue(QUEUE, 0, Limits(), now=0.0)
    last.began(0.0)
    assert leases.at_work(QUEUE) == [first, last]
    idle.began(0.0)
    assert leases.at_work(QUEUE) == [first, last], "it was passed over when another took its place"
    first.ended()
    assert leases.at_work(QUEUE) == [last]
    leases.forget(QUEUE)
    assert leases.at_work(QUEUE) == []


def test_queue_of_earlier_grants_starts_nothing_under_later_ones() -> None:
    leases = Leases(lambda: 0.0)
    leases.grants.obey(Orders(1, 5.0, {QUEUE: 3}), sent=0.0)
    held = leases.make_queue(QUEUE, 0, Limits(), now=0.0)
    assert held.may_start()
    leases.grants.obey(Orders(2, 5.0, {QUEUE: 4}), sent=0.0)
    assert not held.may_start()
    leases.grants.released(QUEUE)
    leases.grants.obey(Orders(3, 5.0, {QUEUE: 4}), sent=0.0)
    assert not held.may_start()
    assert leases.make_queue(QUEUE, 0, Limits(), now=0.0).may_start()
