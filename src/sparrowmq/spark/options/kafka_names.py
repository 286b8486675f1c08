"""Maps the options of Spark's Kafka source and sink to ours, for users who migrate.

Errors about unknown options use it. `docs/from-kafka.md` has the same table with reasons, and a test compares
the two. Options with the same name and meaning are not listed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

HERE: Final[Mapping[str, tuple[str, ...]]] = {
    "kafka.bootstrap.servers": ("nameServer",),
    "includeHeaders": ("includeProperties",),
    "kafkaConsumer.pollTimeoutMs": ("brokerTimeoutMs",),
    "kafka.delivery.timeout.ms": ("brokerTimeoutMs",),
    "kafka.request.timeout.ms": ("sendTimeoutMs", "brokerTimeoutMs"),
    "kafka.security.protocol": ("tls",),
    "kafka.ssl.truststore.location": ("tlsCa",),
    "kafka.ssl.keystore.location": ("tlsCert", "tlsKey"),
    "kafka.ssl.key.password": ("tlsKeyPassword",),
    "kafka.sasl.mechanism": ("accessKey", "secretKey"),
    "kafka.sasl.jaas.config": ("accessKey", "secretKey"),
    "kafka.max.poll.records": ("batchRows",),
    "kafka.fetch.max.bytes": ("batchBytes",),
    "kafka.retries": ("retries",),
    "kafka.batch.size": ("batchBytes",),
    "kafka.max.request.size": ("maxMessageSize",),
    "kafka.max.in.flight.requests.per.connection": ("maxInFlight",),
    "kafka.enable.idempotence": ("delivery",),
}
"""Kafka's name → the corresponding options here: those for reads and those for writes."""

NOT_NEEDED: Final[Mapping[str, str]] = {
    "groupIdPrefix": "reads do not need a group",
    "kafka.group.id": "reads do not need a group",
    "kafka.session.timeout.ms": "reads do not need a group",
    "kafka.auto.offset.reset": "startingOffsets says where a query starts",
    "kafka.enable.auto.commit": "a query continues from its checkpoint",
    "kafka.isolation.level": "a topic holds only messages of committed transactions",
    "kafka.key.deserializer": "keys are strings",
    "kafka.value.deserializer": "the body is binary, or set by bodyFormat",
    "kafka.key.serializer": "keys are strings",
    "kafka.value.serializer": "the body is a string or binary",
    "kafka.acks": "the brokers' setting flushDiskType decides when a message is acknowledged",
    "kafka.linger.ms": "a task sends when it has batchBytes or its last row",
    "kafka.compression.type": "bodies are sent as they are",
    "kafka.transactional.id": "jobId or the checkpoint identifies the write",
    "kafka.partitioner.class": "the column key, or queue_id and broker, selects the queue of a row",
}
"""Kafka's name → why no option is needed."""

PAGE: Final = "docs/from-kafka.md lists what to use instead"
_PREFIX: Final = "kafka."


def what_it_is_here(key: str, known: Collection[str]) -> str:
    """Advice for an option of the Kafka source, "" if it is none; `known` are the valid names."""
    lower = key.lower()
    here = next((here for name, here in HERE.items() if name.lower() == lower), ())
    reason = next((why for name, why in NOT_NEEDED.items() if name.lower() == lower), "")
    if fitting := [name for name in here if name in known]:
        return f"use {' and '.join(fitting)}"
    if here or reason:
        return f"leave it out: {reason or f'{here[0]} does not apply here'}"
    return f"leave it out; {PAGE}" if lower.startswith(_PREFIX) else ""
