"""Writes the table of rights in `docs/protocol.md` from `sparrowmq/broker/access/rights.py`.

    python scripts/generate_rights.py            write the page
    python scripts/generate_rights.py --check    say (exit status 1) whether it is stale

The table stands between `<!-- table: rights -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sparrowmq.broker.access.rights import GET, RIGHTS, Right, RightScope, Without
from sparrowmq.protocol.codes import RequestCode

TARGET = Path(__file__).resolve().parent.parent / "docs" / "protocol.md"
BLOCK = re.compile(r"(<!-- table: rights -->\n).*?(<!-- end -->)", re.DOTALL)
IN_BODIES = {
    **dict.fromkeys((34, 41, 42, 400, 401, 90211, 90212, 90501, 200151), "Group, Topic"),
    200: "Group",
}
"""What the bodies of these requests name."""


def named(code: int, right: Right) -> str:
    """The kinds of what a request names, in order."""
    if right.body is not None:
        return IN_BODIES[code]
    kinds = [one.kind for one in right.fields]
    return ", ".join(dict.fromkeys(kinds if right.stored is None else [*kinds, "Topic"]))


def users_text(code: int, right: Right) -> str:
    """What a user needs."""
    kinds = named(code, right)
    words = " or ".join(sorted(right.actions))
    if right.place is not None and not kinds:
        kinds, words = "Topic", " or ".join(sorted(right.placed))
    if kinds:
        return f"{words}: {kinds}"
    if right.free:
        return "any user"
    return f"{'Get' if right.actions == GET else 'Update'}: Cluster"


def about(code: int, right: Right) -> str:
    """What the answer or the effect is about."""
    if right.scope is RightScope.BROKER:
        return "the broker"
    found = named(code, right).lower() or "message"
    if right.scope is RightScope.PLACED:
        found = "the message at a position, with its own topic" + (
            "" if "group" not in found else ", and the group"
        )
    if right.client is not None:
        found += ", and a client id that belongs to the account"
    return found


def table() -> str:
    """The Markdown table, by code."""
    lines = ["| code | name | user | without users | about |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for code, right in sorted(RIGHTS.items()):
        without = "everybody" if right.without is Without.EVERYBODY else "not served"
        cells = (
            str(int(code)),
            f"`{RequestCode(code).name}`",
            users_text(code, right),
            without,
            about(code, right),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write or check the page; the exit status."""
    text = TARGET.read_text()
    fresh = BLOCK.sub(lambda match: f"{match[1]}\n{table()}\n{match[2]}", text)
    if "--check" in sys.argv[1:]:
        same = text == fresh and BLOCK.search(text) is not None
        sys.stdout.write("fresh\n" if same else f"{TARGET} is stale: run scripts/generate_rights.py\n")
        return 0 if same else 1
    TARGET.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
