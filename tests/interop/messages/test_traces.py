"""Traces of pull consumers, and of clients of a cloud: Java's and ours, at Apache's servers and ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.interop.apache import ApacheCluster
from tests.interop.driver import JavaDriver
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.protocol.trace import SubAfterTrace
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop
CLOUD = "rmq_sys_TRACE_DATA_DefaultRegion"


@pytest.fixture(scope="module")
def traced() -> Iterator[LocalCluster]:
    """Our servers, which take traces."""
    with LocalCluster(trace_topic_enable=True) as made:
        yield made


@pytest.fixture(params=["apache", "traced"])
def either(request: pytest.FixtureRequest) -> ApacheCluster | LocalCluster:
    """Apache's servers, then ours."""
    found: ApacheCluster | LocalCluster = request.getfixturevalue(request.param)
    return found


@pytest.mark.proves("client:E-33", "client:E-08", "client:B-111", "client:B-112")
def test_what_pull_consumers_took_is_told_to_both_sides(
    either: ApacheCluster | LocalCluster, driver: JavaDriver, name: str
) -> None:
    driver.admin(either.namesrv).create_topic(either.broker_address, name, 1)
    with mq.Producer(f"{name}_p", namesrv=either.namesrv) as producer:
        sent = producer.send(mq.Message(name, b"hello", keys=f"{name}_k"))
    theirs = driver.call("Traces.poll", namesrv=either.namesrv, group=f"{name}_java", topic=name)
    assert theirs == [sent.message_id]
    settings = mq.PullSettings(namesrv=either.namesrv, trace=True, consume_from="first")
    with mq.PullConsumer(f"{name}_poll", settings=settings) as polling:
        polling.assign([sent.queue])
        assert [message.message_id for message in polling.poll(20)] == [sent.message_id]
    with mq.PullConsumer(f"{name}_pull", settings=settings) as pulling:
        pulling.queues(name)
        assert len(pulling.pull(sent.queue, sent.queue_offset).messages) == 1
    groups = sorted(f"{name}_{way}" for way in ("java", "poll", "pull"))
    expected = sorted((kind, group) for kind in ("SubAfter", "SubBefore") for group in groups)
    with mq.Admin(either.namesrv) as admin:

        def told() -> list[tuple[str, str]]:
            found = admin.messages.trace(sent.message_id)
            return sorted(
                (type(one).__name__.removesuffix("Trace"), getattr(one, "group", "")) for one in found
            )

        until_sync(lambda: told() == expected)
        ends = [one for one in admin.messages.trace(f"{name}_k") if isinstance(one, SubAfterTrace)]
        assert [(one.success, one.context_code) for one in ends] == [(True, 0)] * 3
    arguments = ["queryMsgTraceById", "-i", sent.message_id, "-n", either.namesrv]
    shown = driver.call("Lookups.mqadmin", arguments=arguments)
    for group in groups:
        assert group in shown, shown


@pytest.mark.proves("client:B-110", "client:G-28")
def test_a_clouds_traces_are_read_on_both_sides(
    either: ApacheCluster | LocalCluster, driver: JavaDriver, name: str
) -> None:
    driver.admin(either.namesrv).create_topic(either.broker_address, name, 1)
    where = {"namesrv": either.namesrv, "topic": name, "cloud": True}
    settings = mq.ProducerSettings(namesrv=either.namesrv, trace=True, access_channel="cloud")
    with mq.Producer(f"{name}_p", settings=settings) as producer:
        ours = producer.send(mq.Message(name, b"hello", keys=f"{name}_k2"))
    with mq.Admin(either.namesrv) as admin:
        until_sync(lambda: admin.messages.trace(ours.message_id, topic=CLOUD))  # the topic is there
    theirs = driver.call("Traces.send", group=f"{name}_javap", keys=f"{name}_k1", **where)
    pulling = mq.PullSettings(namesrv=either.namesrv, trace=True, access_channel="cloud")
    with mq.PullConsumer(f"{name}_pull", settings=pulling) as consumer:
        consumer.queues(name)
        consumer.pull(ours.queue, ours.queue_offset, max_messages=1)
    assert theirs in driver.call("Traces.poll", group=f"{name}_java", **where)
    with mq.Admin(either.namesrv) as admin:

        def kinds(about: str) -> list[str]:
            found = admin.messages.trace(about, topic=CLOUD)
            return sorted(type(one).__name__.removesuffix("Trace") for one in found)

        for sent in (theirs, ours.message_id):
            until_sync(lambda sent=sent: {"Pub", "SubAfter", "SubBefore"} <= set(kinds(sent)))
        assert not admin.messages.trace(theirs) and not admin.messages.trace(ours.message_id), (
            "nothing elsewhere"
        )
        bodies = [one.body.decode() for one in driver.dump(either.namesrv, CLOUD)]
    # Java's consumer read both messages, ours one.
    mine = next(
        text for text in bodies if "SubAfter" in text and ours.message_id in text and theirs not in text
    )
    read = {one["type"]: one for one in driver.call("Producers.readTrace", text=mine)}
    assert read["SubAfter"]["success"] and read["SubAfter"]["msg_id"] == ours.message_id
