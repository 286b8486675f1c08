"""Settings: RocketMQ's names, their types and ranges, and the errors."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings.servers import (
    BrokerSettings,
    Layer,
    NameServerSettings,
    SettingStatus,
    from_environment,
    is_loopback,
    load,
    nearest,
    status,
    table,
    without_effect,
)
from sparrowmq.core.settings.text import parse_properties
from sparrowmq.core.settings.without_effect import LATER, RENAMED

ROCKETMQ_DEFAULTS = {
    "defaultMessageRequestMode": "PULL",
    "defaultPopShareQueueNum": -1,
    "metricsExporterType": "DISABLE",
    "metricsPromExporterPort": 5557,
    "metricsGrpcExporterTarget": "",
    "metricsGrpcExporterHeader": "",
    "metricGrpcExporterIntervalInMills": 60_000,
    "metricGrpcExporterTimeOutInMills": 3000,
    "metricsLabel": "",
    "transactionTimeOut": 6000,
    "transactionCheckInterval": 30_000,
    "transactionCheckMax": 15,
    "rejectTransactionMessage": False,
    "storeReplyMessageEnable": True,
    "useServerSideResetOffset": True,
    "slaveReadEnable": False,
    "realTimeNotifyConsumerChange": True,
    "brokerClusterName": "DefaultCluster",
    "brokerId": 0,
    "brokerRole": "ASYNC_MASTER",
    "haMasterAddress": "",
    "haSendHeartbeatInterval": 5000,
    "haHousekeepingInterval": 20_000,
    "haTransferBatchSize": 32 * 1024,
    "haMaxGapNotInSync": 256 << 20,
    "haMaxTimeSlaveNotCatchup": 15_000,
    "minInSyncReplicas": 1,
    "slaveTimeout": 3000,
    "listenPort": 10911,
    "brokerPermission": 6,
    "defaultTopicQueueNums": 8,
    "autoCreateTopicEnable": True,
    "autoCreateSubscriptionGroup": True,
    "traceOn": True,
    "regionId": "DefaultRegion",
    "registerNameServerPeriod": 30_000,
    "registerBrokerTimeoutMills": 24_000,
    "flushConsumerOffsetInterval": 5000,
    "longPollingEnable": True,
    "shortPollingTimeMills": 1000,
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "flushDiskType": "ASYNC_FLUSH",
    "flushIntervalCommitLog": 500,
    "flushIntervalConsumeQueue": 1000,
    "syncFlushTimeout": 5000,
    "maxMessageSize": 4 << 20,
    "diskSpaceWarningLevelRatio": 90,
    "maxTransferBytesOnMessageInMemory": 256 * 1024,
    "maxTransferCountOnMessageInMemory": 32,
    "accessMessageInMemoryMaxRatio": 40,
    "maxFilterMessageSize": 16_000,
    "filterDataCleanTimeSpan": 86_400_000,
    "maxErrorRateOfBloomFilter": 20,
    "expectConsumerNumUseFilter": 32,
    "serverChannelMaxIdleTimeSeconds": 120,
    "tls.server.mode": "permissive",
    "useTLS": False,
    "authenticationEnabled": False,
    "authorizationEnabled": False,
    "initAuthenticationUser": "",
    "innerClientAuthenticationCredentials": "",
    "authenticationWhitelist": "",
    "authorizationWhitelist": "",
    "fileReservedTime": 72,
    "deleteWhen": "04",
    "diskMaxUsedSpaceRatio": 75,
    "diskSpaceCleanForciblyRatio": 85,
    "cleanFileForciblyEnable": True,
    "cleanResourceInterval": 10_000,
    "deleteFileBatchMax": 10,
    "deleteCommitLogFilesInterval": 100,
    "messageIndexEnable": True,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
    "maxMsgsNumBatch": 64,
    "defaultQueryMaxNum": 32,
    "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
    "flushDelayOffsetInterval": 10_000,
    "timerWheelEnable": True,
    "timerMaxDelaySec": 259_200,
    "timerRollWindowSlot": 172_800,
    "reviveQueueNum": 8,
    "enableRetryTopicV2": False,
    "retrieveMessageFromPopRetryTopicV1": True,
    "popFromRetryProbability": 20,
    "timerFlushIntervalMs": 1000,
    "mappedFileSizeTimerLog": 100 << 20,
    "recallMessageEnable": False,
    "traceTopicEnable": False,
    "msgTraceTopicName": "RMQ_SYS_TRACE_TOPIC",
}
"""broker:15.1 and 15.2."""

OURS = {
    *("brokerName", "brokerIP1", "bindAddress", "storePathRootDir", "frameBytesMax", "connectionsMax"),
    *("topicsMax", "queuesMax", "groupsMax", "consumerOffsetsMax", "membersMax", "heldPullsMax"),
    "openTransactionsMax",
    *("connectionMemoryMax", "unauthenticatedMemoryMax"),
    "connectionsPerAddressMax",
    "producerGroupPermissionEnable",
    *("tls.config.file", "authConfigPath", "enablePropertyFilter"),
    *("maxProducerStates", "producerStateExpireHours"),
    *(
        "metricsPromExporterHost",
        "metricsLagByQueue",
        "metricsSeriesMax",
        "logLevel",
        "logFormat",
        "slowRequestTime",
    ),
    *("haListenPort", "haAllowedAddresses", "haCopyFrom", "inSyncReplicas"),
}
"""Names whose default differs from RocketMQ's on purpose, and names of our own."""


