"""Settings as keyword arguments. Made by scripts/generate_options.py: do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence
    from pathlib import Path

    from sparrowmq.client.base.hooks import Hook
    from sparrowmq.client.base.offset_store_protocol import OffsetStore
    from sparrowmq.client.base.settings import (
        AccessChannel,
        Compat,
        Compression,
        ConsumeFrom,
        Model,
        QueueListener,
    )
    from sparrowmq.core.allocation import AllocateStrategy


class ClientOptions(TypedDict, total=False):
    """Settings as keyword arguments: what all clients take."""

    name_server: str | None
    namesrv: str | None
    namesrv_domain: str | None
    namesrv_subgroup: str | None
    instance_name: str | None
    client_ip: str | None
    unit_name: str | None
    connect_timeout: float | None
    request_timeout: float | None
    route_interval: float | None
    heartbeat_interval: float | None
    heartbeat_v2: bool | None
    close_timeout: float | None
    compat: Compat | None
    hooks: Sequence[Hook] | None
    unit_mode: bool | None
    vip_channel: bool | None
    trace: bool | None
    trace_topic: str | None
    access_channel: AccessChannel | None
    trace_batch: int | None
    namespace: str | None
    namespace_v2: str | None
    access_key: str | None
    secret_key: str | None
    security_token: str | None
    tls: bool | ssl.SSLContext | None
    tls_ca: str | Path | None
    tls_cert: str | Path | None
    tls_key: str | Path | None
    tls_key_password: str | None
    tls_verify: bool | None


class ProducerOptions(ClientOptions, total=False):
    """Settings as keyword arguments: what `Producer` takes."""

    send_timeout: float | None
    retries: int | None
    retries_async: int | None
    retry_codes: frozenset[int] | None
    try_timeout: float | None
    retry_not_stored_ok: bool | None
    compress_over: int | None
    compression: Compression | None
    compression_level: int | None
    message_bytes_max: int | None
    create_topic_key: str | None
    create_topic_queues: int | None
    in_flight_max: int | None
    in_flight_bytes_max: int | None
    topics: Sequence[str] | None
    latency_fault: bool | None
    latency_max: Sequence[int] | None
    not_available: Sequence[int] | None
    detector: bool | None
    detect_timeout: float | None
    detect_interval: float | None
    linger: float | None
    linger_bytes: int | None
    linger_total_bytes: int | None
    idempotent: bool | None
    check_threads: int | None
    checks_max: int | None


class ConsumerOptions(ClientOptions, total=False):
    """Settings as keyword arguments: what `PushConsumer` takes."""

    retries: int | None
    model: Model | None
    ordered: bool | None
    consume_from: ConsumeFrom | None
    threads: int | None
    batch: int | None
    pull_batch: int | None
    pull_batch_behind: int | None
    pull_bytes: int | None
    pull_hold: float | None
    pull_timeout: float | None
    pull_interval: float | None
    queue_messages_max: int | None
    queue_bytes_max: int | None
    queue_span_max: int | None
    topic_messages_max: int | None
    topic_bytes_max: int | None
    max_reconsume_times: int | None
    suspend_time: float | None
    auto_commit: bool | None
    consume_timeout: float | None
    redeliver_delay: float | None
    persist_interval: float | None
    rebalance_interval: float | None
    rebalance_interval_min: float | None
    error_delay: float | None
    allocate: AllocateStrategy | None
    lock_interval: float | None
    post_subscription: bool | None
    offset_store: OffsetStore | None
    offset_dir: Path | str | None
    queue_listener: QueueListener | None
    server_assignment: bool | None
    pop_invisible: float | None
    pop_batch: int | None
    pop_unfinished_max: int | None
    managed: bool | None


class PullOptions(ClientOptions, total=False):
    """Settings as keyword arguments: what `PullConsumer` takes."""

    retries: int | None
    model: Model | None
    allocate: AllocateStrategy | None
    offset_store: OffsetStore | None
    offset_dir: Path | str | None
    consume_from: ConsumeFrom | None
    auto_commit: bool | None
    auto_commit_interval: float | None
    pull_batch: int | None
    pull_bytes: int | None
    pull_hold: float | None
    pull_timeout: float | None
    poll_timeout: float | None
    messages_max: int | None
    queue_messages_max: int | None
    queue_bytes_max: int | None
    queue_span_max: int | None
    topic_check_interval: float | None
    persist_interval: float | None
    announce: bool | None
    managed: bool | None
    rebalance: bool | None
    rebalance_interval: float | None
    rebalance_interval_min: float | None
    error_delay: float | None
    max_reconsume_times: int | None
