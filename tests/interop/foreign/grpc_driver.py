"""RocketMQ's Python client (gRPC): commands as JSON lines in, answers out; see README.md.

Its argument is the directory of the installed packages.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

sys.path.insert(0, sys.argv[1])

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

producers: dict[tuple[str, ...], Any] = {}
consumers: dict[str, tuple[Any, list[Any]]] = {}


def configuration(asked: dict[str, Any]) -> Any:
    keys = Credentials(asked.get("accessKey", ""), asked.get("secretKey", ""))
    return ClientConfiguration(asked["endpoints"], keys)


class Checker(TransactionChecker):
    """Commits what it is asked for."""

    def check(self, message: Any) -> Any:
        return TransactionResolution.COMMIT


def producer_of(asked: dict[str, Any]) -> Any:
    key = (asked["endpoints"], asked["topic"], asked.get("accessKey", ""), asked.get("secretKey", ""))
    if key not in producers:
        made = Producer(configuration(asked), (asked["topic"],), checker=Checker())
        made.startup()
        producers[key] = made
    return producers[key]


def message_of(asked: dict[str, Any], each: dict[str, Any]) -> Any:
    message = Message()
    message.topic = asked["topic"]
    message.body = bytes(each["size"]) if each.get("size") else each["body"].encode()
    if each.get("tag"):
        message.tag = each["tag"]
    if each.get("keys"):
        (message.keys,) = each["keys"]  # this client sets one key only
    if each.get("group"):
        message.message_group = each["group"]
    if each.get("deliverAt"):
        message.delivery_timestamp = each["deliverAt"]
    for name, value in each.get("properties", {}).items():
        message.add_property(name, value)
    return message


def send(asked: dict[str, Any]) -> list[dict[str, Any]]:
    producer = producer_of(asked)
    receipts = [producer.send(message_of(asked, each)) for each in asked["messages"]]
    return [{"id": each.message_id, "recallHandle": each.recall_handle} for each in receipts]


def transact(asked: dict[str, Any]) -> str:
    """A half message; `how` is commit, rollback or leave."""
    producer = producer_of(asked)
    transaction = producer.begin_transaction()
    receipt = producer.send(message_of(asked, {"body": asked["body"]}), transaction)
    if asked["how"] == "commit":
        transaction.commit()
    elif asked["how"] == "rollback":
        transaction.rollback()
    return str(receipt.message_id)


def recall(asked: dict[str, Any]) -> str:
    return str(producer_of(asked).recall_message(asked["topic"], asked["handle"]))


def expression(asked: dict[str, Any]) -> Any:
    if asked.get("sql"):
        return FilterExpression(asked["sql"], FilterType.SQL)
    return FilterExpression(asked.get("expression", "*"))


def shown(message: Any) -> dict[str, Any]:
    return {
        "body": message.body.decode(),
        "tag": message.tag or "",
        "keys": sorted(message.keys or ()),
        "id": message.message_id,
        "group": message.message_group or "",
        "properties": dict(message.properties or {}),
        "attempt": message.delivery_attempt,
    }


def subscribe(asked: dict[str, Any]) -> None:
    made = SimpleConsumer(configuration(asked), asked["group"], {asked["topic"]: expression(asked)}, 5)
    made.startup()
    consumers[asked["consumer"]] = made, []


def receive(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """One receive; each message is acknowledged, or hidden for `hide` seconds, or kept for `settle`."""
    consumer, kept = consumers[asked["consumer"]]
    found = consumer.receive(asked.get("most", 32), asked.get("invisible", 30)) or []
    for message in found:
        if asked.get("hide"):
            consumer.change_invisible_duration(message, asked["hide"])
        elif asked.get("keep"):
            kept.append(message)
        else:
            consumer.ack(message)
    return [shown(message) for message in found]


def settle(asked: dict[str, Any]) -> None:
    """Acknowledge what was kept."""
    consumer, kept = consumers[asked["consumer"]]
    for message in kept:
        consumer.ack(message)
    kept.clear()


def forge(asked: dict[str, Any]) -> None:
    """Acknowledge what was kept with another handle."""
    for message in consumers[asked["consumer"]][1]:
        message.receipt_handle = asked["handle"]
    settle(asked)


def push(asked: dict[str, Any]) -> None:
    got: list[Any] = []
    failed: set[str] = set()

    class Listener(MessageListener):
        def consume(self, message: Any) -> Any:
            always = bool(asked.get("failAlways"))
            fails = always or (bool(asked.get("failFirst")) and message.message_id not in failed)
            failed.add(message.message_id)
            if always or not fails:
                got.append(shown(message))
            return ConsumeResult.FAILURE if fails else ConsumeResult.SUCCESS

    made = PushConsumer(configuration(asked), asked["group"], Listener(), {asked["topic"]: expression(asked)})
    made.startup()
    consumers[asked["consumer"]] = made, got


def stop(asked: dict[str, Any]) -> None:
    consumer, _ = consumers.pop(asked["consumer"])
    consumer.shutdown()


OPERATIONS = {
    "send": send,
    "transact": transact,
    "recall": recall,
    "subscribe": subscribe,
    "receive": receive,
    "settle": settle,
    "forge": forge,
    "push": push,
    "got": lambda asked: consumers[asked["consumer"]][1],
    "stop": stop,
}


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        answer: dict[str, Any]
        try:
            answer = {"result": OPERATIONS[asked["op"]](asked)}
        except Exception as error:
            code = getattr(error, "code", None)
            answer = {"error": f"{type(error).__name__}: {error}"}
            answer["code"] = int(code) if isinstance(code, int) else None
        print(json.dumps({"id": asked["id"], **answer}), flush=True)
    os._exit(0)  # the client's threads may still run


if __name__ == "__main__":
    main()
