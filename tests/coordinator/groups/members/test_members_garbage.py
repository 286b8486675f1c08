"""Requests to the members' port that no member would send: refused with a message, others are still
served."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.coordinator.groups.serving import serve_members
from tests.coordinator.services.watched import MadeUpKeeper
from tests.support import run

from sparrowmq.coordinator.groups.members import (
    CLIENT_CHARS_MAX,
    LATE_MAX,
    TOPICS_MAX,
    UNABLE_MAX,
    WORD_CHARS_MAX,
    MemberServer,
)
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.managed import JoinBody, JoinedBody, LeaveBody, OrdersBody, ReportBody
from sparrowmq.transport.client import RemotingClient

CODES = (
    RequestCode.JOIN_MANAGED_GROUP,
    RequestCode.REPORT_MANAGED_MEMBER,
    RequestCode.LEAVE_MANAGED_GROUP,
)


@dataclass
class Port:
    """A members' port and a client of it."""

    server: MemberServer
    client: RemotingClient

    async def ask(self, code: int, body: bytes, ext: dict[str, str] | None = None) -> Command:
        return await self.client.call(self.server.address, Command(code, ext=ext or {}, body=body), 5.0)

    async def join(self, client_id: str, group: str = "g", **more: Any) -> Command:
        body = JoinBody(group, client_id, more.pop("topics", ["T"]), **more).encode()
        return await self.ask(RequestCode.JOIN_MANAGED_GROUP, body, {"consumerGroup": group})

    async def is_well(self) -> None:
        """A member still can join, report and leave."""
        joined = JoinedBody.decode((await self.join("a@1")).body)
        body = ReportBody("g", joined.member, 1, 0, topics=["T"])
        answer = await self.ask(RequestCode.REPORT_MANAGED_MEMBER, body.encode())
        assert OrdersBody.decode(answer.body).lease_ms > 0
        left = LeaveBody("g", joined.member).encode()
        assert (await self.ask(RequestCode.LEAVE_MANAGED_GROUP, left)).code == ResponseCode.SUCCESS


def flow(test: Callable[[Port], Awaitable[None]]) -> None:
    async def main() -> None:
        client = RemotingClient()
        try:
            async with serve_members(MadeUpKeeper(), host="127.0.0.1", port=0) as server:
                await test(Port(server, client))
        finally:
            await client.close()

    run(main())


DEEP = b"[" * 50_000
GARBAGE = (
    b"", b"{", b"null", b"[]", b"7", b'"text"', b"\xff\xfe", b"{}" * 9, DEEP, b'{"group":' * 50_000,
    b'{"group": 1}', b'{"group": "g", "clientId": []}', b'{"group": "g", "member": null, "number": "x"}',
    json.dumps({"group": "g", "member": "m", "number": 10**40, "revision": 0}).encode(),
    json.dumps({"group": "g", "member": "m", "number": 1, "released": [{"topic": 1}]}).encode(),
    b'{"group": "\\ud800", "clientId": "c", "member": "m", "number": 1, "revision": 1}',
    b"x" * 1_000_000,
)  # fmt: skip


def test_invalid_bodies_are_refused_with_a_message() -> None:
    async def test(port: Port) -> None:
        for code in CODES:
            for body in GARBAGE:
                if code == RequestCode.LEAVE_MANAGED_GROUP and b'"m"' in body:
                    continue  # who is not there may go
                answer = await port.ask(code, body, {"consumerGroup": "g"})
                assert answer.code != ResponseCode.SUCCESS, (code, body[:60])
                assert answer.remark, (code, body[:60])
        await port.is_well()

    flow(test)


def test_report_counts_only_for_the_group_in_its_header() -> None:
    """Brokers check the group of the header; the body's was used."""

    async def test(port: Port) -> None:
        joined = JoinedBody.decode((await port.join("a@1")).body)
        body = ReportBody("g", joined.member, 1, 0, topics=["T"]).encode()
        for group, code in (("other", ResponseCode.INVALID_PARAMETER), ("g", ResponseCode.SUCCESS)):
            answer = await port.ask(RequestCode.REPORT_MANAGED_MEMBER, body, {"consumerGroup": group})
            assert answer.code == code

    flow(test)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"client_id": ""}, "client id must have 1 to"),
        ({"client_id": "c" * (CLIENT_CHARS_MAX + 1)}, "client id must have 1 to"),
        ({"client_id": "a\nb"}, "printable"),
        ({"client_id": "c", "group": "no group"}, "the group"),
        ({"client_id": "c", "group": "g" * 300}, "the group"),
        ({"client_id": "c", "topics": ["T"] * (TOPICS_MAX + 1)}, f"the limit is {TOPICS_MAX}"),
        ({"client_id": "c", "topics": ["' OR '1'='1"]}, "the topic"),
    ],
)
def test_invalid_names_are_refused(more: dict[str, Any], text: str) -> None:
    async def test(port: Port) -> None:
        answer = await port.join(**more)
        assert (answer.code, text in (answer.remark or "")) == (ResponseCode.INVALID_PARAMETER, True), answer

    flow(test)


@pytest.mark.parametrize("late", [-(2**63), -1, 2**63 - 1])
def test_odd_counts_and_versions_are_not_stored(late: int) -> None:
    """They would end in a database, which cannot store them."""

    async def test(port: Port) -> None:
        members = [JoinedBody.decode((await port.join(name, version="9\0")).body).member for name in "ab"]
        for member in members:
            body = ReportBody("g", member, 1, 0, topics=["T"], late=late).encode()
            assert (await port.ask(RequestCode.REPORT_MANAGED_MEMBER, body)).code == ResponseCode.SUCCESS
        leader = port.server.groups.find("g")
        assert leader is not None
        assert leader.late == max(0, min(late, LATE_MAX)) * 2
        assert set(leader._members.versions.values()) == {""}

    flow(test)


@given(st.lists(st.tuples(st.sampled_from(CODES), st.binary(max_size=200)), max_size=20))
def test_members_are_served_whatever_requests_arrive(frames: list[tuple[RequestCode, bytes]]) -> None:
    async def test(port: Port) -> None:
        for code, body in frames:
            assert (await port.ask(code, body)).code != ResponseCode.SUCCESS
        await port.is_well()

    flow(test)


def test_unable_settings_in_a_report_are_bounded() -> None:
    async def test(port: Port) -> None:
        joined = JoinedBody.decode((await port.join("a@1")).body)
        odd = {f"knob{number:03}": "x" * 400 for number in range(500)} | {"a": "bad\n", "b" * 90: "single"}
        body = ReportBody("g", joined.member, 1, 0, topics=["T"], knobs=-5, unable=odd)
        answer = await port.ask(RequestCode.REPORT_MANAGED_MEMBER, body.encode())
        assert answer.code == ResponseCode.SUCCESS
        leader = port.server.groups.find("g")
        assert leader is not None
        kept = leader.seen()[joined.member].unable
        assert 0 < len(kept) <= UNABLE_MAX
        assert all(
            len(f"{name}{why}") <= 2 * WORD_CHARS_MAX and why.isprintable() for name, why in kept.items()
        )
        await port.is_well()

    flow(test)
