"""Every command of `mqadmin` with the arguments it is tried with, and what is expected to differ.

The cases run in this order at one cluster of each kind, which `rig` has filled with a topic, a group and
their clients. `{…}` in the arguments is filled in by the rig; the name servers (`-n`) are added.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Facts(Enum):
    """What of a command's output must be the same."""

    LINES = "every line, without addresses, times, versions and ids"
    NUMBERS = "every line, and any number in place of another"
    NAMES = "the names that Apache's lists, among ours, without the values"
    STATUS = "the exit status and the codes of the answers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A command with its arguments.

    With a `reason`, a difference is expected, and our output or an answer must contain `ours`. Lines with
    one of `leaves_out` do not count; `apart` says what they are. An `endless` command is stopped. `sample`
    belongs to the short run, `guarded` to a cluster with users.
    """

    command: str
    arguments: str = ""
    facts: Facts = Facts.LINES
    reason: str = ""
    ours: str = ""
    sample: bool = False
    guarded: bool = False
    endless: bool = False
    leaves_out: tuple[str, ...] = ()
    apart: str = ""

    @property
    def id(self) -> str:
        """The command as a person types it."""
        return f"{self.command} {self.arguments}".strip()


@dataclass(frozen=True, slots=True)
class Command:
    """A command of `mqadmin`: its subject on the page, and the `sparrow` command that does the same."""

    subject: str
    sparrow: str = ""


TOPICS: Final = "Topics"
GROUPS: Final = "Consumer groups and offsets"
CLIENTS: Final = "Connections"
MESSAGES: Final = "Messages"
BROKERS: Final = "Brokers and clusters"
NAMES: Final = "Name servers"
REPLICAS: Final = "Replicas, controllers, containers"
ACCESS: Final = "Users and permissions"
EXPORTS: Final = "Exports"
LITE: Final = "Lite topics"

COMMANDS: Final = {
    "updateTopic": Command(TOPICS, "topic create"),
    "updateTopicList": Command(TOPICS, "topic create"),
    "deleteTopic": Command(TOPICS, "topic delete"),
    "updateTopicPerm": Command(TOPICS, "topic perm"),
    "topicRoute": Command(TOPICS, "topic route"),
    "topicStatus": Command(TOPICS, "topic status"),
    "topicClusterList": Command(TOPICS, "topic route"),
    "topicList": Command(TOPICS, "topic list"),
    "updateOrderConf": Command(TOPICS, "topic order"),
    "allocateMQ": Command(TOPICS),
    "updateStaticTopic": Command(TOPICS),
    "remappingStaticTopic": Command(TOPICS),
    "updateSubGroup": Command(GROUPS, "group create"),
    "updateSubGroupList": Command(GROUPS, "group create"),
    "setConsumeMode": Command(GROUPS),
    "deleteSubGroup": Command(GROUPS, "group delete"),
    "getConsumerConfig": Command(GROUPS, "group config"),
    "consumerProgress": Command(GROUPS, "group progress"),
    "cloneGroupOffset": Command(GROUPS, "group clone"),
    "resetOffsetByTime": Command(GROUPS, "group reset"),
    "skipAccumulatedMessage": Command(GROUPS, "group reset"),
    "brokerConsumeStats": Command(GROUPS, "broker progress"),
    "startMonitoring": Command(GROUPS, "alarm list"),
    "producerConnection": Command(CLIENTS, "topic producers"),
    "consumerConnection": Command(CLIENTS, "group connections"),
    "consumerStatus": Command(CLIENTS, "group status"),
    "producer": Command(CLIENTS, "broker clients"),
    "sendMessage": Command(MESSAGES, "send"),
    "consumeMessage": Command(MESSAGES, "consume"),
    "queryMsgById": Command(MESSAGES, "message get"),
    "queryMsgByKey": Command(MESSAGES, "message query"),
    "queryMsgByUniqueKey": Command(MESSAGES, "message query"),
    "queryMsgByOffset": Command(MESSAGES, "message get"),
    "queryMsgTraceById": Command(MESSAGES, "trace"),
    "printMsg": Command(MESSAGES, "message search"),
    "printMsgByQueue": Command(MESSAGES, "message search"),
    "queryCq": Command(MESSAGES, "message entries"),
    "checkMsgSendRT": Command(MESSAGES, "broker ping"),
    "sendMsgStatus": Command(MESSAGES, "broker ping"),
    "clusterRT": Command(MESSAGES, "broker ping"),
    "dumpCompactionLog": Command(MESSAGES),
    "clusterList": Command(BROKERS, "cluster list"),
    "brokerStatus": Command(BROKERS, "broker status"),
    "getBrokerConfig": Command(BROKERS, "broker config get"),
    "updateBrokerConfig": Command(BROKERS, "broker config set"),
    "cleanExpiredCQ": Command(BROKERS, "broker clean"),
    "cleanUnusedTopic": Command(BROKERS, "broker clean"),
    "deleteExpiredCommitLog": Command(BROKERS, "broker clean"),
    "statsAll": Command(BROKERS),
    "getColdDataFlowCtrInfo": Command(BROKERS),
    "updateColdDataFlowCtrGroupConfig": Command(BROKERS),
    "removeColdDataFlowCtrGroupConfig": Command(BROKERS),
    "setCommitLogReadAheadMode": Command(BROKERS),
    "checkRocksdbCqWriteProgress": Command(BROKERS),
    "switchTimerEngine": Command(BROKERS),
    "getNamesrvConfig": Command(NAMES, "cluster name-servers"),
    "updateNamesrvConfig": Command(NAMES),
    "updateKvConfig": Command(NAMES, "kv put"),
    "deleteKvConfig": Command(NAMES, "kv delete"),
    "wipeWritePerm": Command(NAMES, "broker read-only"),
    "addWritePerm": Command(NAMES, "broker writable"),
    "haStatus": Command(REPLICAS),
    "resetMasterFlushOffset": Command(REPLICAS),
    "getBrokerEpoch": Command(REPLICAS),
    "getSyncStateSet": Command(REPLICAS),
    "getControllerMetaData": Command(REPLICAS),
    "getControllerConfig": Command(REPLICAS),
    "updateControllerConfig": Command(REPLICAS),
    "electMaster": Command(REPLICAS),
    "cleanBrokerMetadata": Command(REPLICAS),
    "addBroker": Command(REPLICAS),
    "removeBroker": Command(REPLICAS),
    "createUser": Command(ACCESS, "user create"),
    "updateUser": Command(ACCESS, "user update"),
    "deleteUser": Command(ACCESS, "user delete"),
    "getUser": Command(ACCESS, "user list"),
    "listUser": Command(ACCESS, "user list"),
    "copyUser": Command(ACCESS),
    "createAcl": Command(ACCESS, "acl grant"),
    "updateAcl": Command(ACCESS, "acl grant"),
    "deleteAcl": Command(ACCESS, "acl revoke"),
    "getAcl": Command(ACCESS, "acl list"),
    "listAcl": Command(ACCESS, "acl list"),
    "copyAcl": Command(ACCESS),
    "exportMetadata": Command(EXPORTS, "cluster export"),
    "exportConfigs": Command(EXPORTS, "cluster export"),
    "exportMetrics": Command(EXPORTS),
    "exportMetadataInRocksDB": Command(EXPORTS),
    "exportPopRecord": Command(EXPORTS),
    "rocksDBConfigToJson": Command(EXPORTS),
    "getBrokerLiteInfo": Command(LITE),
    "getParentTopicInfo": Command(LITE),
    "getLiteTopicInfo": Command(LITE),
    "getLiteClientInfo": Command(LITE),
    "getLiteGroupInfo": Command(LITE),
    "triggerLiteDispatch": Command(LITE),
}
"""Every command of 5.5.0, in the order of the page."""

UNSERVED: Final = "not supported by this server"


def _differs(command: str, arguments: str, reason: str, ours: str = UNSERVED, **more: Facts) -> Case:
    return Case(command=command, arguments=arguments, reason=reason, ours=ours, **more)


NO_STATIC: Final = "this release has no static topics"
NO_COLD: Final = "this release does not limit reads of old messages"
NO_ROCKSDB: Final = "ours keeps queues and timers in files only"
NO_LITE: Final = "this release has no lite topics"
OWN_SETTINGS: Final = "each lists the settings it has; ours are those of [Settings](settings.md)"

CASES: Final = (
    # Topics
    Case(command="updateTopic", arguments="-c DefaultCluster -t made -r 3 -w 3", sample=True),
    Case(command="updateTopic", arguments="-b {broker} -t made -r 2 -w 2 -a +message.type=FIFO"),
    Case(command="updateTopic", arguments="-b {broker} -t made -a +unknown=1"),
    Case(command="updateTopic", arguments="-b {broker} -t bad*name"),
    Case(command="updateTopicList", arguments="-b {broker} -f {topics}"),
    Case(command="updateTopicPerm", arguments="-b {broker} -t made -p 4"),
    Case(command="updateTopicPerm", arguments="-c DefaultCluster -t made -p 6"),
    Case(command="topicRoute", arguments="-t orders"),
    Case(command="topicRoute", arguments="-t orders -l", sample=True),
    Case(command="topicRoute", arguments="-t nowhere"),
    Case(command="topicStatus", arguments="-t orders", sample=True),
    Case(command="topicStatus", arguments="-t nowhere"),
    Case(command="topicClusterList", arguments="-t orders"),
    Case(
        command="topicList",
        leaves_out=("ROCKSDB", "REVIVE_LOG", "SYNC_BROKER_MEMBER"),
        apart="Apache's system topics for RocksDB, POP and replicas",
    ),
    Case(
        command="topicList",
        arguments="-c",
        leaves_out=("ROCKSDB", "REVIVE_LOG", "SYNC_BROKER_MEMBER"),
        apart="Apache's system topics for RocksDB, POP and replicas",
    ),
    Case(command="updateOrderConf", arguments="-t made -m put -v broker-a:2"),
    Case(command="updateOrderConf", arguments="-t made -m get"),
    Case(command="updateOrderConf", arguments="-t made -m delete"),
    Case(command="updateOrderConf", arguments="-t made -m get"),
    Case(command="allocateMQ", arguments="-t orders -i 10.0.0.1,10.0.0.2,10.0.0.3"),
    # Groups
    Case(command="updateSubGroup", arguments="-b {broker} -g payers -r 3 -q 2 -w 1"),
    Case(command="updateSubGroup", arguments="-c DefaultCluster -g payers -s false"),
    Case(command="updateSubGroupList", arguments="-b {broker} -f {groups}"),
    Case(command="getConsumerConfig", arguments="-g payers", sample=True),
    Case(command="getConsumerConfig", arguments="-g nobody"),
    Case(command="setConsumeMode", arguments="-b {broker} -t orders -g payers -m POP -q 2"),
    Case(command="setConsumeMode", arguments="-c DefaultCluster -t orders -g payers -m PULL"),
    Case(command="consumerProgress"),
    Case(
        command="consumerProgress",
        arguments="-g billing",
        sample=True,
        leaves_out=("Consume TPS", "^%RETRY%"),
        apart="the rate, and the row of the empty retry topic",
    ),
    Case(
        command="consumerProgress",
        arguments="-g billing -t orders -s true",
        leaves_out=("Consume TPS", "^%RETRY%"),
        apart="the rate, and the row of the empty retry topic",
    ),
    Case(command="consumerProgress", arguments="-g nobody"),
    Case(command="brokerConsumeStats", arguments="-b {broker}"),
    Case(command="brokerConsumeStats", arguments="-b {broker} -o true -l 1"),
    Case(command="cloneGroupOffset", arguments="-s billing -d cloned -t orders -o true"),
    Case(command="resetOffsetByTime", arguments="-g cloned -t orders -s now"),
    Case(command="resetOffsetByTime", arguments="-g cloned -t orders -s 0 -b {broker} -q 0 -o 1"),
    Case(command="resetOffsetByTime", arguments="-g nobody -t orders -s now"),
    Case(command="resetOffsetByTime", arguments="-g cloned -t nowhere -s now"),
    Case(command="skipAccumulatedMessage", arguments="-g cloned -t orders"),
    Case(command="startMonitoring", facts=Facts.STATUS),
    # Connections
    Case(command="producerConnection", arguments="-g shop -t orders", sample=True),
    Case(command="producerConnection", arguments="-g nobody -t orders"),
    Case(command="consumerConnection", arguments="-g billing", sample=True),
    Case(command="consumerConnection", arguments="-g billing -b {broker}"),
    Case(command="consumerConnection", arguments="-g nobody"),
    Case(command="consumerStatus", arguments="-g billing", facts=Facts.NUMBERS),
    Case(command="consumerStatus", arguments="-g billing -i {client}", facts=Facts.NAMES),
    Case(command="consumerStatus", arguments="-g nobody"),
    Case(command="producer", arguments="-b {broker}"),
    # Messages
    Case(command="sendMessage", arguments="-t sent -p body -k key -c TagA", facts=Facts.NUMBERS),
    Case(command="sendMessage", arguments="-t sent -p body -b broker-a -i 1"),
    Case(command="sendMessage", arguments="-t sent -p body -b broker-a -i 99"),
    Case(command="sendMessage", arguments="-t sent -p body -b broker-a -i 1 -m true"),
    Case(command="consumeMessage", arguments="-t orders -b broker-a -i 0 -o 0 -c 1"),
    Case(command="consumeMessage", arguments="-t orders -c 1"),
    Case(command="queryMsgById", arguments="-t orders -i {offset_id}", sample=True),
    Case(
        command="queryMsgById",
        arguments="-t orders -i {offset_id} -g billing -d {client}",
        facts=Facts.NUMBERS,
    ),
    Case(command="queryMsgById", arguments="-t orders -i {missing_id}"),
    Case(command="queryMsgByKey", arguments="-t orders -k key-1"),
    Case(command="queryMsgByKey", arguments="-t orders -k nothing"),
    Case(command="queryMsgByUniqueKey", arguments="-t orders -i {message_id}"),
    Case(command="queryMsgByUniqueKey", arguments="-t orders -i {message_id} -a"),
    Case(command="queryMsgByOffset", arguments="-t orders -b broker-a -i 1 -o 0"),
    Case(command="queryMsgByOffset", arguments="-t orders -b broker-a -i 1 -o 77"),
    Case(command="queryMsgTraceById", arguments="-i {message_id}"),
    Case(command="printMsg", arguments="-t orders"),
    Case(command="printMsg", arguments="-t orders -s TagB -d false"),
    Case(command="printMsgByQueue", arguments="-t orders -a broker-a -i 1 -p true -d true -f true"),
    Case(command="queryCq", arguments="-t orders -q 1 -i 0 -c 5", sample=True),
    Case(command="queryCq", arguments="-t orders -q 1 -i 0 -b {broker} -g billing"),
    Case(command="queryCq", arguments="-t nowhere -q 1 -i 0 -b {broker}"),
    Case(command="checkMsgSendRT", arguments="-t sent -a 4 -s 10", facts=Facts.NUMBERS),
    Case(command="sendMsgStatus", arguments="-b broker-a -c 2 -s 10", facts=Facts.NUMBERS),
    Case(command="clusterRT", arguments="-c DefaultCluster -a 3 -s 10", facts=Facts.NUMBERS, endless=True),
    Case(command="dumpCompactionLog", arguments="-f {directory}/none"),
    # Brokers and clusters
    Case(command="clusterList", facts=Facts.NUMBERS, sample=True),
    Case(command="clusterList", arguments="-m", facts=Facts.NUMBERS),
    Case(command="clusterList", arguments="-c nowhere"),
    Case(command="brokerStatus", arguments="-b {broker}", facts=Facts.NAMES),
    Case(command="brokerStatus", arguments="-c DefaultCluster", facts=Facts.NAMES),
    _differs("getBrokerConfig", "-b {broker}", OWN_SETTINGS, "fileReservedTime", facts=Facts.NAMES),
    _differs("getBrokerConfig", "-c DefaultCluster", OWN_SETTINGS, "fileReservedTime", facts=Facts.NAMES),
    Case(command="updateBrokerConfig", arguments="-b {broker} -k fileReservedTime -v 70"),
    Case(command="updateBrokerConfig", arguments="-c DefaultCluster -k fileReservedTime -v 71"),
    _differs(
        "updateBrokerConfig",
        "-b {broker} -k maxHashSlotNum -v 1000",
        "Apache's reports a success that has no effect until a restart; ours refuses what needs one",
        "maxHashSlotNum: cannot change while the broker runs",
    ),
    Case(command="cleanExpiredCQ", arguments="-b {broker}"),
    Case(command="cleanExpiredCQ", arguments="-c DefaultCluster"),
    Case(command="cleanUnusedTopic", arguments="-b {broker}"),
    Case(command="cleanUnusedTopic", arguments="-c DefaultCluster"),
    Case(command="deleteExpiredCommitLog", arguments="-b {broker}"),
    Case(command="deleteExpiredCommitLog", arguments="-c DefaultCluster"),
    Case(command="statsAll", arguments="-t orders", facts=Facts.NUMBERS),
    Case(command="statsAll", arguments="-a", facts=Facts.STATUS),
    _differs("getColdDataFlowCtrInfo", "-b {broker}", NO_COLD),
    _differs("updateColdDataFlowCtrGroupConfig", "-b {broker} -g billing -v 1000000", NO_COLD),
    _differs("removeColdDataFlowCtrGroupConfig", "-b {broker} -g billing", NO_COLD),
    _differs("setCommitLogReadAheadMode", "-b {broker} -m 0", NO_COLD),
    _differs("setCommitLogReadAheadMode", "-b {broker} -m 1", NO_COLD),
    _differs("checkRocksdbCqWriteProgress", "-c DefaultCluster -t orders -cf 0", NO_ROCKSDB),
    _differs("switchTimerEngine", "-b {broker} -e F", NO_ROCKSDB),
    # Name servers
    _differs("getNamesrvConfig", "", OWN_SETTINGS, "orderMessageEnable", facts=Facts.NAMES),
    Case(command="updateNamesrvConfig", arguments="-k orderMessageEnable -v true"),
    Case(command="updateNamesrvConfig", arguments="-k kvConfigPath -v /tmp/other"),
    Case(command="updateKvConfig", arguments="-s tools -k key -v value", sample=True),
    Case(command="deleteKvConfig", arguments="-s tools -k key"),
    Case(command="wipeWritePerm", arguments="-b broker-a", facts=Facts.NUMBERS),
    Case(command="addWritePerm", arguments="-b broker-a", facts=Facts.NUMBERS),
    # Replicas, controllers, containers
    Case(command="haStatus", arguments="-b {broker}", facts=Facts.NUMBERS),
    Case(command="haStatus", arguments="-c DefaultCluster", facts=Facts.NUMBERS),
    _differs("resetMasterFlushOffset", "-b {broker} -o 0", "ours keeps no such offset"),
    Case(command="getBrokerEpoch", arguments="-b broker-a"),
    Case(command="getSyncStateSet", arguments="-a {broker} -b broker-a"),
    Case(command="getControllerMetaData", arguments="-a {broker}"),
    Case(command="getControllerConfig", arguments="-a {broker}"),
    Case(command="updateControllerConfig", arguments="-a {broker} -k enableElectUncleanMaster -v true"),
    Case(command="electMaster", arguments="-a {broker} -b 1 -n broker-a -c DefaultCluster"),
    Case(command="cleanBrokerMetadata", arguments="-a {broker} -b 1 -bn broker-a -c DefaultCluster"),
    Case(command="addBroker", arguments="-c {broker} -b /nowhere/broker.conf"),
    Case(command="removeBroker", arguments="-c {broker} -b DefaultCluster:broker-a:1"),
    # Users and permissions
    _differs(
        "listUser",
        "-b {broker}",
        "no users without access control: ours says so, Apache's fails with an error",
    ),
    Case(command="createUser", arguments="-b {broker} -u ann -p secret123", guarded=True),
    Case(command="createUser", arguments="-c DefaultCluster -u bob -p secret123 -t Super", guarded=True),
    Case(command="createUser", arguments="-b {broker} -u ann -p secret123", guarded=True),
    Case(command="updateUser", arguments="-b {broker} -u ann -p secret456", guarded=True),
    Case(command="updateUser", arguments="-b {broker} -u ann -s disable", guarded=True),
    Case(command="updateUser", arguments="-b {broker} -u nobody -p secret456", guarded=True),
    Case(command="getUser", arguments="-b {broker} -u ann", guarded=True, sample=True),
    Case(command="getUser", arguments="-b {broker} -u nobody", guarded=True),
    Case(
        command="listUser",
        arguments="-b {broker}",
        guarded=True,
        leaves_out=("^inner ",),
        apart="the user with which Apache's brokers call each other",
    ),
    Case(command="listUser", arguments="-c DefaultCluster -f ann", guarded=True),
    Case(command="copyUser", arguments="-f {broker} -t {broker} -u ann", guarded=True),
    Case(
        command="createAcl",
        arguments="-b {broker} -s User:ann -r Topic:orders,Group:* -a Pub,Sub -d Allow -i 10.0.0.0/8",
        guarded=True,
    ),
    Case(
        command="createAcl",
        arguments="-b {broker} -s User:ann -r Topic:orders -a Pub -d Allow",
        guarded=True,
    ),
    Case(
        command="updateAcl",
        arguments="-b {broker} -s User:ann -r Topic:orders -a Pub -d Deny -i 10.0.0.1",
        guarded=True,
    ),
    Case(command="getAcl", arguments="-b {broker} -s User:ann", guarded=True, sample=True),
    Case(command="getAcl", arguments="-b {broker} -s User:nobody", guarded=True),
    Case(command="listAcl", arguments="-b {broker}", guarded=True),
    Case(command="listAcl", arguments="-c DefaultCluster -s ann -r orders", guarded=True),
    Case(command="copyAcl", arguments="-f {broker} -t {broker} -s User:ann", guarded=True),
    Case(command="deleteAcl", arguments="-b {broker} -s User:ann -r Topic:orders", guarded=True),
    Case(command="deleteAcl", arguments="-b {broker} -s User:ann", guarded=True),
    Case(command="deleteUser", arguments="-b {broker} -u ann", guarded=True),
    Case(command="deleteUser", arguments="-b {broker} -u nobody", guarded=True),
    # Exports
    Case(command="exportMetadata", arguments="-c DefaultCluster -f {directory}"),
    Case(
        command="exportMetadata",
        arguments="-b {broker} -t -f {directory}",
        leaves_out=('"counter"',),
        apart="the counter of changes",
    ),
    Case(
        command="exportMetadata",
        arguments="-b {broker} -g -f {directory}",
        leaves_out=('"counter"',),
        apart="the counter of changes",
    ),
    Case(command="exportConfigs", arguments="-c DefaultCluster -f {directory}"),
    Case(
        command="exportMetrics",
        arguments="-c DefaultCluster -f {directory}",
        facts=Facts.NAMES,
        leaves_out=("^cpuNum$",),
        apart="`cpuNum`, which the tool takes from a setting about threads",
    ),
    Case(command="exportMetadataInRocksDB", arguments="-p {directory}/none -t topics"),
    _differs("exportPopRecord", "-b {broker} -d true", "POPs cannot be rolled back"),
    Case(command="rocksDBConfigToJson", arguments="-b {broker} -t topics"),
    # Lite topics
    _differs("getBrokerLiteInfo", "-b {broker}", NO_LITE),
    _differs("getParentTopicInfo", "-p orders", NO_LITE),
    _differs("getLiteTopicInfo", "-p orders -l one", NO_LITE),
    _differs("getLiteClientInfo", "-p orders -g billing -c {client}", NO_LITE),
    _differs("getLiteGroupInfo", "-p orders -g billing", NO_LITE),
    _differs("triggerLiteDispatch", "-p orders -g billing", NO_LITE),
    # Static topics: after them Apache's tools cannot read its topics any more
    _differs("updateStaticTopic", "-c DefaultCluster -t static -qn 4", NO_STATIC),
    _differs(
        "remappingStaticTopic", "-c DefaultCluster -t static", NO_STATIC, "No topic route to do the remapping"
    ),
    # Deletions, and what ends with an exit status
    Case(command="deleteSubGroup", arguments="-b {broker} -g payers -r true"),
    Case(command="deleteSubGroup", arguments="-c DefaultCluster -g nobody"),
    Case(command="deleteTopic", arguments="-c DefaultCluster -t made", sample=True),
    Case(command="deleteTopic", arguments="-c DefaultCluster -t nowhere"),
    Case(command="deleteTopic", arguments="-c nowhere -t orders"),
    Case(command="updateTopic"),
    Case(command="topicRoute", arguments="-h"),
)
