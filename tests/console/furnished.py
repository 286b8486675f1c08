"""At least one of everything for pages to show, with markup wherever other people can write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.console.site import Site
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.testing import LocalCluster


@dataclass(frozen=True)
class Odd:
    """Texts that would run as script or reverse the page if they were not escaped."""

    markup: str = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
    turned: str = "abc\u202egpj.exe"
    formula: str = '=HYPERLINK("http://x")'
    password: str = "a password of viewers"
    topic: str = "Orders"
    group: str = "billing"


ODD = Odd()
MESSAGES = 12


@contextmanager
def furnish(site: Site, cluster: LocalCluster) -> Iterator[None]:
    """A topic with messages, a group that is behind, people, a limit, an audit log."""
    assert site.admin.login("admin", site.password).status == 303
    with ExitStack() as stack:
        admin = stack.enter_context(mq.Admin(namesrv=cluster.namesrv))
        admin.topics.create(ODD.topic, queues=4)
        admin.groups.create(ODD.group)
        producer = stack.enter_context(mq.Producer("shop", namesrv=cluster.namesrv))
        for number in range(MESSAGES):
            text = json.dumps({"id": number, "note": ODD.markup})
            producer.send(
                mq.Message(
                    ODD.topic, text.encode(), tags=ODD.markup.replace("|", ""), keys=[f"order-{number}"],
                    properties={"note": ODD.markup, "turned": ODD.turned},
                )
            )  # fmt: skip
        producer.send(mq.Message(ODD.topic, bytes(range(256)), keys=["bytes"]))
        for queue in admin.topics.status(ODD.topic):
            admin.groups.commit(ODD.group, queue.queue, min(1, queue.max_offset))
        made = site.call(
            "POST",
            "/people",
            json.dumps({"name": "viewer", "password": ODD.password, "reason": ODD.markup}).encode(),
        )
        assert made.status == 201, made.text
        limit = {"topic": "*", "messages": 1, "age_ms": 0, "reason": ODD.formula}
        assert site.call("PUT", f"/limits/{ODD.group}", json.dumps(limit).encode()).status == 200
        for service in ("capacity", "broker-check", "lag-alarm"):
            asked = site.call("POST", f"/services/{service}/run", json.dumps({"reason": ODD.turned}).encode())
            assert asked.status == 200, asked.text
        for path in ("/findings?service=capacity", "/alarms", "/brokers"):
            until_sync(lambda path=path: json.loads(site.call("GET", path).text))
        yield
