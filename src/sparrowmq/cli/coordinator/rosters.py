"""`sparrow group roster`: members as a coordinator has seen them."""

from __future__ import annotations

from typing import Annotated

import typer

from sparrowmq.cli.base.common import AsJson, print_json, print_table
from sparrowmq.cli.base.remote import Url, call
from sparrowmq.cli.base.times import when


def roster(
    group: Annotated[str, typer.Argument(metavar="[GROUP]", help="Only of this group.")] = "",
    coordinator: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the members that the coordinator has seen, with first and last time, including former ones."""
    found = call(coordinator, "GET", "/roster", query={"group": group})
    if as_json:
        print_json(*found)
        return
    rows = [
        (
            one["group"],
            one["client_id"],
            one["address"],
            one["language"],
            "fenced" if one["fenced"] else "not fenced",
            when(one["first_seen"]),
            when(one["last_seen"]),
        )
        for one in found
    ]
    print_table(("group", "member", "address", "language", "fence", "online since", "last seen"), rows)
