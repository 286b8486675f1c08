"""Names of RocketMQ's settings that have no counterpart here (RocketMQ 5.5.0 and 4.9.7).

`LATER` holds features that are not in this release: only the value that turns them off is accepted, because a
broker that silently ignored them would lose messages or admit unauthenticated clients. The others tune thread
pools, heaps, caches and other parts of Java: they are accepted without effect and listed in one warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class LaterSetting:
    """A setting whose feature is missing: the only accepted value, the name of the feature, and what to do
    instead.
    """

    accepted: str
    feature: str
    instead: str = ""

    def refusal(self, name: str, text: str) -> str:
        """Why the start is refused with this value."""
        instead = f"; {self.instead}" if self.instead else ""
        return (
            f"{name}={text}: {self.feature} is not in this release; only {name}={self.accepted} is "
            f"accepted{instead}"
        )

    def allows(self, text: str) -> bool:
        """Whether `text` leaves the feature off, ignoring case and surrounding blanks."""
        return text.strip().lower() == self.accepted.lower()


_OFF: Final = {
    "allAckInSyncStateSet": "replication",
    "coldDataFlowControlEnable": "flow control of cold reads",
    "disableConsumeIfConsumerReadSlowly": "stopping of slow groups",
    "duplicationEnable": "log duplication",
    "enableBatchPush": "DLedger",
    "enableCalcFilterBitMap": "bit maps of filters",
    "enableConsumeQueueExt": "the extended consume queue",
    "enableControllerMode": "the controller",
    "enableDLegerCommitLog": "DLedger",
    "enableLmq": "light message queues",
    "enableMultiDispatch": "light message queues",
    "enableSlaveActingMaster": "replication",
    "enabledAppendPropCRC": "the checksum over properties",
    "fetchNameSrvAddrByDnsLookup": "the look-up of name servers",
    "fetchNamesrvAddrByAddressServer": "the look-up of name servers",
    "filterSupportRetry": "filtering of retries",
    "indexRocksDBEnable": "RocksDB",
    "isBrokerContainer": "the broker container",
    "popConsumerKVServiceEnable": "RocksDB",
    "popConsumerKVServiceInit": "RocksDB",
    "rejectPullConsumerEnable": "refusal of pull consumers",
    "rocksdbCQDoubleWriteEnable": "RocksDB",
    "timerRocksDBEnable": "RocksDB",
    "transRocksDBEnable": "RocksDB",
}

_ACCOUNTS: Final = "access control by accounts of RocketMQ 4.x"
_IMPORT: Final = (
    "to turn the accounts into users, type: sparrow acl import plain_acl.yml; then set "
    "authenticationEnabled=true and authorizationEnabled=true instead"
)

LATER: Final[Mapping[str, LaterSetting]] = {
    "aclEnable": LaterSetting("false", _ACCOUNTS, _IMPORT),
    "aclPath": LaterSetting("", _ACCOUNTS, _IMPORT),
    "whiteAddressesAreAdmin": LaterSetting("false", _ACCOUNTS, _IMPORT),
    **{name: LaterSetting("false", feature) for name, feature in _OFF.items()},
    "messageStorePlugIn": LaterSetting("", "the store plug-in"),
    "readOnlyCommitLogStorePaths": LaterSetting("", "a commit log in several directories"),
    "storeType": LaterSetting("default", "RocksDB"),
    "timerPrecisionMs": LaterSetting("1000", "a timer wheel with other steps than seconds"),
    "totalReplicas": LaterSetting("1", "replication"),
}

RENAMED: Final[Mapping[str, str]] = {"strangerMemoryMax": "unauthenticatedMemoryMax"}
"""SparrowMQ's former names, and their successors; an old name still works, with a warning."""

_SERVER: Final = """
enableShutdownGracefully serverAsyncSemaphoreValue serverCallbackExecutorThreads serverNettyWorkerGroupEnable
serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable serverSelectorThreads serverSocketBacklog
serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads shutdownWaitTimeSeconds
useEpollNativeSelector writeBufferHighWaterMark writeBufferLowWaterMark
"""

