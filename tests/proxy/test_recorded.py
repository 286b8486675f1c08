"""Replays recorded exchanges between RocketMQ's clients and Apache's proxy against our proxy.

`tests/fixtures/grpc` has a file for each client; `tests/interop/client5/record_exchanges.py` records them.
Our answers must have the shape of Apache's: the same codes, the same fields set, the same messages."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import grpc.aio
import pytest
from tests.pages import ROOT
from tests.proxy.rig import METHODS, ApiClient, running
from tests.support import run, until

from sparrowmq import aio
from sparrowmq.proxy.definition.messages import Code
from sparrowmq.testing import LocalCluster

FIXTURES: Final = sorted((ROOT / "tests" / "fixtures" / "grpc").glob("*.jsonl"))
WAIT_SECONDS: Final = 20.0
SAME: Final = frozenset(
    {"code", "body", "tag", "keys", "message_id", "message_group", "message_type", "delivery_attempt"}
    | {"body_encoding", "type", "checksum", "client_type", "fifo", "max_attempts", "permission", "scheme"}
    | {"accept_message_types", "validate_message_type", "max_body_size"}
)
"""Fields with the same values; of others it counts that they are set."""
NUMBERS: Final = frozenset({1, 2, 3, 4, 5, 13, 17})
"""Types of fields whose zero looks as if it were not set: floating point and integers of protobuf."""
NOT_MADE: Final = frozenset({"__SHARDINGKEY", "__transactionId__", "TRANSACTION_CHECK_TIMES"})
"""Properties of the brokers that Apache's proxy hands out as if the sender had set them."""
DIFFERENT: Final[Mapping[tuple[str, str], str]] = {
    ("SendMessage", "entries.transaction_id"): "only half messages have a transaction",
    ("Telemetry", "settings.subscription.lite_subscription_quota"): "there are no lite topics",
    ("Telemetry", "settings.subscription.max_lite_topic_size"): "there are no lite topics",
}
"""Fields, by method and path, that only Apache's answers have, and why."""
BETTER: Final[Mapping[tuple[int, int], str]] = {
    (Code.INTERNAL_SERVER_ERROR, Code.INVALID_RECEIPT_HANDLE): "a text that is not a receipt handle",
}
"""Codes that stand for others: Apache's, and ours that says more."""


def lines(path: Path) -> list[dict[str, Any]]:
    """A fixture without its first line, which names its origin."""
    return [json.loads(line) for line in path.read_text().splitlines()][1:]


CASES: Final = sorted({line["case"] for path in FIXTURES for line in lines(path)})


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(
        transaction_time_out=500,
        transaction_check_interval=500,
        recall_message_enable=True,
        enable_property_filter=True,
    ) as made:
        yield made


def shape(message: Any) -> dict[str, Any]:
    """The fields that are set, with the values of those in `SAME`."""
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            if names := sorted(set(value) - NOT_MADE):
                found[field.name] = names
        elif field.message_type is not None:
            several = value if field.is_repeated else [value]
            inner: dict[str, Any] = {}
            for each in several:
                inner |= shape(each)
            well_known = field.message_type.full_name.startswith("google.")
            found[field.name] = "set" if well_known else inner
        elif field.name in SAME:
            found[field.name] = sorted(value) if field.is_repeated else value
        elif field.has_presence or field.type not in NUMBERS:
            found[field.name] = "set"
    return found


def flat(found: dict[str, Any], path: str = "") -> dict[str, Any]:
    """A shape flattened to one level: values by path."""
    level: dict[str, Any] = {}
    for name, value in found.items():
        where = f"{path}.{name}" if path else name
        level |= flat(value, where) if isinstance(value, dict) and value else {where: value}
    return level


def differences(method: str, expected: Any, got: Any) -> list[str]:
    """Paths at which an answer differs from Apache's, with both values."""
    theirs, ours = flat(shape(expected)), flat(shape(got))
    return [
        f"{method} {path}: {ours.get(path, 'absent')} instead of {theirs.get(path, 'absent')}"
        for path in dict.fromkeys([*theirs, *ours])
        if not (theirs.get(path) == ours.get(path) or _may_differ(method, path, theirs, ours))
    ]


