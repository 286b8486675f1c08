"""Settings with values of the wrong type: the error names the setting and the expected type."""

from __future__ import annotations

import types
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, get_args, get_origin

import pytest
from tests.support import about

from sparrowmq import aio
from sparrowmq.client.base.hooks import Hook
from sparrowmq.client.base.setting_types import declared
from sparrowmq.client.base.settings import ClientSettings, ConsumerSettings, ProducerSettings, PullSettings
from sparrowmq.core.errors import InvalidNameError, SettingsError

NUMBERS = (None, types.UnionType)
"""Where a type is a number, or a number or None."""


@pytest.mark.parametrize(
    ("settings", "values", "said"),
    [
        (ProducerSettings, {"send_timeout": "3"}, r"send_timeout='3' is of type str; must be a number"),
        (ProducerSettings, {"send_timeout": None}, r"send_timeout=None is of type NoneType; must be a"),
        (ProducerSettings, {"send_timeout": True}, r"send_timeout=True is of type bool; must be a number"),
        (ProducerSettings, {"retries": 1.5}, r"retries=1\.5 is of type float; must be a whole number"),
        (ProducerSettings, {"retry_codes": [1]}, r"must be a frozenset of a whole number or None"),
        (ProducerSettings, {"compression": 5}, r"compression=5 .* must be one of 'zlib', 'lz4', 'zstd'"),
        (ClientSettings, {"namesrv": 5}, r"namesrv=5 is of type int; must be a string or None"),
        (ClientSettings, {"hooks": Hook()}, r"must be a sequence of Hook"),
        (ClientSettings, {"hooks": [1]}, r"hooks=\[1\] is of type list; must be a sequence of Hook"),
        (ClientSettings, {"unit_mode": "yes"}, r"unit_mode='yes' is of type str; must be True or False"),
        (ClientSettings, {"tls": "yes"}, r"tls='yes' .* must be True or False or SSLContext"),
        (ClientSettings, {"tls": True, "tls_ca": 5}, r"tls_ca=5 .* must be a string or Path or None"),
        (ConsumerSettings, {"consume_from": 3.5}, r"'first' or datetime or a whole number"),
        (ConsumerSettings, {"threads": "20"}, r"threads='20' is of type str"),
    ],
)  # fmt: skip
def test_wrong_types_are_named(settings: type, values: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        settings(**values)


@pytest.mark.parametrize("name", ["secret_key", "security_token", "tls_key_password"])
def test_secrets_of_a_wrong_type_are_not_shown(name: str) -> None:
    with pytest.raises(SettingsError) as error:
        ClientSettings(**{name: b"hidden"})
    assert name in str(error.value)
    assert "hidden" not in str(error.value)


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(SettingsError) as error:
        ProducerSettings(retries="2", namesrv=5)
    assert len(str(error.value).splitlines()) == 2


def test_types_ranges_and_choices_are_reported_together() -> None:
    with pytest.raises(SettingsError, check=about(setting="retries", value="2")) as error:
        ProducerSettings(retries="2", linger=31, compression="gzip", detector=True)  # type: ignore[arg-type]
    named = [line.partition("=")[0] for line in str(error.value).splitlines()]
    assert named == ["retries", "compression", "linger"], "conflicts are not looked for with wrong types"


def test_conflicts_are_reported_with_the_rest() -> None:
    with pytest.raises(SettingsError, check=about(setting="batch", value=0, limit=1)) as error:
        ConsumerSettings(batch=0, pull_timeout=1.0, model="broadcasting", ordered=True, trace_topic="a b")
    text = str(error.value)
    for name in ("batch=0", "pull_timeout=1.0", "ordered=True", "'a b'"):
        assert name in text
    assert len(text.splitlines()) == 4


def test_one_problem_is_raised_as_it_is() -> None:
    with pytest.raises(InvalidNameError):
        ClientSettings(namespace="a b")
    with pytest.raises(SettingsError, check=about(setting="pull_timeout", limit=15.5, other="pull_hold")):
        ConsumerSettings(pull_timeout=15.0)
    with pytest.raises(SettingsError, check=about(setting="compression_level", limit=9, other="compression")):
        ProducerSettings(compression_level=10)
    with pytest.raises(SettingsError, check=about(setting="consume_from", value="middle")):
        PullSettings(consume_from="middle")  # type: ignore[arg-type]
    assert ProducerSettings(compression="zstd", compression_level=10).compression_level == 10


@pytest.mark.parametrize("kind", [ClientSettings, ProducerSettings, ConsumerSettings, PullSettings])
def test_every_number_has_a_range_that_its_default_is_in(kind: type) -> None:
    defaults = {item.name: item.default for item in fields(kind)}
    for name, (hint, span) in declared(kind).items():
        if {int, float} & {hint, *get_args(hint)} and name != "consume_from" and get_origin(hint) in NUMBERS:
            assert span is not None, f"{name} has no range"
            assert defaults[name] is None or span.low <= defaults[name] <= span.high


def test_valid_types_pass() -> None:
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
def test_arguments_of_clients_are_checked_too(make: Any) -> None:
    with pytest.raises(SettingsError):
        make()
