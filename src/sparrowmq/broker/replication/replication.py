"""A master's part of replication, as its settings say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from sparrowmq.broker.access.address_patterns import address_pattern
from sparrowmq.broker.replication.in_sync import InSyncSet
from sparrowmq.broker.replication.master import Master
from sparrowmq.broker.replication.replicas import Replicas

if TYPE_CHECKING:
    from sparrowmq.broker.replication.reign import Reign
    from sparrowmq.core.clock import Clock, Sleep
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.store.message_store import MessageStore

OWN_MACHINE = "127.0.0.1,0:0:0:0:0:0:0:1"


def make_master(
    settings: BrokerSettings,
    store: MessageStore,
    clock: Clock,
    reign: Reign,
    *,
    sleep: Sleep = asyncio.sleep,
) -> Master:
    """A master's part."""
    record, members = reign.record, None
    if record.is_managed:
        members = InSyncSet(reign.address, patience=settings.ha_max_time_slave_not_catchup / 1000)
        members.ordered(record.in_sync, record.number, clock.monotonic())
    replicas = Replicas(
        # The in-sync set says who must have a message: with it, one broker alone may be enough.
        needed=settings.in_sync_replicas if members is None else 1,
        needed_before=settings.min_in_sync_replicas,
        gap_max=settings.ha_max_gap_not_in_sync,
        timeout=settings.slave_timeout / 1000,
        begun=store.position,
        members=members,
    )
    return Master(
        store.raw_log,
        replicas,
        clock,
        may_connect=allowed_addresses(settings),
        may_acknowledge=reign.may_acknowledge,
        batch=settings.ha_transfer_batch_size,
        heartbeat=settings.ha_send_heartbeat_interval / 1000,
        silence=settings.ha_housekeeping_interval / 1000,
        sleep=sleep,
    )


def allowed_addresses(settings: BrokerSettings) -> Callable[[str], bool]:
    """Which numeric addresses may copy the log: those in the setting. Without the setting all may, but with
    access control or required TLS only those of this machine, because the HA protocol has neither accounts
    nor TLS. Raises `SettingsError` for a bad pattern.
    """
    texts = [text for text in settings.ha_allowed_addresses.split(";") if text.strip()]
    if not texts:
        is_guarded = settings.authentication_enabled or settings.tls_server_mode == "enforcing"
        texts = [OWN_MACHINE if is_guarded else "*"]
    patterns = [address_pattern(text) for text in texts]
    return lambda host: any(matches(host) for matches in patterns)
