"""Writes the table of rights in `docs/protocol.md` from the servers' tables.

    python -m scripts.generate_rights            write the page
    python -m scripts.generate_rights --check    say (exit status 1) whether it is stale

Each table stands between its `<!-- table: … -->`, see `TABLES`, and `<!-- end -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

from scripts.generated import ROOT, write

from sparrowmq.broker.access.rights import RIGHTS as OF_BROKER
from sparrowmq.coordinator.groups.members import RIGHTS as OF_MEMBERS
from sparrowmq.core.rights import GET, Right, RightScope
from sparrowmq.nameserver.rights import RIGHTS as OF_NAME_SERVER
from sparrowmq.protocol.codes import RequestCode

TARGET = ROOT / "docs" / "protocol.md"
BLOCK = r"(<!-- table: {} -->\n).*?(<!-- end -->)"
TABLES: dict[str, tuple[str, Mapping[int, Right]]] = {
    "rights at a name server": ("name server", OF_NAME_SERVER),
    "rights of members": ("coordinator", OF_MEMBERS),
    "rights": ("broker", OF_BROKER),
}
"""The tables of the page, with the server that each is about."""
IN_BODIES = {
    **dict.fromkeys((34, 41, 42, 400, 401, 90211, 90212, 90501, 200151), "Group, Topic"),
    **dict.fromkeys((200, 90213), "Group"),
}
"""What the bodies of these requests name."""
PROOF = "the member's proof"


def named(code: int, right: Right) -> str:
    """The kinds of what a request names, in order."""
    if right.body is not None:
        return IN_BODIES[code]
    kinds = [one.kind for one in right.fields]
    return ", ".join(dict.fromkeys(kinds if right.stored is None else [*kinds, "Topic"]))


def users_text(code: int, right: Right, server: str) -> str:
    """What a user needs."""
    if server == "name server":
        return "everybody"
    if right.proof and not right.actions:
        return PROOF
    kinds = named(code, right)
    words = " or ".join(sorted(right.actions))
    if right.place is not None and not kinds:
        kinds, words = "Topic", " or ".join(sorted(right.placed))
    if kinds:
        return f"{words}: {kinds}{f', and {PROOF}' if right.proof else ''}"
    if right.free:
        return "any user"
    return f"{'Get' if right.actions == GET else 'Update'}: Cluster"


def about(code: int, right: Right, server: str) -> str:
    """What the answer or the effect is about."""
    if right.scope is RightScope.BROKER:
        return f"the {server}"
    found = named(code, right).lower() or "message"
    if right.scope is RightScope.PLACED:
        found = "the message at a position, with its own topic" + (
            "" if "group" not in found else ", and the group"
        )
    if right.client is not None:
        found += ", and a client id that belongs to the account"
    return found


def table(server: str, rights: Mapping[int, Right]) -> str:
    """The Markdown table, by code."""
    lines = ["| code | name | user | without users | about |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for code, right in sorted(rights.items()):
        without = PROOF if right.proof else right.without.value
        cells = (
            str(int(code)),
            f"`{RequestCode(code).name}`",
            users_text(code, right, server),
            without,
            about(code, right, server),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def render(text: str) -> str:
    """The page with its tables made anew. Raises SystemExit for a table without a place."""
    for name, (server, rights) in TABLES.items():
        made = table(server, rights)
        found = re.search(BLOCK.format(name), text, re.DOTALL)
        if found is None:
            raise SystemExit(f"{TARGET} has no place for the table {name!r}")
        text = f"{text[: found.start()]}{found[1]}\n{made}\n{found[2]}{text[found.end() :]}"
    return text


if __name__ == "__main__":
    sys.exit(write(render(TARGET.read_text()), TARGET))
