"""A cluster for tests: `LocalCluster`, and a pytest fixture called `sparrow_cluster`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparrowmq.testing.cluster import LocalCluster

__all__ = ["LocalCluster"]


def __getattr__(name: str) -> Any:
    # pytest imports this package at start-up in every project that has SparrowMQ installed, so imports must
    # stay light.
    if name == "LocalCluster":
        from sparrowmq.testing.cluster import LocalCluster

        return LocalCluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
