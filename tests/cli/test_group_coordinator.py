from __future__ import annotations

import os
import signal
import subprocess
import sys
from ipaddress import ip_network
from typing import TYPE_CHECKING

import pytest
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.cli.common import UsageError
from sparrowmq.cli.group_coordinator import _rules
from sparrowmq.coordinator.plan import Rules

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow

    from sparrowmq.testing import LocalCluster


def test_a_coordinator_gives_a_managed_consumer_its_queues_and_is_steered(
    sparrow: Sparrow, cluster: LocalCluster
) -> None:
    cluster.create_topic("Coordinated", queues=2)
    command = [sys.executable, "-m", "sparrowmq.cli.main", "group", "coordinate", "--port", "0"]
    environment = os.environ | {"SPARROW_NAMESRV": cluster.namesrv}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("coordinator of managed groups at 127.0.0.1:")
            settings = mq.ConsumerSettings(managed=True, consume_from="first")
            seen: list[bytes] = []
            with mq.PushConsumer("coordinated", namesrv=cluster.namesrv, settings=settings) as consumer:
                consumer.subscribe("Coordinated", handler=lambda message: seen.append(message.body))
                with mq.Producer("senders", namesrv=cluster.namesrv) as producer:
                    producer.send(mq.Message("Coordinated", b"hello"))
                    until_sync(lambda: seen == [b"hello"])
                    paused = sparrow(
                        "group", "policy", "coordinated", "--pause", "Coordinated", "--maximum", "2"
                    )
                    assert "nobody, 2 at once" in paused.out
                    producer.send(mq.Message("Coordinated", b"again"))
                    resumed = sparrow(
                        "group", "policy", "coordinated", "--resume", "Coordinated", "--json"
                    ).values
                    assert (resumed[0]["pauses"], resumed[0]["maximum"]) == ([], 2)
                until_sync(lambda: seen == [b"hello", b"again"])
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_rules_are_those_of_named_groups() -> None:
    assert _rules(["g=1"], ["g=10.0.0.0/8", "h=10.1.1.1"], ["g=10.2.0.0/16"]) == {
        "g": Rules((ip_network("10.0.0.0/8"),), (ip_network("10.2.0.0/16"),), 1),
        "h": Rules((ip_network("10.1.1.1/32"),)),
    }


@pytest.mark.parametrize(
    ("maximum", "allow", "text"),
    [("1", "", "names no group"), ("g=x", "", "write GROUP=N"), ("", "g=", "names no group")],
)
def test_rules_that_name_no_group_are_refused(maximum: str, allow: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        _rules([maximum] if maximum else [], [allow] if allow else [], [])