_BROKER: Final = """
clusterName configName commercialBigCount commercialEnable commercialTimerCount commercialTransCount
filterServerNums haSlaveFallbehindMax maxDelayTime
accessMessageInMemoryHotRatio accountStatsEnable accountStatsPrintZeroValues ackMessageThreadPoolNums
ackThreadPoolQueueCapacity aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond
adminBrokerThreadPoolNums adminBrokerThreadPoolQueueCapacity allowRecallWhenBrokerNotWriteable appendAckAsync
appendCkAsync appendTopicForTimerDeleteKey asyncLearner asyncSendEnable
authenticationMetadataProvider authenticationProvider authenticationStrategy
authorizationMetadataProvider authorizationProvider authorizationStrategy
autoDeleteUnusedStats autoMessageVersionOnTopicLen batchDispatchRequestThreadPoolNums
bitMapLengthConsumeQueueExt bottomMostCompressionTypeForConsumeQueueStore broadcastOffsetExpireMaxSecond
broadcastOffsetExpireSecond brokerConfigPath brokerElectionPriority brokerFastFailureEnable
brokerHeartbeatInterval brokerIP2 brokerNotActiveTimeoutMillis brokerTopicEnable cgColdReadThreshold
channelExpiredTimeout channelNotActiveInterval checkCommitLogOffsetOnRecover checkCRCOnRecover
checkSyncStateSetPeriod cleanOfflineBrokerInterval
cleanRocksDBDirtyCQIntervalMin cleanSwapedMapInterval clearRetryTopicWhenDeleteTopic
clientAsyncSemaphoreValue clientCallbackExecutorThreads clientChannelMaxIdleTimeSeconds
clientCloseSocketIfTimeout clientManagerThreadPoolQueueCapacity clientManageThreadPoolNums
clientOnewaySemaphoreValue clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize
clientWorkerThreads clusterTopicEnable coldCtrStrategyEnable coldDataScanEnable combineAssignOffsetCQType
combineCQEnableCheckSelf combineCQLoadingCQTypes combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType
combineCQUseRocksdbForLmq commercialBaseCount commercialSizePerMsg commitCommitLogLeastPages
commitCommitLogThoroughInterval commitIntervalCommitLog commitLogForceSwapMapInterval commitLogRecoverMaxNum
commitLogSwapMapInterval commitLogSwapMapReserveFileNum compactionCqMappedFileSize compactionMappedFileSize
compactionScheduleInternal compactionThreadNum compatibleWithOldNameSrv compressedRegister configBlackList
configManagerVersion connectTimeoutMillis consumerFallbehindThreshold consumerManagerThreadPoolQueueCapacity
consumerManageThreadPoolNums consumerOffsetUpdateVersionStep controllerAddr controllerHeartBeatTimeoutMills
correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval dataReadAheadEnable debugLockEnable
delayOffsetUpdateVersionStep
deleteConsumeQueueFilesInterval destroyMapedFileIntervalForcibly
disableCallbackExecutor disableNettyWorkerGroup disappearTimeAfterStart diskFallRecorded
dispatchCqCacheNum dispatchCqThreads
dispatchFromSenderThread dLegerGroup dLegerPeers dLegerSelfId enableAcceleratedRecovery enableAsyncReput
enableAutoInSyncReplicas enableBroadcastOffsetStore enableBuildConsumeQueueConcurrently
enableCleanExpiredOffset enableCompaction enableConnectionMetrics enableCreateSysGroup enableDetailStat
enableFastChannelEventProcess enableLagAndDlqMetrics enableLiteEventMode enableLitePopLog enableLmqQuota
enableLmqStats enableLogConsumeQueueRepeatedlyBuildWhenRecover enableMessageStoreMetrics
enableMixedMessageType enableNetWorkFlowControl enableNotifyAfterPopOrderLockRelease
enableNotifyBeforePopCalculateLag enablePopBatchAck enablePopBufferMerge enablePopLog
enablePopMessageThreshold enablePopMetrics enableReconnectForGoAway enableRegisterProducer enableRemoteEscape
enableRemotingMetrics enableRequestMetrics enableRocksDBLog enableRunningFlagsInFlush
enableScheduleAsyncDeliver enableScheduleMessageStats enableSingleTopicRegister enableSkipLongAwaitingAck
enableSplitMetadata enableSplitRegistration enableStatsMetrics enableTransactionMetrics
endTransactionPoolQueueCapacity endTransactionThreadPoolNums estimateAccumulation
fastFailIfNoBufferInStorePool fetchControllerAddrByDnsLookup fetchNamesrvAddrInterval
flushCommitLogLeastPages flushCommitLogThoroughInterval flushCommitLogTimed
flushConsumeQueueLeastPages flushConsumeQueueThoroughInterval flushConsumerOffsetHistoryInterval
flushLeastPagesWhenWarmMapedFile forceRegister forceVerifyPropCRC forwardTimeout
globalColdReadThreshold haFlowControlEnable
heartbeatThreadPoolNums
heartbeatThreadPoolQueueCapacity highSpeedMode indexFileReadEnable indexFileWriteEnable
initPopOffsetByCheckMsgInMem isInBrokerContainer
isolateLogEnable isScanAvailableNameSrv iteratorWhenUseRocksdbConsumeQueue liteEventCheckInterval
liteEventFullDispatchDelayTime liteEventFullDispatchDelayTimeForWildcardGroup liteLagCountMetricsEnable
liteLagLatencyCollectEnable liteLagLatencyMetricsEnable liteLagLatencyTopK litePullMessageEnable
litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity liteSubscriptionCheckInterval
liteSubscriptionCheckTimeoutMills liteTtlCheckInterval loadBalancePollNameServerInterval
loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity lockInStrictMode
logicalDiskSpaceCleanForciblyThreshold logicQueueForceSwapMapInterval logicQueueSwapMapInterval
logicQueueSwapMapReserveFileNum mappedFileSizeConsumeQueueExt mappedFileSwapEnable
mapperFileSizeBatchConsumeQueue maxAsyncPutMessageRequests maxBatchDeleteFilesNum maxChecksumRange
maxClientEventCount maxConsumeQueueScan maxHaTransferByteInSecond
maxLiteSubscriptionCount maxLmqConsumeQueueNum maxMessageFilterNumForNotification
maxOffsetMapSize maxPopPollingSize maxReconnectIntervalTimeSeconds maxRecoveryCommitlogFiles
maxRocksDBIndexQueryDays maxSlaveResendLength maxStatsIdleTimeInMinutes maxTopicLength
maxTransferBytesOnMessageInDisk maxTransferCountOnMessageInDisk memTableFlushIntervalMs
messageIndexSafe
metricLoggingExporterIntervalInMills metricsExportBatchMaxDataPoints
metricsInDelta metricsOtelCardinalityLimit
migrateAuthFromV1Enabled minLiteTTl notifyConsumerIdsChangedEnable
offsetCheckInSlave osPageCacheBusyTimeOutMills persistConsumerOffsetIncrementally popCkMaxBufferSize
popCkOffsetMaxQueueSize popCkStayBufferTime popCkStayBufferTimeOut popConsumerFSServiceInit
popConsumerKVServiceLog
popFromRetryProbabilityForPriority popInflightMessageThreshold popLongPollingForceNotifyInterval
popPollingMapExpireTimeSeconds popPollingMapSize popPollingSize popResponseReturnActualRetryTopic
popReviveConcurrency popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead popReviveSkipIfGroupAbsent
preferredLeaderId printChannelGroups printChannelGroupsMinNum priorityOrderAsc
processReplyMessageThreadPoolNums pullBatchMaxMessageCount pullMessageThreadPoolNums
pullThreadPoolQueueCapacity putConsumeQueueDataByFileChannel putMessageFutureThreadPoolNums putMessageTimeout
putMsgIndexHightWater putThreadPoolQueueCapacity queryMessageThreadPoolNums queryThreadPoolQueueCapacity
readUnCommitted realTimePersistRocksDBConfig recheckReputOffsetFromCq
recoverConcurrently recoverThreadPoolNums redeleteHangedFileInterval
replicasPerDiskPartition replyThreadPoolQueueCapacity reviveAckWaitMs
reviveInterval reviveMaxSlow reviveScanTime rocketmqHome rocksdbCompressionType
rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold sampleCountThreshold sampleSteps
scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked searchBcqByCacheEnable
sendHeartbeatTimeoutMillis sendMessageThreadPoolNums sendThreadPoolQueueCapacity serverLoadBalancerEnable
sharedByteBufferNum skipPreOnline skipWhenCKRePutReachMaxTimes socksProxyConfig
spinLockCollisionRetreatOptimalDegree splitMetadataSize splitRegistrationSize startAcceptSendRequestTimeStamp
statefulAuthenticationCacheExpiredSecond statefulAuthenticationCacheMaxNum
statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum statRocksDBCQIntervalSec
storePathBrokerIdentity storePathDLedgerCommitLog storePathEpochFile
subscriptionExpiredTimeout syncBrokerMemberGroupPeriod syncBrokerMetadataPeriod syncControllerMetadataPeriod
syncFromLastFile syncMasterFlushOffsetWhenStartup timerCheckMetricsWhen timerColdDataCheckIntervalMs
timerCongestNumEachSlot timerEnableCheckMetrics timerEnableDisruptor timerEnableRetryUntilSuccess
timerGetMessageThreadNum timerInterceptDelayLevel
timerMetricSmallThreshold timerProgressLogIntervalMs timerPutMessageThreadNum
timerRecallToTimelineEnable timerRecallToTimeWheelEnable timerReputServiceCorePoolSize
timerReputServiceMaxPoolSize timerReputServiceQueueCapacity timerRocksDBPrecisionMs
timerRocksDBRollIntervalHours timerRocksDBRollMaxTps timerRocksDBRollRangeHours timerRocksDBStopScan
timerRocksDBTimeExpiredMaxTps timerSkipUnknownError timerStopDequeue timerStopEnqueue
timerWarmEnable timerWheelSnapshotFlush timerWheelSnapshotIntervalMs topicQueueLockNum
transactionCheckRocksdbCoreThreads
transactionCheckRocksdbMaxThreads transactionCheckRocksdbQueueCapacity transactionMetricFlushInterval
transactionOpBatchInterval transactionOpMsgMaxSize transferMsgByHeap
transientStorePoolEnable transientStorePoolSize transWriteOriginTransHalfEnable travelCqFileNumWhenGetMessage
updateNameServerAddrPeriod useABSLock useMessageFilterForNotification usePIDColdCtrStrategy
userCacheExpiredSecond userCacheMaxNum userCacheRefreshSecond useReentrantLockWhenPutMessage
useSeparateRetryQueue useSeparateStorePathForRocksdbCQ useSingleRocksDBForAllConfigs
useStaticSubscription validateSystemTopicWhenUpdateTopic waitTimeMillsInAckQueue
waitTimeMillsInAdminBrokerQueue waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue
waitTimeMillsInPullQueue waitTimeMillsInSendQueue waitTimeMillsInTransactionQueue wakeCommitWhenPutMessage
wakeFlushWhenPutMessage warmMapedFileEnable writeWithoutMmap
"""

_NAMESERVER: Final = """
clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity clusterTest configBlackList configStorePath
defaultThreadPoolNums defaultThreadPoolQueueCapacity deleteTopicWithBrokerRegistration enableAllTopicList
enableControllerInNamesrv enableTopicList needWaitForService notifyMinBrokerIdChanged orderMessageEnable
productEnvName returnOrderTopicConfigToBroker rocketmqHome scanNotActiveBrokerInterval
serverChannelMaxIdleTimeSeconds supportActingMaster unRegisterBrokerQueueCapacity waitSecondsForService
"""

BROKER_WITHOUT_EFFECT: Final = frozenset((_BROKER + _SERVER).split())
NAMESERVER_WITHOUT_EFFECT: Final = frozenset((_NAMESERVER + _SERVER).split())
