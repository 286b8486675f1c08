"""Cluster queries, each with its own clients."""

from __future__ import annotations

from sparrowmq.coordinator.cluster.clients import ClusterClients
from sparrowmq.coordinator.cluster.flow import Flow
from sparrowmq.coordinator.cluster.offsets import GroupOffsets
from sparrowmq.coordinator.cluster.survey import Survey
from sparrowmq.coordinator.cluster.view import ObservedCluster
from sparrowmq.core.clock import SystemClock


def offsets(namesrv: str) -> GroupOffsets:
    return GroupOffsets(ClusterClients(namesrv), SystemClock())


def observed(namesrv: str) -> ObservedCluster:
    return ObservedCluster(offsets(namesrv))


def flow(namesrv: str) -> Flow:
    return Flow(offsets(namesrv))


def survey(namesrv: str) -> Survey:
    return Survey(ClusterClients(namesrv), SystemClock())
