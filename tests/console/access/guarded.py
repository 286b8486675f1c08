"""A console in front of a broker with access control: users and policies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.console.site import Site, site
from tests.support import sqlite_url

from sparrowmq.testing import LocalCluster

FIRST = {"username": "root", "password": "toor1234"}
USER_PAGE = "/access/users/orders-service"


@contextmanager
def with_access_control(path: Path) -> Iterator[Site]:
    """A console on a database at this path; the broker has one user, as whom the coordinator signs."""
    first = json.dumps(FIRST)
    with (
        pytest.MonkeyPatch.context() as patch,
        LocalCluster(
            authentication_enabled=True, authorization_enabled=True, init_authentication_user=first
        ) as cluster,
    ):
        patch.setenv("SPARROW_ACCESS_KEY", FIRST["username"])
        patch.setenv("SPARROW_SECRET_KEY", FIRST["password"])
        with site(database_url=sqlite_url(path), namesrv_addr=cluster.namesrv) as found:
            assert found.admin.login("admin", found.password).status == 303
            yield found


def add_users(found: Site) -> None:
    """Users of a shop, with policies."""
    for name in ("orders-service", "billing-service"):
        made = found.admin.change("/new/access-user", {"name": name, "kind": "normal"}, new=f"of {name}")
        assert made.status == 303, made.words
    for resources, actions, decision in (
        ("Topic:Orders\nTopic:Payments", "Pub, Get", "allow"),
        ("Group:shipping*", "Sub", "allow"),
        ("Topic:Salaries", "All", "deny"),
    ):
        fields = {"resources": resources, "actions": actions, "decision": decision, "sources": "10.0.0.0/8"}
        assert found.admin.change(f"{USER_PAGE}/policy", fields).status == 303
