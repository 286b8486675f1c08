"""Brings constraints.txt up to date: the newest versions that pyproject.toml allows, if all tests pass.

    .venv/bin/python -m scripts.renew_lock

uv resolves them for the oldest Python, so that one version fits all. Then `./sparrow test full` installs and
tests them, and `scripts/generate_constraints.py` writes what is installed. The last lines say what changed.
After a failure the file keeps the new versions, so that the repair can be tried;
`git checkout constraints.txt` takes them back.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping

from packaging.requirements import Requirement
from scripts.generate_constraints import ELSEWHERE, PYTHONS, ROOT, TARGET, pins, requirements, text_of

COMPILE = (
    *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--upgrade", "--no-header", "--no-annotate"),
    *("--python-version", PYTHONS[0], "-"),
)
WRITE = (sys.executable, "scripts/generate_constraints.py")


def asked(listed: Iterable[Requirement]) -> str:
    """What uv reads: each requirement once, a line each."""
    return "".join(f"{one}\n" for one in sorted({str(one) for one in listed}))


def proposed(compiled: str) -> str:
    """The file with the versions that uv found, and those that only other Pythons and systems need."""
    return text_of({**ELSEWHERE, **pins(compiled)})


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """A line for each package that is new, gone or of another version."""
    return [
        f"{name}: {before.get(name, 'none')} -> {after.get(name, 'none')}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


def main() -> int:
    """Renew the file; the exit status."""
    before = pins(TARGET.read_text())
    compiled = subprocess.run(
        COMPILE, input=asked(requirements()), cwd=ROOT, text=True, check=True, stdout=subprocess.PIPE
    )
    TARGET.write_text(proposed(compiled.stdout))
    status = 0
    for command in (("./sparrow", "test", "full"), WRITE):
        status = status or subprocess.run(command, cwd=ROOT, check=False).returncode
    print(*changes(before, pins(TARGET.read_text())), sep="\n")
    print("it failed, see above" if status else "all tests pass; commit constraints.txt alone")
    return status


if __name__ == "__main__":
    sys.exit(main())