def _may_differ(method: str, path: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    if (method, path) in DIFFERENT and path not in ours:
        return True
    return path.endswith("code") and (theirs.get(path), ours.get(path)) in BETTER


class Replay:
    """One case of a fixture, replayed against a proxy. Generated values of Apache's proxy are replaced by
    those of ours."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._swaps: dict[str, str] = {}
        self._clients: dict[str, ApiClient] = {}
        self._streams: list[Any] = []
        self._reading: list[asyncio.Task[None]] = []
        self._told: list[Any] = []
        self._asked_about: dict[str, str] = {}
        self._received: dict[tuple[str, int], Any] = {}

    async def run(self, line: Mapping[str, Any]) -> None:
        """Make one call and compare."""
        method = METHODS[line["method"]]
        requests = [method.request.FromString(base64.b64decode(one)) for one in line["requests"]]
        expected = [method.response.FromString(base64.b64decode(one)) for one in line["responses"]]
        client = self._client(line["metadata"])
        if method.name == "Telemetry":
            await self._telemetry(client, requests, expected)
        elif method.name == "ReceiveMessage":
            await self._receive(client, requests[0], expected)
        elif expected:  # a client may end before it is answered
            (request,) = requests
            await self._prepare(method.name, request)
            got = await client.call(method.name, request)
            self._compare(method.name, expected[0], got)
            self._learn(method.name, expected[0], got)

    async def close(self) -> None:
        """End all streams."""
        for stream in self._streams:
            stream.cancel()
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)

    def _client(self, metadata: Mapping[str, str]) -> ApiClient:
        client_id = metadata["x-mq-client-id"]
        if client_id not in self._clients:
            self._clients[client_id] = ApiClient(self._channel, client_id, dict(metadata))
        return self._clients[client_id]

    def _compare(self, method: str, expected: Any, got: Any) -> None:
        assert differences(method, expected, got) == []

    def _learn(self, method: str, expected: Any, got: Any) -> None:
        """Remember which of our handles replaces which of Apache's."""
        if method == "SendMessage":
            for theirs, ours in zip(expected.entries, got.entries, strict=True):
                self._swap(theirs.transaction_id, ours.transaction_id)
                self._swap(theirs.recall_handle, ours.recall_handle)
        elif method == "ChangeInvisibleDuration":
            self._swap(expected.receipt_handle, got.receipt_handle)

    def _swap(self, theirs: str, ours: str) -> None:
        if theirs:
            self._swaps[theirs] = ours

    async def _prepare(self, method: str, request: Any) -> None:
        """Put our handles and times into a request."""
        if method == "EndTransaction" and (asked := self._asked_about.get(request.transaction_id)):
            command = await self._orphan(asked)
            self._swap(request.transaction_id, command.transaction_id)
        if method == "SendMessage":
            for message in request.messages:
                _deliver_later(message.system_properties)
        for name in ("transaction_id", "recall_handle", "receipt_handle"):
            self._replace(request, name)
        for entry in getattr(request, "entries", ()):
            self._replace(entry, "receipt_handle")

    def _replace(self, message: Any, name: str) -> None:
        if name in message.DESCRIPTOR.fields_by_name:
            theirs = getattr(message, name)
            setattr(message, name, self._swaps.get(theirs, theirs))

    async def _orphan(self, message_id: str) -> Any:
        """The request with which our proxy asks about a half message."""

        def found() -> Any:
            for one in self._told:
                command = one.recover_orphaned_transaction_command
                if command.message.system_properties.message_id == message_id:
                    return command
            return None

        return await until(found, WAIT_SECONDS)

    async def _telemetry(self, client: ApiClient, requests: list[Any], expected: list[Any]) -> None:
        stream = client.telemetry()
        self._streams.append(stream)
        settings = [one for one in expected if one.WhichOneof("command") == "settings"]
        for one in expected:
            if one.WhichOneof("command") == "recover_orphaned_transaction_command":
                command = one.recover_orphaned_transaction_command
                self._asked_about[command.transaction_id] = command.message.system_properties.message_id
        for request in requests:
            await stream.write(request)
            if request.WhichOneof("command") == "settings" and settings:
                self._compare("Telemetry", settings.pop(0), await stream.read())

        async def read() -> None:
            while (told := await stream.read()) is not grpc.aio.EOF:
                self._told.append(told)

        self._reading.append(asyncio.create_task(read()))

    async def _receive(self, client: ApiClient, request: Any, expected: list[Any]) -> None:
        """Receive in as many calls as needed; messages may be split differently between calls."""
        wanted = [one.message for one in expected if one.WhichOneof("content") == "message"]
        if not wanted:  # when there was nothing is a matter of time
            return
        (status,) = (one for one in expected if one.WhichOneof("content") == "status")

        async def all_there() -> bool:
            if all(_key(one) in self._received for one in wanted):
                return True
            async for answer in client.stream("ReceiveMessage", request):
                if answer.WhichOneof("content") == "message":
                    self._received[_key(answer.message)] = answer.message
                elif (
                    answer.WhichOneof("content") == "status" and answer.status.code != Code.MESSAGE_NOT_FOUND
                ):
                    self._compare("ReceiveMessage", status, answer)
            return False

        await until(all_there, WAIT_SECONDS)
        for theirs in wanted:
            ours = self._received.pop(_key(theirs))
            self._compare("ReceiveMessage", theirs, ours)
            self._swap(theirs.system_properties.receipt_handle, ours.system_properties.receipt_handle)


def _key(message: Any) -> tuple[str, int]:
    return message.system_properties.message_id, message.system_properties.delivery_attempt


def _deliver_later(properties: Any) -> None:
    """Make a delay count from now instead of from the time of the recording."""
    if properties.HasField("delivery_timestamp"):
        delay = properties.delivery_timestamp.ToMilliseconds() - properties.born_timestamp.ToMilliseconds()
        properties.delivery_timestamp.GetCurrentTime()
        now = properties.delivery_timestamp.ToMilliseconds()
        properties.delivery_timestamp.FromMilliseconds(now + delay)


async def create(namesrv: str, name: str, kind: str, *, ordered: bool) -> None:
    async with aio.Admin(namesrv=namesrv) as admin:
        await admin.topics.create(name, 2, attributes={"message.type": kind})
        await admin.groups.create(name, ordered=ordered)


async def repeat(namesrv: str, channel: Any, path: Path, case: str) -> None:
    """Repeat what one client sent in one case."""
    replay = Replay(channel)
    try:
        for line in lines(path):
            if line["case"] == case and "create" in line:
                await create(namesrv, **line["create"])
            elif line["case"] == case:
                await replay.run(line)
    except Exception as error:
        error.add_note(f"client: {path.stem}")
        raise
    finally:
        await replay.close()


@pytest.mark.parametrize("case", CASES)
def test_answers_have_the_shape_of_apaches_proxy(cluster: LocalCluster, case: str) -> None:
    """All clients run at the same time: they mostly wait for delayed or invisible messages."""

    async def main() -> None:
        async with running(cluster.namesrv) as proxy, grpc.aio.insecure_channel(proxy.address) as channel:
            await asyncio.gather(*(repeat(cluster.namesrv, channel, path, case) for path in FIXTURES))

    run(main())


def test_every_client_has_a_fixture_with_origin_and_all_calls() -> None:
    origins = [json.loads(path.read_text().splitlines()[0])["origin"] for path in FIXTURES]
    assert len(origins) == 5
    assert all("Apache's proxy" in origin for origin in origins)
    wanted = {"QueryRoute", "Telemetry", "SendMessage", "ReceiveMessage", "AckMessage", "EndTransaction"}
    for path in FIXTURES:
        assert wanted <= {line["method"] for line in lines(path) if "method" in line}, path.stem


def test_missing_field_or_different_code_is_reported() -> None:
    method = METHODS["SendMessage"]
    said = method.response()
    said.status.code = Code.OK
    said.entries.add(message_id="m", transaction_id="t").status.code = Code.OK
    same = method.response()
    same.CopyFrom(said)
    same.entries[0].transaction_id = "another"
    assert differences("SendMessage", said, same) == []
    same.entries[0].status.code = Code.BAD_REQUEST
    assert differences("SendMessage", said, same) == [
        "SendMessage entries.status.code: 40000 instead of 20000"
    ]
    same.CopyFrom(said)
    same.entries[0].message_id = ""
    assert differences("SendMessage", said, same) == ["SendMessage entries.message_id: absent instead of m"]
    same.CopyFrom(said)
    same.entries[0].transaction_id = ""
    assert differences("SendMessage", said, same) == []
    assert differences("SendMessage", same, said) == [
        "SendMessage entries.transaction_id: set instead of absent"
    ]
