"""Values of settings that have the wrong type: named, with what they take."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from sparrowmq import aio
from sparrowmq.client.hooks import Hook
from sparrowmq.client.settings import ClientSettings, ConsumerSettings, ProducerSettings
from sparrowmq.core.errors import SettingsError


@pytest.mark.parametrize(
    ("settings", "values", "said"),
    [
        (ProducerSettings, {"send_timeout": "3"}, r"send_timeout='3' is of type str; it takes a number"),
        (ProducerSettings, {"send_timeout": None}, r"send_timeout=None is of type NoneType; it takes a"),
        (ProducerSettings, {"send_timeout": True}, r"send_timeout=True is of type bool; it takes a number"),
        (ProducerSettings, {"retries": 1.5}, r"retries=1\.5 is of type float; it takes a whole number"),
        (ProducerSettings, {"retry_codes": [1]}, r"it takes a frozenset of a whole number or None"),
        (ProducerSettings, {"compression": 5}, r"compression=5 .* it takes one of 'zlib', 'lz4', 'zstd'"),
        (ClientSettings, {"namesrv": 5}, r"namesrv=5 is of type int; it takes a text or None"),
        (ClientSettings, {"hooks": Hook()}, r"it takes a sequence of Hook"),
        (ClientSettings, {"hooks": [1]}, r"hooks=\[1\] is of type list; it takes a sequence of Hook"),
        (ClientSettings, {"unit_mode": "yes"}, r"unit_mode='yes' is of type str; it takes True or False"),
        (ClientSettings, {"tls": "yes"}, r"tls='yes' .* it takes True or False or SSLContext"),
        (ClientSettings, {"tls": True, "tls_ca": 5}, r"tls_ca=5 .* it takes a text or Path or None"),
        (ConsumerSettings, {"consume_from": 3}, r"it takes one of 'last', 'first' or datetime"),
        (ConsumerSettings, {"threads": "20"}, r"threads='20' is of type str"),
    ],
)  # fmt: skip
def test_wrong_types_are_named(settings: type, values: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        settings(**values)


@pytest.mark.parametrize("name", ["secret_key", "security_token", "tls_key_password"])
def test_secrets_of_a_wrong_type_are_not_told(name: str) -> None:
    with pytest.raises(SettingsError) as error:
        ClientSettings(**{name: b"hidden"})
    assert name in str(error.value)
    assert "hidden" not in str(error.value)


def test_all_at_once() -> None:
    with pytest.raises(SettingsError) as error:
        ProducerSettings(retries="2", namesrv=5)
    assert len(str(error.value).splitlines()) == 2


def test_what_fits_passes() -> None:
    codes, now, hooks = frozenset({1}), datetime.now(UTC), (Hook(),)
    producer = ProducerSettings(send_timeout=3, retry_codes=codes)
    assert (producer.send_timeout, producer.retry_codes) == (3, codes)
    assert ConsumerSettings(consume_from=now).consume_from == now
    consumer = ConsumerSettings(consume_from="first", hooks=hooks)
    assert (consumer.consume_from, consumer.hooks) == ("first", hooks)


@pytest.mark.parametrize(
    "make",
    [
        lambda: aio.Producer("g", namesrv=5),
        lambda: aio.Producer("g", send_timeout="3"),
        lambda: aio.PushConsumer("g", namesrv=5),
        lambda: aio.PullConsumer("g", namesrv=5),
        lambda: aio.Admin(namesrv=5),
    ],
)
def test_arguments_of_clients_count_too(make: Any) -> None:
    with pytest.raises(SettingsError):
        make()
