"""Asks brokers that failed whether they are back, for the latency fault strategy of 5.x (client:B-64)."""

from __future__ import annotations

import asyncio
from typing import Final

from sparrowmq.client.instance import ClientInstance
from sparrowmq.client.latency import FaultStrategy
from sparrowmq.client.publish_table import PublishTable
from sparrowmq.client.requests import command
from sparrowmq.client.settings import ProducerSettings
from sparrowmq.core.errors import SparrowError
from sparrowmq.protocol import headers
from sparrowmq.protocol.codes import RequestCode, ResponseCode

ROUND_SECONDS: Final = 3.0
"""Between two rounds, and before the first."""


async def detect(
    strategy: FaultStrategy, instance: ClientInstance, table: PublishTable, settings: ProducerSettings
) -> None:
    """One round: ask each broker whose turn it is for an offset; one that answers is reachable again.

    A broker that is in no route any more is forgotten.
    """
    now_ms = asyncio.get_running_loop().time() * 1000
    for name in strategy.due(now_ms, settings.detect_interval * 1000):
        address = instance.routes.master(name)
        if address is None:
            strategy.forget(name)
            continue
        topic = next(iter(table.infos), None)
        if topic is None:
            continue
        header = headers.GetMaxOffsetRequest(topic=topic, queue_id=0, broker_name=name)
        request = command(RequestCode.GET_MAX_OFFSET, header)
        try:
            answer = await instance.remoting.call(address, request, settings.detect_timeout)
        except SparrowError:
            continue  # still away
        if answer.code == ResponseCode.SUCCESS:
            strategy.answered(name)