def broker(**values: str) -> BrokerSettings:
    return load(BrokerSettings, [Layer("test", values)])[0]


def problem(**values: str) -> str:
    with pytest.raises(SettingsError) as caught:
        broker(**values)
    return str(caught.value)


@pytest.mark.parametrize(("name", "value"), ROCKETMQ_DEFAULTS.items())
def test_defaults_are_rocketmqs(name: str, value: object) -> None:
    row = table(BrokerSettings)[name]
    assert getattr(BrokerSettings(), row.attribute) == value


def test_every_setting_is_rocketmqs_or_listed_as_our_own() -> None:
    rows = set(table(BrokerSettings))
    assert rows == set(ROCKETMQ_DEFAULTS) | OURS | {"namesrvAddr", "storePathCommitLog"}
    assert all(row.help for row in table(BrokerSettings).values())


def test_each_name_is_in_one_table_only() -> None:
    rows = set(table(BrokerSettings))
    idle = without_effect(BrokerSettings)
    assert not rows & idle
    assert not rows & set(LATER)
    assert not idle & set(LATER)


def test_addresses_are_loopback_by_default() -> None:
    settings = BrokerSettings()
    assert (settings.broker_ip1, settings.bind_address) == ("127.0.0.1", "127.0.0.1")
    assert NameServerSettings().bind_address == "127.0.0.1"


def test_every_default_is_in_its_range() -> None:
    for settings_class in (BrokerSettings, NameServerSettings):
        for row in table(settings_class).values():
            assert row.allows(row.default), row.name


def test_texts_are_converted_to_their_types() -> None:
    settings = broker(
        listenPort=" 20911 ",
        autoCreateTopicEnable="FALSE",
        flushDiskType="SYNC_FLUSH",
        storePathRootDir="/data/store",
        storePathCommitLog="",
        namesrvAddr="10.0.0.1:9876; 10.0.0.2:9876",
    )
    assert settings.listen_port == 20911
    assert settings.auto_create_topic_enable is False
    assert settings.flush_disk_type == "SYNC_FLUSH"
    assert settings.store_path_root_dir == Path("/data/store")
    assert settings.store_path_commit_log is None
    assert settings.name_servers == ("10.0.0.1:9876", "10.0.0.2:9876")


def test_home_is_expanded() -> None:
    assert broker(storePathRootDir="~/store").store_path_root_dir == Path.home() / "store"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("listenPort", "99999", "test: listenPort=99999: must be a whole number from 0 to 65535"),
        ("listenPort", "-1", "from 0 to 65535"),
        ("listenPort", "1e3", "test: listenPort=1e3: must be a whole number"),
        ("listenPort", "", "test: listenPort=: must be a whole number"),
        ("longPollingEnable", "yes", "test: longPollingEnable=yes: must be true or false"),
        ("flushDiskType", "SYNC", "must be one of ASYNC_FLUSH, SYNC_FLUSH"),
        ("brokerPermission", "3", "must be one of 2, 4, 6"),
        ("brokerId", "1", "a master has the id 0"),
        ("brokerRole", "SLAVE", "give the slave an id of 1 or more"),
        ("enableDLegerCommitLog", "true", "DLedger is not in this release; only enableDLegerCommitLog=false"),
        ("minInSyncReplicas", "3", "raise inSyncReplicas too"),
        ("haMasterAddress", "somewhere", "is not an address"),
        ("duplicationEnable", "true", "log duplication is not in this release; only duplicationEnable=false"),
        ("filterSupportRetry", "true", "filtering of retries is not in this release"),
        ("listenPrt", "1", "test: listenPrt: there is no such setting; did you mean listenPort?"),
        ("broker_name", "x", "did you mean brokerName?"),
        ("MAXMESSAGESIZE", "1", "did you mean maxMessageSize?"),
        ("zzzz", "1", "there is no such setting; remove it"),
        ("namesrvAddr", "localhost", "'localhost' is not an address; write host:port"),
        ("namesrvAddr", "h:0", "'h:0' is not an address"),
        ("namesrvAddr", "h:65536", "is not an address"),
        ("namesrvAddr", "h:" + "9" * 5000, "is not an address"),
        ("brokerName", "", "brokerName=: must not be empty"),
        ("brokerName", "a@b", "brokerName=a@b"),
        ("messageDelayLevel", "1s 5x", "messageDelayLevel=1s 5x: '5x' is not a delay"),
        ("messageDelayLevel", "", "0 levels: write 1 to"),
        ("deleteWhen", "24", "deleteWhen=24: must be hours"),
        ("authorizationEnabled", "true", "set authenticationEnabled=true too"),
        ("bindAddress", "0.0.0.0", "set brokerIP1 too"),
    ],
)
def test_errors_for_invalid_values_name_what_is_allowed(name: str, value: str, text: str) -> None:
    assert text in problem(**{name: value})


