from __future__ import annotations

import logging
import pickle

import pytest
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.subscription import Sql
from sparrowmq.spark.options.table import ReadOptions, WriteOptions, known_options

BASE = {"nameServer": "127.0.0.1:9876", "subscribe": "orders"}


def _read(use: str | None = None, /, **options: str) -> ReadOptions:
    given = {**BASE, **{name.replace("__", "."): value for name, value in options.items()}}
    return ReadOptions.parse(given, use, {})


def test_names_are_read_in_any_case_and_values_have_types() -> None:
    options = ReadOptions.parse(
        {
            "NAMESERVER": "a:1;b:2",
            "assign": '{"t": {"b": [0]}}',
            "startingoffsets": "latest",
            "failondataloss": "false",
            "maxoffsetspertrigger": "1000",
            "maxtriggerdelay": "5m",
            "fetchoffset.numretries": "2",
            "tags": "A||B",
        },
        "stream",
        {},
    )
    assert options.name_server == "a:1;b:2"
    assert options.assign == (MessageQueue("t", "b", 0),)
    assert options.starting_offsets == "latest"
    assert options.fail_on_data_loss is False
    assert options.max_offsets == 1000
    assert options.max_trigger_delay == 300
    assert options.retries == 2
    assert options.tags == {"A", "B"}
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize("kind", [ReadOptions, WriteOptions])
def test_option_names_differ_in_more_than_case(kind: type) -> None:
    names = [option.name.lower() for option in known_options(kind).values()]
    assert len(set(names)) == len(names) > 5


def test_the_name_server_may_come_from_the_environment() -> None:
    only = {"subscribe": "orders"}
    assert ReadOptions.parse(only, None, {"NAMESRV_ADDR": "a:1"}).name_server == "a:1"
    both = {"NAMESRV_ADDR": "a:1", "SPARROW_NAMESRV": "b:2"}
    assert ReadOptions.parse(only, None, both).name_server == "b:2"
    assert ReadOptions.parse(BASE, None, both).name_server == "127.0.0.1:9876"
    assert WriteOptions.parse({}, both).name_server == "b:2"
    with pytest.raises(SettingsError, check=about(setting="nameServer (from NAMESRV_ADDR)", value="x")):
        ReadOptions.parse(only, None, {"NAMESRV_ADDR": "x"})


def test_without_name_server_or_topic_the_error_speaks_of_tables() -> None:
    with pytest.raises(SettingsError, check=about(setting="nameServer")):
        ReadOptions.parse({"subscribe": "orders"}, None, {})
    with pytest.raises(SettingsError, check=about(setting="subscribe")):
        ReadOptions.parse({"nameServer": "a:1"}, None, {})


def test_more_than_one_choice_of_topics_is_refused() -> None:
    with pytest.raises(SettingsError, check=about(setting="subscribe", other="subscribePattern")):
        _read(subscribePattern="o.*")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("startingOffset", "did you mean startingOffsets?"),
        ("namesrv", "did you mean nameServer?"),
        ("zzz", "known are acceptLoss, accessKey, "),
    ],
)
def test_an_unknown_read_option_names_the_next_step(name: str, hint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        _read(**{name: "1"})
    assert str(caught.value).startswith(f"option {name}='1' is unknown for reads; {hint}")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("kafka.bootstrap.servers", "use nameServer"),
        ("includeHeaders", "use includeProperties"),
        ("kafkaConsumer.pollTimeoutMs", "use brokerTimeoutMs"),
        ("kafka.delivery.timeout.ms", "use brokerTimeoutMs"),
        ("kafka.retries", "leave it out: retries does not apply here"),
        ("kafka.isolation.level", "leave it out: a topic holds only messages of committed transactions"),
        ("kafka.metrics.num.samples", "leave it out; docs/from-kafka.md lists what to use instead"),
    ],
)
def test_names_of_the_kafka_source_lead_to_ours(name: str, told: str) -> None:
    with pytest.raises(SettingsError) as caught:
        ReadOptions.parse({**BASE, name: "x"}, None, {})
    assert str(caught.value) == f"option {name}='x' is an option of the Kafka source; {told}"


