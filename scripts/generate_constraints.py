"""Writes constraints.txt: the versions that the tests pass with, from the environment that runs this script.

    python -m scripts.generate_constraints            write the file
    python -m scripts.generate_constraints --check    say (exit status 1) what the file lacks or contradicts

Run it in an up-to-date environment that passes `./sparrow test`; `scripts/renew_lock.py` makes one. The
launcher installs by the file: warnings are errors in tests, so versions must not change by themselves. What
another Python or system needs beyond this one's packages is in `ELSEWHERE`.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from itertools import product
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "constraints.txt"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SYSTEMS = (("linux", "Linux", "x86_64"), ("linux", "Linux", "aarch64"), ("darwin", "Darwin", "arm64"))
ELSEWHERE = {"appnope": "1.0.0", "pip": "26.3", "pyyaml-ft": "8.0.0", "uv": "0.13.9"}
"""Versions of packages that only other Pythons or systems need, ipykernel under macOS and libcst on 3.13, and
of what the launcher installs with."""
HEAD = """# Versions that the tests pass with, on Python {pythons} under Linux and macOS.
# Made by `python -m scripts.generate_constraints`; do not edit.
"""


def environments() -> Iterator[dict[str, str]]:
    """Pythons and systems that the file is for, as markers see them."""
    for python, (platform, system, machine) in product(PYTHONS, SYSTEMS):
        yield {
            "python_version": python,
            "python_full_version": f"{python}.0",
            "implementation_version": f"{python}.0",
            "sys_platform": platform,
            "platform_system": system,
            "platform_machine": machine,
        }


def applies(requirement: Requirement, extra: str) -> bool:
    """Whether any of the environments needs it for the extra."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({**one, "extra": extra}) for one in environments())


def requirements() -> list[Requirement]:
    """What pyproject.toml asks for in any of the environments, with the tools that build the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    for extra in project["project"]["optional-dependencies"].values():
        listed += extra
    found = [Requirement(text) for text in listed]
    return [one for one in found if canonicalize_name(one.name) != "sparrowmq" and applies(one, "")]


def needed() -> set[str]:
    """The packages that the requirements lead to, by what the installed ones say they need."""
    found: set[str] = set()
    waiting = [(canonicalize_name(one.name), extra) for one in requirements() for extra in ("", *one.extras)]
    seen = set(waiting)
    while waiting:
        name, extra = waiting.pop()
        found.add(name)
        try:
            listed = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        for text in listed:
            one = Requirement(text)
            if not applies(one, extra):
                continue
            new = {(canonicalize_name(one.name), more) for more in ("", *one.extras)} - seen
            seen |= new
            waiting += new
    return found


def versions() -> dict[str, str]:
    """The version of each needed package; those that are not installed here are left out."""
    found = dict(ELSEWHERE)
    for name in needed() - ELSEWHERE.keys():
        try:
            found[name] = distribution(name).version
        except PackageNotFoundError:
            continue
    return found


def text_of(found: Mapping[str, str]) -> str:
    """The file with these versions."""
    lines = [f"{name}=={version}\n" for name, version in sorted(found.items())]
    return HEAD.format(pythons=f"{PYTHONS[0]} to {PYTHONS[-1]}") + "".join(lines)


def pins(text: str) -> dict[str, str]:
    """Name and version of each line of a constraints file."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return {name: version for line in lines if line for name, _, version in [line.partition("==")]}


def problems(text: str) -> list[str]:
    """What a constraints file lacks, or pins against pyproject.toml."""
    pinned = pins(text)
    found = [f"{name} has no version in {TARGET.name}" for name in sorted(needed() - pinned.keys())]
    for one in requirements():
        version = pinned.get(canonicalize_name(one.name))
        if version is not None and not one.specifier.contains(version, prereleases=True):
            found.append(f"{one} does not allow {version}, which {TARGET.name} pins")
    return found


def main() -> int:
    """Write or check the file; the exit status."""
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text_of(versions()))
    found = problems(TARGET.read_text())
    sys.stdout.write("".join(f"{one}\n" for one in found) or "fresh\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