def test_all_problems_are_reported_at_once() -> None:
    text = problem(listenPort="x", listenPrt="1", brokerRole="BACKUP")
    assert len(text.splitlines()) == 3


def test_names_without_effect_cause_one_warning() -> None:
    conf = {
        "sendMessageThreadPoolNums": "4",
        "highSpeedMode": "04",
        "socksProxyConfig": "48",
        "brokerName": "b",
    }
    settings, warnings = load(BrokerSettings, [Layer("a", conf), Layer("b", {"highSpeedMode": "05"})])
    assert settings.broker_name == "b"
    names = "highSpeedMode, sendMessageThreadPoolNums, socksProxyConfig"
    assert warnings == [f"known to RocketMQ, without effect in this release: {names}"]


@pytest.mark.parametrize("name", LATER)
def test_features_of_later_releases_can_be_set_to_off(name: str) -> None:
    assert load(BrokerSettings, [Layer("t", {name: LATER[name].accepted})])[1] == []
    assert status(BrokerSettings, name) is SettingStatus.LATER


def test_later_layers_override_earlier_ones() -> None:
    layers = [Layer("file", {"listenPort": "1", "brokerName": "x"}), Layer("--set", {"listenPort": "2"})]
    settings, _ = load(BrokerSettings, layers)
    assert (settings.listen_port, settings.broker_name) == (2, "x")


@pytest.mark.parametrize(
    ("values", "told", "bound"),
    [
        ({}, "127.0.0.1", "127.0.0.1"),
        ({"brokerIP1": "10.0.0.5"}, "10.0.0.5", "0.0.0.0"),
        ({"brokerIP1": "localhost"}, "localhost", "127.0.0.1"),
        ({"bindAddress": "10.0.0.5"}, "10.0.0.5", "10.0.0.5"),
        ({"bindAddress": "0.0.0.0", "brokerIP1": "10.0.0.5"}, "10.0.0.5", "0.0.0.0"),
        ({"bindAddress": "127.0.0.1", "brokerIP1": "10.0.0.5"}, "10.0.0.5", "127.0.0.1"),
    ],
)
def test_missing_address_is_derived_from_the_other(values: dict[str, str], told: str, bound: str) -> None:
    settings = broker(**values)
    assert (settings.broker_ip1, settings.bind_address) == (told, bound)


def test_ranges_are_checked_for_values_that_are_not_text() -> None:
    with pytest.raises(SettingsError, check=about(setting="listenPort", value=70000)):
        BrokerSettings(listen_port=70000)
    with pytest.raises(SettingsError, check=about(setting="listenPort", value=True)):
        NameServerSettings(listen_port=True)
    with pytest.raises(SettingsError, check=about(setting="traceOn", value=1)):
        BrokerSettings(trace_on=1)  # type: ignore[arg-type]


def test_settings_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        BrokerSettings().listen_port = 1  # type: ignore[misc]


def test_name_server_has_its_own_settings() -> None:
    settings, warnings = load(
        NameServerSettings,
        [Layer("f", {"listenPort": "0", "serverWorkerThreads": "8", "kvConfigPath": "/k"})],
    )
    assert (settings.listen_port, settings.kv_config_path) == (0, Path("/k"))
    assert len(warnings) == 1
    with pytest.raises(SettingsError, match="brokerName: there is no such setting"):
        load(NameServerSettings, [Layer("f", {"brokerName": "x"})])


