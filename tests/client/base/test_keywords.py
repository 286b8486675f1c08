"""Settings as keyword arguments of clients."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tests.support import about

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.client.base import options
from sparrowmq.client.base.settings import (
    OTHER_NAMES,
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    PullSettings,
    with_keywords,
)
from sparrowmq.core.errors import SettingsError

KINDS = [ClientSettings, ProducerSettings, ConsumerSettings, PullSettings]


def test_generated_options_are_up_to_date() -> None:
    command = [sys.executable, "-m", "scripts.generate_options", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])
    assert (done.stdout, done.returncode) == ("fresh\n", 0)


@pytest.mark.parametrize("kind", KINDS)
def test_options_have_every_setting(kind: type[ClientSettings]) -> None:
    named = getattr(options, kind.__name__.replace("Settings", "Options"))
    known = {item.name for item in fields(kind)}
    others = {other for other, name in OTHER_NAMES.items() if name in known}
    assert named.__optional_keys__ == known | others


@pytest.mark.parametrize("module", [mq, aio])
def test_clients_take_their_settings_as_keywords(module: Any) -> None:
    server = "10.0.0.1:9876"
    made = [
        module.Producer("g", name_server=server, linger=0.005, connect_timeout=1),
        module.PushConsumer("g", namesrv=server, pull_batch=7, connect_timeout=1),
        module.PullConsumer("g", name_server=server, auto_commit=False, connect_timeout=1),
        module.SimpleConsumer("g", name_server=server, connect_timeout=1),
        module.Admin(server, connect_timeout=1),
        module.Admin(name_server=server, connect_timeout=1),
        module.Admin(namesrv=server, connect_timeout=1),
    ]
    for client in made:
        settings = getattr(client, "_inner", client).settings
        assert (settings.namesrv, settings.connect_timeout) == (server, 1)


@pytest.mark.parametrize("module", [mq, aio])
def test_retries_is_the_word_for_producers_and_consumers(module: Any) -> None:
    assert getattr(made := module.Producer("g", retries=3), "_inner", made).settings.retries == 3
    for kind in (module.PushConsumer, module.PullConsumer, module.Consumer):
        consumer = kind("g", retries=3)
        assert getattr(consumer, "_inner", consumer).settings.max_reconsume_times == 3
    with pytest.raises(SettingsError, check=about(setting="retries", value=-2, limit=-1)):
        module.SimpleConsumer("g", retries=-2)
    with pytest.raises(SettingsError, check=about(setting="retries", value=3, other="max_reconsume_times")):
        module.PushConsumer("g", retries=3, max_reconsume_times=4)


def test_problems_have_the_names_that_were_given() -> None:
    with pytest.raises(SettingsError, check=about(setting="retries", value="3")):
        mq.PushConsumer("g", retries="3")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, check=about(setting="name_server", value=5)):
        mq.Producer("g", name_server=5)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, check=about(setting="max_reconsume_times", value=-2)):
        mq.PullConsumer("g", max_reconsume_times=-2)
    with pytest.raises(SettingsError, check=about(setting="retries", value="3")):
        mq.SimpleConsumer("g", retries="3")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, check=about(setting="retries", value=3, other="max_reconsume_times")):
        mq.SimpleConsumer("g", retries=3, max_reconsume_times=4)
    for name in ("name_server", "namesrv"):
        with pytest.raises(SettingsError, check=about(setting="name_server", other="namesrv")):
            mq.Admin("a:1", **{name: "b:1"})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [mq.Producer, mq.PushConsumer, mq.SimpleConsumer])
def test_settings_of_another_kind_are_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match="must be"):
        kind("g", settings={"linger": 1})
    with pytest.raises(TypeError, match="must be ProducerSettings"):
        mq.Producer("g", settings=ConsumerSettings())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be PullSettings or ClientSettings"):
        mq.PullConsumer("g", settings=ConsumerSettings(consume_from="first"))
    assert mq.PullConsumer("g", settings=ClientSettings(unit_name="u"))._inner.settings.unit_name == "u"


def test_keywords_override_settings_and_none_leaves_them() -> None:
    given = ProducerSettings(retries=5, linger=0.1)
    assert with_keywords(given, {"retries": 0, "linger": None}) == ProducerSettings(retries=0, linger=0.1)
    assert with_keywords(given, {}) is given


def test_unknown_and_contradicting_keywords_are_refused() -> None:
    with pytest.raises(TypeError, match="setting 'retires'; did you mean 'retries'"):
        with_keywords(ProducerSettings(), {"retires": 1})
    with pytest.raises(TypeError, match="setting 'xyzzy'; see the fields of ProducerSettings"):
        with_keywords(ProducerSettings(), {"xyzzy": None})
    with pytest.raises(SettingsError, check=about(setting="name_server", value="a:1", other="namesrv")):
        with_keywords(ProducerSettings(), {"name_server": "a:1", "namesrv": "b:1"})
