"""The mutation run: decision code is changed at one spot at a time, and its tests must notice each change.

`[tool.mutmut]` in `pyproject.toml` names the code and the tests; `tests/mutation.toml` says why some changes
cannot be noticed. `python -m tests.mutation` runs what has changed since the last run (`mutants/` keeps
results), then judges everything; with patterns such as `'sparrowmq.core.ids*'` it runs and judges these
again. `--judge` runs nothing; `--write` puts figures and explanations into `docs/quality.md`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
EXPLAINED: Final = ROOT / "tests" / "mutation.toml"
PAGE: Final = ROOT / "docs" / "quality.md"
HEADING: Final = "## The last mutation run"
EXAMPLES: Final = "20"
"""Hypothesis' samples for each test: enough for small changes, and a change is tried by many tests."""

RECURSION_LIMIT: Final = 10_000
"""Calls of changed functions take three frames instead of one, and some tests nest deeply."""

NOTICED: Final = ("killed", "timeout", "segfault", "caught by type check")


@dataclass(frozen=True, slots=True)
class Survivor:
    """A change no test noticed: the lines before and after, without indentation."""

    mutant: str
    function: str
    status: str
    was: str
    becomes: str

    def __str__(self) -> str:
        return f"{self.mutant} ({self.status})\n    was      {self.was}\n    becomes  {self.becomes}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why changes cannot, or need not, be noticed.

    `functions` is a glob. A change is meant when it lies within what the regular expression `within` matches,
    or when `was` and `becomes` are its lines.
    """

    functions: str
    why: str
    within: str = ""
    was: str = ""
    becomes: str = ""

    def explains(self, one: Survivor) -> bool:
        """Whether the survivor is meant."""
        if not fnmatch(one.function, self.functions):
            return False
        if self.within:
            return re.sub(self.within, "", one.was) == re.sub(self.within, "", one.becomes)
        return (self.was, self.becomes) == (one.was, one.becomes)

    @property
    def row(self) -> str:
        """Its row in the table of `docs/quality.md`."""
        change = f"within `{self.within}`" if self.within else f"`{self.was}` → `{self.becomes}`"
        where = "all" if self.functions == "*" else f"`{self.functions.removeprefix('sparrowmq.')}`"
        return " | ".join(("", where, change.replace("|", "\\|"), self.why, "")).strip()


@dataclass(slots=True)
class Judgement:
    """What a run came to; `modules` are those that were changed, `survivors` what went unnoticed."""

    modules: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    survivors: list[Survivor] = field(default_factory=list)

    @property
    def noticed(self) -> int:
        """How many changes a test noticed."""
        return sum(self.counts[status] for status in NOTICED)

    def unexplained(self, known: Sequence[Explanation]) -> list[Survivor]:
        """Survivors nobody has explained."""
        return [one for one in self.survivors if not any(each.explains(one) for each in known)]

    def idle(self, known: Sequence[Explanation]) -> list[Explanation]:
        """Explanations of nothing: their changes are noticed by now, or their code has changed."""
        return [each for each in known if not any(map(each.explains, self.survivors))]

    def summary(self, known: Sequence[Explanation]) -> str:
        """The figures in a sentence."""
        total, missed = self.counts.total(), len(self.survivors)
        unexplained = len(self.unexplained(known))
        return (
            f"{total} changes in {len(self.modules)} modules: {self.noticed} noticed "
            f"({self.noticed / total:.1%}), {missed - unexplained} explained, {unexplained} neither."
        )


def run_mutmut(patterns: Sequence[str]) -> int:
    """Run mutmut on what is not yet judged, one process at a time; its exit status."""
    environment = {**os.environ, "SPARROW_EXAMPLES": EXAMPLES, "SPARROW_TEST_TIER": "full"}
    environment["PYTHONPATH"] = str(ROOT / "src")
    program = f"import sys; sys.setrecursionlimit({RECURSION_LIMIT}); from mutmut.__main__ import cli; cli()"
    command = [sys.executable, "-c", program, "run", "--max-children", "1", *patterns]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def judge(patterns: Sequence[str] = ()) -> Judgement:
    """Count the results in `mutants/` and find what survived. The working directory must be the root."""
    from mutmut.mutation.data import SourceFileMutationData
    from mutmut.stats import status_by_exit_code
    from mutmut.utils.file_utils import walk_mutatable_files

    judgement = Judgement()
    for path in walk_mutatable_files():
        data = SourceFileMutationData(path=path)
        data.load()
        for mutant, exit_code in data.exit_code_by_key.items():
            if patterns and not any(fnmatch(mutant, pattern) for pattern in patterns):
                continue
            status = status_by_exit_code[exit_code]
            judgement.modules.add(str(path))
            judgement.counts[status] += 1
            if status not in NOTICED:
                judgement.survivors.append(_survivor(mutant, status, path))
    return judgement


def _survivor(mutant: str, status: str, path: Path) -> Survivor:
    from mutmut.mutation.diff_apply import get_diff_for_mutant
    from mutmut.utils.format_utils import orig_function_and_class_names_from_key

    function, class_name = orig_function_and_class_names_from_key(mutant)
    name = ".".join(filter(None, (mutant.rpartition(".")[0], class_name, function)))
    was, becomes = [], []
    for line in get_diff_for_mutant(mutant, path=path).splitlines()[2:]:
        if line.startswith("-"):
            was.append(line[1:].strip())
        elif line.startswith("+"):
            becomes.append(line[1:].strip())
    return Survivor(mutant, name, status, " ".join(was), " ".join(becomes))


def explanations(path: Path = EXPLAINED) -> list[Explanation]:
    """What `tests/mutation.toml` says."""
    return [Explanation(**entry) for entry in tomllib.loads(path.read_text())["explained"]]


def report(judgement: Judgement, known: Sequence[Explanation], *, whole: bool) -> Iterator[str]:
    """Lines for people; what is wrong begins with `FAILED`. `whole` says that everything was judged."""
    if not judgement.counts:
        yield "FAILED: nothing was changed"
        return
    yield ", ".join(f"{count} {status}" for status, count in judgement.counts.most_common())
    yield judgement.summary(known)
    for one in judgement.unexplained(known):
        yield f"FAILED: not noticed and not explained: {one}"
    for each in judgement.idle(known) if whole else ():
        yield f"FAILED: explains nothing that survived: {each.row}"


def page(text: str, summary: str, known: Sequence[Explanation]) -> str:
    """The page with another last part."""
    table = [
        "| function | change | why no test notices |",
        "| --- | --- | --- |",
        *(each.row for each in known),
    ]
    return text.partition(HEADING)[0] + "\n".join([HEADING, "", summary, "", *table, ""])


def main() -> int:
    """Run and judge; exit status 1 when a survivor is not explained."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("patterns", nargs="*", help="run and judge these only")
    parser.add_argument("--judge", action="store_true", help="run nothing")
    parser.add_argument("--write", action="store_true", help="write docs/quality.md")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    status = 0 if arguments.judge else run_mutmut(arguments.patterns)
    judgement, known = judge(arguments.patterns), explanations()
    lines = list(report(judgement, known, whole=not arguments.patterns))
    print("\n".join(lines), flush=True)
    if arguments.write and judgement.counts:
        PAGE.write_text(page(PAGE.read_text(), judgement.summary(known), known))
    return 1 if status or any(line.startswith("FAILED") for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
