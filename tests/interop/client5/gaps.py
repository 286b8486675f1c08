"""What does not work in some case although the client has a call for it, and why.

Each is a test that must fail: when one passes, it is to be removed here.
"""

from __future__ import annotations

from typing import Final

ALL: Final = "*"
SILENT: Final = "it does not receive within 60 s of a restart of Apache's proxy"
GAPS: Final[dict[tuple[str, str, str], str]] = {
    (
        "rust",
        "batch",
        "apache",
    ): "Apache's proxy answers a batch with one id, which is of none of its messages",
    **{(client, "restart", "apache"): SILENT for client in ("python", "go", "rust")},
}
"""Reasons by client, case and peer; `ALL` stands for every peer."""


def gap_of(client: str, case: str, peer: str) -> str | None:
    """Why it does not work there; None if it must."""
    return GAPS.get((client, case, peer)) or GAPS.get((client, case, ALL))
