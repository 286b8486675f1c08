"""Every change of brokers with a second copy, made in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.console.browser.pressing import WALKS, Hand, hand, presses  # noqa: F401
from tests.console.browser.test_browser import browser  # noqa: F401
from tests.console.replicated import GROUP_PAGE, in_sync, replicated, three_brokers
from tests.console.site import Site
from tests.coordinator.replicas.made_up_brokers import MadeUpBrokers
from tests.support import until_sync

pytestmark = WALKS


@pytest.fixture(scope="module")
def brokers() -> MadeUpBrokers:
    return three_brokers()


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory, brokers: MadeUpBrokers) -> Iterator[Site]:
    with replicated(tmp_path_factory.mktemp("replicas") / "coordinator.db", brokers) as made:
        yield made


@presses(
    "/replicas/{broker}/manage",
    "/replicas/{broker}/elect",
    "/replicas/{broker}/elect-unclean",
    "/replicas/{broker}/release",
)
def test_masters_are_elected_by_the_coordinator_and_by_a_person(
    hand: Hand,  # noqa: F811
    brokers: MadeUpBrokers,
) -> None:
    def copies() -> Any:
        return hand.console.admin.page(GROUP_PAGE).part("copies")

    hand.change("/replicas", f"{GROUP_PAGE}/manage", action="replicas.manage", says="g")
    in_sync(hand.console, brokers)
    fields = {"target": "b"}
    says = "b becomes master instead of a"
    hand.change(GROUP_PAGE, f"{GROUP_PAGE}/elect", fields, action="replicas.", says=says)
    until_sync(lambda: brokers.states["b"].state == "SERVING" and "b master serves" in copies())
    fields = {"target": "c"}
    says = "lost for good"
    form = f"{GROUP_PAGE}/elect-unclean"
    hand.change(GROUP_PAGE, form, fields, action="replicas.unclean", typed="g", says=says)
    until_sync(lambda: brokers.states["c"].state == "SERVING")
    hand.change(GROUP_PAGE, f"{GROUP_PAGE}/release", action="replicas.release", says="g")
    until_sync(lambda: f"{GROUP_PAGE}/manage" in hand.console.admin.page("/replicas").text)