@pytest.mark.parametrize("name", ["kafka.group.id", "groupIdPrefix"])
def test_groups_of_the_kafka_source_do_not_lead_to_a_group_that_would_be_moved(name: str) -> None:
    with pytest.raises(SettingsError, check=about(setting=name)) as no:
        ReadOptions.parse({**BASE, name: "billing"}, None, {})
    assert "groupId" not in str(no.value).replace(name, "")


@pytest.mark.parametrize("name", ["kafka.sasl.jaas.config", "kafka.ssl.keystore.key"])
def test_what_holds_accounts_for_kafka_is_not_shown(name: str) -> None:
    with pytest.raises(SettingsError, check=about(setting=name, value=None)) as caught:
        ReadOptions.parse({**BASE, name: "user=me pass=s3cret"}, None, {})
    assert "s3cret" not in str(caught.value)


def test_a_misspelt_secret_is_not_shown() -> None:
    with pytest.raises(SettingsError) as caught:
        _read(secretKye="s3cret")
    assert str(caught.value) == "option secretKye=*** is unknown for reads; did you mean secretKey?"


def test_an_unknown_write_option_names_the_next_step() -> None:
    with pytest.raises(SettingsError, check=about(setting="topics")):
        WriteOptions.parse({"nameServer": "a:1", "topics": "a"}, {})


def test_a_view_may_hold_options_for_reads_and_writes() -> None:
    both = {**BASE, "topic": "out"}
    assert ReadOptions.parse(both, "batch", {}).subscribe == ("orders",)
    assert WriteOptions.parse(both, {}).topic == "out"
    with pytest.raises(SettingsError, check=about(setting="subscribe")):
        ReadOptions.parse({"nameServer": "a:1", "topic": "orders"}, None, {})


def test_options_of_spark_itself_pass() -> None:
    own = {"path": "p", "checkpointLocation": "c", "spark.x": "1", "asyncProgressTrackingEnabled": "true"}
    assert ReadOptions.parse(BASE | own, "batch", {}) == _read("batch")
    assert WriteOptions.parse({"nameServer": "a:1", **own}, {}).name_server == "a:1"


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp"])
def test_ends_are_for_batches(name: str) -> None:
    value = "latest" if name == "endingOffsets" else "1"
    _read("batch", **{name: value})
    with pytest.raises(SettingsError, check=about(setting=name, value=value)):
        _read("stream", **{name: value})


def test_limits_have_no_effect_on_batches_and_say_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sparrowmq.spark"):
        _read("batch", maxOffsetsPerTrigger="5")
    assert "maxOffsetsPerTrigger='5' has no effect" in caplog.text


def test_a_batch_cannot_start_at_the_end() -> None:
    with pytest.raises(SettingsError, check=about(setting="startingOffsets", value="latest")):
        _read("batch", startingOffsets="latest")
    assert _read("stream", startingOffsets="latest").starting_offsets == "latest"


def test_the_group_place_needs_a_group() -> None:
    with pytest.raises(SettingsError, check=about(setting="startingOffsets", value="group", other="groupId")):
        _read(startingOffsets="group")
    assert _read(startingOffsets="group", groupId="g").group_id == "g"


def test_accounts_and_tls_reach_both_ways_and_stay_secret() -> None:
    given = {"accessKey": "me", "secretKey": "s3cret", "securityToken": "t0ken", "tls": "true"}
    files = {"tlsCa": "ca.pem", "tlsCert": "c.pem", "tlsKey": "k.pem", "tlsKeyPassword": "pa55"}
    for options in (
        ReadOptions.parse({**BASE, **given, **files}, None, {}),
        WriteOptions.parse({"nameServer": "a:1", **given, **files, "tlsVerify": "false"}, {}),
    ):
        assert (options.access_key, options.secret_key, options.security_token) == ("me", "s3cret", "t0ken")
        assert (options.tls, options.tls_ca, options.tls_cert, options.tls_key) == (
            True,
            "ca.pem",
            "c.pem",
            "k.pem",
        )
        assert options.tls_verify is isinstance(options, ReadOptions)
        assert not any(secret in repr(options) for secret in ("s3cret", "t0ken", "pa55"))


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"accessKey": "me"}, {"setting": "secretKey", "other": "accessKey"}),
        ({"secretKey": "s3cret"}, {"setting": "accessKey", "other": "secretKey"}),
        ({"securityToken": "x"}, {"setting": "securityToken", "other": "accessKey"}),
        ({"tls": "true", "tlsCert": "c.pem"}, {"setting": "tlsKey", "other": "tlsCert"}),
        ({"tlsCa": "ca.pem"}, {"setting": "tlsCa", "value": "ca.pem", "other": "tls"}),
    ],
)
def test_half_an_account_is_refused(options: dict[str, str], facts: dict[str, str]) -> None:
    for parse in (
        lambda: ReadOptions.parse({**BASE, **options}, None, {}),
        lambda: WriteOptions.parse({"nameServer": "a:1", **options}, {}),
    ):
        with pytest.raises(SettingsError, check=about(**facts)) as caught:
            parse()
        assert "s3cret" not in str(caught.value)


