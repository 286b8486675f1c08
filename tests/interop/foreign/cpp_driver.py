"""The C++ side of the interop tests: commands as JSON lines in, answers as JSON lines out.

Runs in a process of its own with the directory of the installed package as its argument. The package is a
thin layer of ctypes over RocketMQ's C++ client, which starts threads and logs to the home directory.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

sys.path.insert(0, sys.argv[1])

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer, RecvMessage
from rocketmq.exceptions import ffi_check
from rocketmq.ffi import dll

CHANNEL = "ALIYUN"
CONSUME_SUCCESS, RECONSUME_LATER = 0, 1
consumers: dict[str, tuple[Any, list[dict[str, Any]]]] = {}


def text(value: bytes | None) -> str | None:
    return value.decode() if value else None


def prepared(client: Any, asked: dict[str, Any]) -> Any:
    client.set_namesrv_addr(asked["namesrv"])
    if asked.get("accessKey"):
        client.set_session_credentials(asked["accessKey"], asked["secretKey"], CHANNEL)
    return client


def send(asked: dict[str, Any]) -> list[dict[str, Any]]:
    producer = prepared(Producer(asked["group"], timeout=5000), asked)
    producer.start()
    sent = []
    try:
        for each in asked["messages"]:
            message = Message(asked["topic"])
            message.set_body(each["body"])
            if each.get("tags"):
                message.set_tags(each["tags"])
            if each.get("keys"):
                message.set_keys(each["keys"])
            if each.get("delay"):
                message.set_delay_time_level(each["delay"])
            for name, value in each.get("properties", {}).items():
                message.set_property(name, value)
            if each.get("shard"):
                result = producer.send_orderly(message, sum(each["shard"].encode()), retry_times=0)
            else:
                result = producer.send_sync(message)
            sent.append({"status": result.status.name, "id": result.msg_id, "offset": result.offset})
    finally:
        producer.shutdown()
    return sent


def start(asked: dict[str, Any]) -> None:
    consumer = prepared(PushConsumer(asked["group"], orderly=asked.get("ordered", False)), asked)
    got: list[dict[str, Any]] = []
    failed: set[bytes] = set()

    def take(_: Any, handle: Any) -> int:
        message = RecvMessage(handle)
        body = message.body
        if asked.get("failFirst") and body not in failed:
            failed.add(body)
            return RECONSUME_LATER
        got.append(
            {
                "body": body.decode(),
                "tags": text(message.tags),
                "keys": text(message.keys),
                "id": message.id,
                "queue": message.queue_id,
                "offset": message.queue_offset,
                "tries": message.reconsume_times,
                "color": text(message["color"]),
            }
        )
        return CONSUME_SUCCESS

    # Not `subscribe`: what its callback raises counts as consumed.
    topic, expression = asked["topic"].encode(), asked.get("expression", "*").encode()
    ffi_check(dll.Subscribe(consumer._handle, topic, expression))
    consumer._register_callback(take)
    consumer.start()
    consumers[asked["consumer"]] = consumer, got


def stop(asked: dict[str, Any]) -> list[dict[str, Any]]:
    consumer, got = consumers.pop(asked["consumer"])
    consumer.shutdown()
    return got


def pull(asked: dict[str, Any]) -> list[str]:
    """The bodies of a topic by the pull consumer, which keeps no offsets at the broker."""
    consumer = prepared(PullConsumer(asked["group"]), asked)
    consumer.start()
    try:
        return [message.body.decode() for message in consumer.pull(asked["topic"], asked["expression"])]
    finally:
        consumer.shutdown()


OPERATIONS = {
    "send": send,
    "start": start,
    "stop": stop,
    "pull": pull,
    "got": lambda asked: consumers[asked["consumer"]][1],
}


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        answer: dict[str, Any]
        try:
            answer = {"result": OPERATIONS[asked["op"]](asked)}
        except Exception as error:
            answer = {"error": str(error)}
        print(json.dumps({"id": asked["id"], **answer}), flush=True)
    os._exit(0)  # the client's threads may still run


if __name__ == "__main__":
    main()
