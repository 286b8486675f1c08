from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support import about

from sparrowmq.client.base.settings import (
    RETRY_CODES,
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    PullSettings,
)
from sparrowmq.client.push.push_consumer import PushConsumer
from sparrowmq.core.errors import SettingsError


@pytest.mark.proves("client:D.1", "client:D-01", "client:D-31", "client:A-41", "client:C-08")
def test_defaults_are_rocketmqs() -> None:
    producer, consumer = ProducerSettings(), ConsumerSettings()
    assert (producer.send_timeout, producer.retries, producer.compress_over) == (3.0, 2, 4096)
    assert producer.message_bytes_max == 4 * 1024 * 1024
    assert {1, 2, 14, 16, 17, 204, 205, 1500} == RETRY_CODES["5.x"]
    assert {1, 14, 16, 17, 204, 205} == RETRY_CODES["4.9"]
    assert (consumer.threads, consumer.batch, consumer.pull_batch) == (20, 1, 32)
    assert (consumer.queue_messages_max, consumer.queue_span_max) == (1000, 2000)
    assert consumer.queue_bytes_max == 100 * 1024 * 1024
    assert (consumer.pull_hold, consumer.pull_timeout, consumer.rebalance_interval) == (15.0, 30.0, 20.0)
    assert (consumer.consume_timeout, consumer.error_delay, consumer.persist_interval) == (900, 1.0, 5.0)
    assert (ClientSettings().request_timeout, ClientSettings().connect_timeout) == (3.0, 3.0)
    assert ClientSettings().heartbeat_interval == ClientSettings().route_interval == 30.0


@pytest.mark.proves("client:D.1", "MUST-05")
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (ClientSettings, {"connect_timeout": 0}),
        (ClientSettings, {"close_timeout": -1}),
        (ProducerSettings, {"retries": -1}),
        (ProducerSettings, {"send_timeout": 0}),
        (ProducerSettings, {"message_bytes_max": 16 * 1024 * 1024}),
        (ProducerSettings, {"compression": "gzip"}),
        (ProducerSettings, {"compression_level": 10}),
        (ProducerSettings, {"heartbeat_interval": 0}),
        (ConsumerSettings, {"threads": 0}),
        (ConsumerSettings, {"threads": 1001}),
        (ConsumerSettings, {"batch": 1025}),
        (ConsumerSettings, {"pull_batch": 0}),
        (ConsumerSettings, {"queue_messages_max": 65536}),
        (ConsumerSettings, {"consume_from": "middle"}),
        (ConsumerSettings, {"pull_hold": 30.0, "pull_timeout": 30.0}),
    ],
)
def test_value_out_of_range_is_refused_by_name(kind: Any, values: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as caught:
        kind(**values)
    assert any(name in str(caught.value) for name in values)


def test_point_in_time_is_a_start() -> None:
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    assert ConsumerSettings(consume_from=moment).consume_from == moment
    assert PullSettings(consume_from=1_704_067_200_000).consume_from == 1_704_067_200_000
    for kind in (ConsumerSettings, PullSettings):
        with pytest.raises(SettingsError, check=about(setting="consume_from", value=datetime(2024, 1, 1))):
            kind(consume_from=datetime(2024, 1, 1))


@pytest.mark.proves("client:D-69", "client:D.12", "MUST-68")
def test_ordered_broadcasting_is_refused_with_a_reason() -> None:
    with pytest.raises(SettingsError, check=about(setting="ordered", other="model")):
        ConsumerSettings(model="broadcasting", ordered=True)
    with pytest.raises(SettingsError, check=about(setting="ordered", other="model")):
        PushConsumer("g", model="broadcasting", settings=ConsumerSettings(ordered=True))
    assert ConsumerSettings(model="clustering", ordered=True).ordered
