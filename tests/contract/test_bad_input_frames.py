"""Hostile bytes at the ports of broker and name server: their clients are refused, others do not notice."""

from __future__ import annotations

import asyncio
import os
import random
import struct
import zlib
from collections.abc import Iterator

import pytest
from tests.contract.bad_input import (
    TOPIC,
    Round,
    ask,
    ask_route,
    connected,
    neighbour,
    send_one,
    send_request,
)
from tests.protocol.recorded import command, exchanges
from tests.support import run, until
from tests.transport.helpers import Peer

from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import FLAG_ONEWAY, FLAG_RESPONSE, Command, encode
from sparrowmq.protocol.headers import RegisterBrokerRequest, to_ext
from sparrowmq.testing import LocalCluster

LONG = os.environ.get("SPARROW_TEST_TIER") == "long"
PREFIX = struct.Struct(">iI")
COMPACT = struct.Struct(">hBhii")
DEEP = 100_000


def framed(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    return PREFIX.pack(4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def compact(fields_size: int, rest: bytes = b"") -> bytes:
    head = COMPACT.pack(RequestCode.HEART_BEAT, 0, 475, 1, 0) + struct.pack(">ii", 0, fields_size)
    return framed(head + rest, kind=1)


CLOSED = {
    "random bytes": random.Random(1).randbytes(4096),
    "zeros": bytes(100),
    "text": b"hello broker, how are you?\r\n",
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),
    "huge length": PREFIX.pack(2**31 - 1, 10),
    "length over the limit": PREFIX.pack(16 * 1024 * 1024, 10),
    "negative length": PREFIX.pack(-1, 10),
    "smallest length": PREFIX.pack(-(2**31), 10),
    "length too small": PREFIX.pack(3, 0),
    "header longer than the frame": PREFIX.pack(10, 100) + bytes(6),
    "longest header": PREFIX.pack(10, 0xFFFFFF) + bytes(6),
    "no header": framed(b""),
    "not json": framed(b"hello world"),
    "json array": framed(b"[]"),
    "json null": framed(b"null"),
    "cut json": framed(b'{"code":34,"extFields":{"a":"b"'),
    "no code": framed(b'{"opaque":1}'),
    "code as text": framed(b'{"code":"many"}'),
    "code as fraction": framed(b'{"code":1.5}'),
    "fields as list": framed(b'{"code":34,"extFields":[]}'),
    "nested fields": framed(b'{"code":34,"extFields":{"a":{}}}'),
    "deep fields": framed(b'{"code":34,"extFields":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}"),
    "deep unknown member": framed(b'{"code":34,"x":' + b"[" * DEEP + b"]" * DEEP + b"}"),
    "invalid UTF-8": framed(b'{"code":34,"remark":"\xff\xfe"}'),
    "invalid UTF-8 in a send": encode(send_request(b"x", topic="TOPIC")).replace(b"TOPIC", b"TOP\xff\xfe"),
    "lone surrogate": framed(b'{"code":34,"remark":"\\ud800"}'),
    "header type 2": framed(b'{"code":34}', kind=2),
    "header type 255": framed(b'{"code":34}', kind=255),
    "compact garbage": framed(random.Random(2).randbytes(200), kind=1),
    "compact header cut": framed(b"\x00\x22\x00", kind=1),
    "compact fields missing": compact(1000),
    "compact fields negative": compact(-1),
    "compact fields huge": compact(2**31 - 1),
    "compact name beyond the end": compact(4, b"\xff\xff\x00\x00"),
    "compact negative value": compact(7, b"\x00\x01a" + struct.pack(">i", -5)),
    "compact invalid UTF-8": compact(8, b"\x00\x01\xff" + struct.pack(">i", 1) + b"\xff"),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    # named so that recorded requests, which are valid before they are damaged, do not mean this broker
    with LocalCluster(broker_name="mine", broker_cluster_name="Mine") as running:
        running.create_topic(TOPIC, queues=1)
        yield running


@pytest.fixture(params=["broker", "name server"])
def target(request: pytest.FixtureRequest, cluster: LocalCluster) -> tuple[str, Round]:
    """The address of a server, and what its good clients do."""
    if request.param == "broker":
        return cluster.broker_address, send_one
    return cluster.namesrv, ask_route


def faults(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The log line of a server for an unexpected exception."""
    return [record.getMessage() for record in caplog.records if record.exc_info or "fault" in record.msg]


@pytest.mark.parametrize("name", CLOSED)
def test_what_is_no_frame_closes_its_connection_only(
    target: tuple[str, Round], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    address, work = target

    async def main() -> None:
        async with neighbour(address, work) as other:
            async with connected(address) as peer:
                await peer.send_bytes(CLOSED[name])
                assert await peer.closed_with() == b"", "a stranger gets no answer"
            await other.goes_on()
            # behind a good request on the same connection the request is still answered
            async with connected(address) as peer:
                await peer.send(Command(9999, 5))
                assert (await peer.command()).opaque == 5
                await peer.send_bytes(CLOSED[name])
                assert await peer.closed_with() == b""

    run(main())
    assert faults(caplog) == []


@pytest.mark.parametrize("code", [9999, -1, 2**31, 10**30])
def test_an_unknown_code_is_refused_by_number_and_the_connection_stays(
    target: tuple[str, Round], code: int
) -> None:
    address, work = target

    async def main() -> None:
        async with neighbour(address, work), connected(address) as peer:
            for opaque in (1, 2):
                await peer.send(Command(code, opaque))
                answer = await peer.command()
                assert (answer.opaque, answer.code) == (opaque, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
                assert answer.remark == f" request type {code} not supported"
            await peer.send(Command(code, 3, FLAG_ONEWAY), Command(0, 4, FLAG_RESPONSE), Command(code, 5))
            assert (await peer.command()).opaque == 5, "one-way requests and answers are not answered"

    run(main())


def test_every_request_without_fields_or_with_a_deep_body_is_answered(
    target: tuple[str, Round], caplog: pytest.LogCaptureFixture
) -> None:
    address, work = target
    deep = DEEP // 10
    bodies = (b"", b"\xff\xfe", b"{", b"[" * deep, b'{"a":' * deep, b'{"a":' * deep + b"1" + b"}" * deep)
    requests = [Command(code, ext={}, body=body) for code in RequestCode for body in bodies]

    async def main() -> list[Command]:
        async with neighbour(address, work):
            return await ask(address, *requests)

    answers = run(main())
    assert faults(caplog) == []
    silent = [r.code for r, a in zip(requests, answers, strict=True) if a.code != 0 and not a.remark]
    assert silent == [], "every refusal says why"


HOSTILE_VALUES = (
    *("", " ", "-1", "0", "2147483648", "-9223372036854775809", "1e9", "NaN", "true", "null", "{", '{"a":1}'),
    *("\x00", "\x01\x02", "%RETRY%", "../../etc/passwd", "x" * 70_000, "\ud7ff\U0010ffff"),
)


def test_recorded_requests_with_hostile_fields_are_answered(
    target: tuple[str, Round], caplog: pytest.LogCaptureFixture
) -> None:
    """Each field of each kind of request gets each hostile value, and is left out."""
    address, work = target
    requests = []
    for request in one_of_each_kind():
        for name in request.ext:
            without = {other: value for other, value in request.ext.items() if other != name}
            changed = [without, *({**request.ext, name: value} for value in HOSTILE_VALUES)]
            requests += [Command(request.code, ext=ext, body=request.body) for ext in changed]

    async def main() -> None:
        async with neighbour(address, work) as other:
            for start in range(0, len(requests), 500):
                part = requests[start : start + 500]
                await ask(address, *(held_briefly(request) for request in part))
                await other.goes_on()

    run(main())
    assert faults(caplog) == []


def one_of_each_kind() -> list[Command]:
    """The recorded requests, the one with most fields of each code; none that asks for no answer."""
    kinds: dict[int, Command] = {}
    for exchange in exchanges():
        request = command(exchange.request)
        if exchange.response is not None and not request.is_oneway:
            kinds[request.code] = max(kinds.get(request.code, request), request, key=lambda r: len(r.ext))
    assert len(kinds) > 40
    return list(kinds.values())


def held_briefly(request: Command) -> Command:
    """A pull must be answered now."""
    if "suspendTimeoutMillis" in request.ext:
        request.ext["suspendTimeoutMillis"] = "1"
        request.ext["sysFlag"] = "0"
    return request


def test_recorded_frames_with_wrong_bytes_harm_nobody(
    target: tuple[str, Round], caplog: pytest.LogCaptureFixture
) -> None:
    """Bytes flipped, cut out and doubled anywhere in real frames; some are still frames, most are not."""
    address, work = target
    rng = random.Random(20_240_501)
    frames = [exchange.request for exchange in exchanges()]
    count = 20_000 if LONG else 600

    async def main() -> None:
        async with neighbour(address, work) as other:
            for _ in range(count // 20):
                await asyncio.gather(*(attack(damaged(rng, rng.choice(frames))) for _ in range(20)))
                await other.goes_on()

    async def attack(data: bytes) -> None:
        async with connected(address) as peer:
            await peer.send_bytes(data)
            peer.writer.write_eof()
            await peer.closed_with()

    run(main())
    assert faults(caplog) == []


def damaged(rng: random.Random, frame: bytes) -> bytes:
    data = bytearray(frame)
    for _ in range(rng.randrange(1, 4)):
        # half of the damage goes where it hurts most: lengths and the start of the header
        at = rng.randrange(min(64, len(data)) if rng.random() < 0.5 else len(data))
        kind = rng.randrange(3)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at : at + rng.randrange(1, 9)]
        else:
            data[at:at] = data[at : at + rng.randrange(1, 9)]
        if not data:
            return b"\0"
    return bytes(data)


def test_truncated_frames_store_nothing(cluster: LocalCluster) -> None:
    """A send cut at any byte leaves the queue as it was."""
    frame = encode(send_request(b"cut", topic="Cut"))

    async def end() -> int:
        request = Command(RequestCode.GET_MAX_OFFSET, ext={"topic": "Cut", "queueId": "0"})
        return int((await ask(cluster.broker_address, request))[0].ext["offset"])

    async def cut_at(length: int) -> None:
        async with connected(cluster.broker_address) as peer:
            await peer.send_bytes(frame[:length])
            peer.writer.write_eof()
            assert await peer.closed_with() == b""

    async def main() -> None:
        cluster_address = cluster.broker_address
        assert (await ask(cluster_address, send_request(b"whole", topic="Cut")))[0].code == 0
        async with neighbour(cluster_address, send_one):
            for start in range(0, len(frame), 50):
                lengths = range(start, min(start + 50, len(frame)))
                await asyncio.gather(*(cut_at(length) for length in lengths))
        assert await end() == 1
        assert (await ask(cluster_address, send_request(b"whole", topic="Cut")))[0].code == 0
        assert await end() == 2

    run(main())


def test_slow_partial_frames_block_no_other_client(target: tuple[str, Round]) -> None:
    address, work = target
    frame = encode(Command(9999, 7, body=bytes(3000)))

    async def main() -> None:
        async with neighbour(address, work) as other:
            peers: list[Peer] = []
            try:
                for _ in range(100):
                    host, _, port = address.rpartition(":")
                    peers.append(Peer(*await asyncio.open_connection(host, int(port))))
                for at in range(40):
                    for peer in peers:
                        await peer.send_bytes(frame[at : at + 1])
                    await other.goes_on()
                for peer in peers[::2]:  # these go on to the end, the others never do
                    await peer.send_bytes(frame[40:])
                    assert (await peer.command()).opaque == 7
            finally:
                for peer in peers:
                    await peer.close()

    run(main())


def test_ten_thousand_http_clients_are_closed_one_by_one(
    cluster: LocalCluster, target: tuple[str, Round], caplog: pytest.LogCaptureFixture
) -> None:
    address, work = target
    count = 10_000 if LONG or address == cluster.broker_address else 1000

    async def stranger(number: int) -> None:
        async with connected(address) as peer:
            await peer.send_bytes(b"GET /%d HTTP/1.1\r\n\r\n" % number)
            assert await peer.closed_with() == b""

    async def main() -> None:
        async with neighbour(address, work) as other:
            for start in range(0, count, 100):
                await asyncio.gather(*(stranger(start + number) for number in range(100)))
            await other.goes_on()
            await until(lambda: open_connections(cluster) <= 3)

    run(main())
    assert len(caplog.records) <= 4, "strangers must not fill the log"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("http", "an HTTP request arrived where RocketMQ's remoting protocol is spoken"),
        ("tls", "a TLS handshake arrived on a port without TLS; turn TLS off at the client"),
        ("length over the limit", "a frame of 16777220 bytes is over the limit of 16777216"),
        ("header longer than the frame", "a header of 100 bytes does not fit its frame of 14 bytes"),
        ("not json", "a JSON header of 11 bytes cannot be read"),
        ("compact fields huge", "a compact header names 2147483647 bytes of fields, 0 follow"),
        ("header type 255", "header type 255 is neither JSON (0) nor compact (1)"),
    ],
)
def test_operators_are_told_once_who_sent_what(
    name: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    peers: list[str] = []

    async def main(address: str) -> None:
        for _ in range(3):
            async with connected(address) as peer:
                host, port = peer.writer.get_extra_info("sockname")
                peers.append(f"{host}:{port}")
                await peer.send_bytes(CLOSED[name])
                await peer.closed_with()

    with LocalCluster() as fresh:
        run(main(fresh.broker_address))
    (line,) = [line for line in caplog.messages if "closing" in line]
    assert line.startswith(f"closing {peers[0]}: {text}")


def open_connections(cluster: LocalCluster) -> int:
    """Connections of both servers: the neighbour's, and the broker's to its name server."""

    async def count() -> int:
        assert cluster._servers is not None
        broker, names = cluster._servers.broker, cluster._servers._nameserver
        assert broker is not None and names is not None and broker._server is not None
        return len(broker._server.connections) + len(names._server.connections)

    return cluster.call(count())


def test_a_registration_that_unpacks_to_gigabytes_is_refused(cluster: LocalCluster) -> None:
    header = RegisterBrokerRequest(
        broker_name="bomb",
        broker_addr="192.0.2.1:1",
        cluster_name="c",
        ha_server_addr="",
        broker_id=0,
        compressed=True,
    )
    bomb = zlib.compress(bytes(256 << 20), 9)

    async def main() -> Command:
        async with neighbour(cluster.namesrv, ask_route):
            return (await ask(cluster.namesrv, Command(103, ext=to_ext(header), body=bomb)))[0]

    answer = run(main())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "more than the limit of 67108864 bytes" in (answer.remark or "")


@pytest.mark.parametrize("broken", [False, True])
def test_good_sends_before_garbage_are_stored_and_answered(cluster: LocalCluster, broken: bool) -> None:
    """Good sends in the same chunk as garbage are stored and answered before the connection closes."""
    good = [send_request(b"good", topic="Mixed", opaque=number) for number in range(3)]
    tail = framed(b"nonsense") if broken else encode(Command(9999, 3))

    async def main() -> list[Command]:
        async with connected(cluster.broker_address) as peer:
            await peer.send_bytes(b"".join(map(encode, good)) + tail)
            return [await peer.command() for _ in range(3 if broken else 4)]

    run(ask(cluster.broker_address, send_request(b"first", topic="Mixed")))
    answers = {answer.opaque: answer.code for answer in run(main())}
    assert [answers[number] for number in range(3)] == [ResponseCode.SUCCESS] * 3