def test_only_known_names_are_read_from_the_environment() -> None:
    environment = {
        "SPARROW_LISTEN_PORT": "1",
        "SPARROW_BROKER_IP1": "10.0.0.1",
        "SPARROW_TRACE_ON": "false",
        "SPARROW_ACL_ENABLE": "true",
        "SPARROW_PORT_9876_TCP": "tcp://10.0.0.1",
        "PATH": "/bin",
    }
    assert from_environment(BrokerSettings, environment) == {
        "listenPort": "1",
        "brokerIP1": "10.0.0.1",
        "traceOn": "false",
        "aclEnable": "true",
    }
    assert from_environment(BrokerSettings, {"PATH": "/bin"}) == {}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("listenPort", SettingStatus.IN_FORCE),
        ("brokerRole", SettingStatus.IN_FORCE),
        ("enableDLegerCommitLog", SettingStatus.LATER),
        ("deleteWhen", SettingStatus.IN_FORCE),
        ("nonsense", None),
    ],
)
def test_status_of_a_setting(name: str, kind: SettingStatus | None) -> None:
    assert status(BrokerSettings, name) is kind


def test_nearest_name_is_none_for_very_different_names() -> None:
    assert nearest(BrokerSettings, "qqqqqqqq") is None
    assert nearest(NameServerSettings, "listenport") == "listenPort"


@pytest.mark.parametrize(
    ("address", "answer"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("localhost", True), ("::1", True), ("10.0.0.1", False)],
)
def test_loopback_addresses_are_recognized(address: str, answer: bool) -> None:
    assert is_loopback(address) is answer


@pytest.mark.parametrize("more", [{}, {"authenticationEnabled": "true"}])
@pytest.mark.parametrize("name", ["aclEnable", "aclPath", "whiteAddressesAreAdmin"])
def test_accounts_of_4_stop_the_start_and_the_import_is_named(name: str, more: dict[str, str]) -> None:
    """A broker that ignored them would be open to everybody."""
    said = problem(**{name: "true", **more})
    assert f"{name}=true: access control by accounts of RocketMQ 4.x is not in this release" in said
    assert "type: sparrow acl import plain_acl.yml; then set authenticationEnabled=true" in said


def test_accounts_of_4_that_are_off_are_accepted() -> None:
    made = broker(aclEnable="false", aclPath="", whiteAddressesAreAdmin=" False ")
    assert made == broker()
    assert broker(authenticationEnabled="true", authorizationEnabled="true").authorization_enabled


def test_delay_levels_come_from_the_setting() -> None:
    assert broker(messageDelayLevel="2s 1m").delay_levels.delays == (2000, 60_000)


def test_only_the_first_of_many_unknown_names_are_reported() -> None:
    text = problem(**{f"noSuchSetting{number:03}": "x" for number in range(100)})
    assert text.count("there is no such setting") == 20
    assert text.endswith("and 80 more")


CONFS = Path(__file__).parents[2] / "fixtures" / "conf"
"""All settings of RocketMQ's brokers with their defaults, one file for each release."""


@pytest.mark.parametrize("path", sorted(CONFS.glob("*.conf")), ids=lambda path: path.stem)
def test_configuration_with_all_rocketmq_settings_is_accepted(path: Path) -> None:
    pairs = parse_properties(path.read_text())
    assert len(pairs) > 150
    settings, (warning,) = load(BrokerSettings, [Layer(path.name, pairs)])
    assert settings.broker_ip1 == "192.0.2.2"
    assert settings.store_path_root_dir == Path("/home/rocketmq/store")
    told = warning.removeprefix("known to RocketMQ, without effect in this release: ").split(", ")
    rows, later = table(BrokerSettings), set(LATER)
    assert sorted(told) == sorted(pairs.keys() - rows.keys() - later), "each is in force, off, or told"
    assert {"sendMessageThreadPoolNums", "clusterName"} & pairs.keys() <= set(told)


def test_renamed_setting_works_and_the_warning_has_its_new_name() -> None:
    old = {"strangerMemoryMax": "50000000"}
    settings, warnings = load(BrokerSettings, [Layer("broker.conf", old)])
    assert settings.unauthenticated_memory_max == 50_000_000
    text = "broker.conf: strangerMemoryMax is now called unauthenticatedMemoryMax; rename it there"
    assert warnings == [text]
    both = {"unauthenticatedMemoryMax": "60000000", **old}
    assert load(BrokerSettings, [Layer("t", both)])[0].unauthenticated_memory_max == 60_000_000
    assert from_environment(BrokerSettings, {"SPARROW_STRANGER_MEMORY_MAX": "5"}) == {
        "strangerMemoryMax": "5"
    }


def test_only_the_new_names_of_renamed_settings_are_settings() -> None:
    assert not RENAMED.keys() & table(BrokerSettings).keys()
    assert set(RENAMED.values()) <= table(BrokerSettings).keys()