def test_one_filter_goes_to_the_broker() -> None:
    assert _read().expression == "*"
    assert _read(tags="B||A").expression == "A || B"
    assert _read(sql92="a > 1").expression == Sql("a > 1")
    with pytest.raises(SettingsError, check=about(setting="tags", other="sql92")):
        _read(tags="A", sql92="a > 1")


def test_which_topics_are_asked_for() -> None:
    assert _read().reads("orders")
    assert not _read().reads("order")
    assigned = ReadOptions.parse({"nameServer": "a:1", "assign": '{"t": {"b": [0]}}'}, None, {})
    assert [assigned.reads(topic) for topic in ("t", "b")] == [True, False]
    pattern = ReadOptions.parse({"nameServer": "a:1", "subscribePattern": "o.*"}, None, {})
    assert [pattern.reads(topic) for topic in ("orders", "no")] == [True, False]


def test_least_over_most_is_refused() -> None:
    with pytest.raises(
        SettingsError,
        check=about(setting="minOffsetsPerTrigger", value=6, limit=5),
    ):
        _read(minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5")
    with pytest.raises(SettingsError, check=about(setting="minPartitions", value=6, limit=5)):
        _read(minPartitions="6", maxPartitions="5")


def test_write_options() -> None:
    options = WriteOptions.parse(
        {"nameServer": "a:1", "topic": "t", "sendTimeoutMs": "500", "batchBytes": "2048"}, {}
    )
    assert (options.topic, options.send_timeout, options.batch_bytes) == ("t", 0.5, 2048)
    with pytest.raises(SettingsError, check=about(setting="batchBytes", value="1")):
        WriteOptions.parse({"nameServer": "a:1", "batchBytes": "1"}, {})
    with pytest.raises(SettingsError, check=about(setting="jobBatch", value=3, other="jobId")):
        WriteOptions.parse({"nameServer": "a:1", "jobBatch": "3"}, {})


def delivery(**given: str) -> WriteOptions:
    return WriteOptions.parse({"nameServer": "h:1", "topic": "T", **given}, {})


def test_delivery_is_a_promise_to_ask_for() -> None:
    assert delivery().idempotent and not delivery().exactly_once
    assert delivery(delivery="ExactlyOnce").exactly_once
    assert not delivery(delivery="atLeastOnce").idempotent
    with pytest.raises(SettingsError, check=about(setting="delivery", value="twice")):
        delivery(delivery="twice")


def test_earlier_names_of_delivery_still_work(caplog: pytest.LogCaptureFixture) -> None:
    assert delivery(exactlyOnce="true") == delivery(delivery="exactlyOnce")
    assert delivery(idempotent="False") == delivery(delivery="atLeastOnce")
    assert caplog.messages == [
        "option exactlyOnce=true is deprecated: use delivery=exactlyOnce",
        "option idempotent=False is deprecated: use delivery=atLeastOnce",
    ]
    assert delivery(exactlyOnce="false", idempotent="true") == delivery()


def test_names_of_delivery_that_contradict_each_other_are_refused() -> None:
    for name, other, given in (
        ("exactlyOnce", "delivery", {"exactlyOnce": "true", "delivery": "atLeastOnce"}),
        ("idempotent", "exactlyOnce", {"exactlyOnce": "true", "idempotent": "false"}),
        ("exactlyOnce", "idempotent", {"idempotent": "false", "exactlyOnce": "true"}),
    ):
        text = f"option {name}={given[name]} contradicts {other}={given[other]}"
        check = about(setting=name, value=given[name], other=other)
        with pytest.raises(SettingsError, match=text, check=check):
            delivery(**given)
