"""Every form of the console is pressed by a walk in a browser. Needs no browser itself."""

from __future__ import annotations

from tests.console.browser import (
    test_access_walks,
    test_cluster_walks,
    test_coordinator_walks,
    test_replica_walks,
)
from tests.console.browser.pressing import post_routes

MODULES = (test_access_walks, test_cluster_walks, test_coordinator_walks, test_replica_walks)


def test_every_form_is_pressed_by_a_walk() -> None:
    walks = [one for module in MODULES for name, one in vars(module).items() if name.startswith("test_")]
    said = [path for one in walks for path in getattr(one, "presses", ())]
    assert sorted(said) == sorted({one.path for one in post_routes()}), "one walk for each form, and no more"
