"""SparrowMQ for asyncio: the same names as `sparrowmq`, with `async` methods."""

from sparrowmq.client.admin import Admin
from sparrowmq.client.delivery import DeliveredMessage
from sparrowmq.client.producer import Producer
from sparrowmq.client.pull_consumer import PullConsumer
from sparrowmq.client.push_consumer import PushConsumer

__all__ = ["Admin", "DeliveredMessage", "Producer", "PullConsumer", "PushConsumer"]
