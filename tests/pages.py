"""The pages of the documentation, taken apart: code blocks, programs, links, headings, commands.

Every `python` block is a program of its own, unless the line before its fence says otherwise:

    <!-- continues -->          it goes on in the names of the block before
    <!-- not run: why -->       it is compiled only
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONTINUES = "<!-- continues -->"
NOT_RUN = re.compile(r"<!-- not run: \S.* -->")

_FENCE = re.compile(r"^(\s*)```(\w*)\s*$")
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.*)$")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the line of its first line of code, its text, the line before it."""

    language: str
    line: int
    text: str
    mark: str


@dataclass
class Program:
    """Blocks that run one after the other in the same names."""

    page: Page
    blocks: list[Block]

    @property
    def line(self) -> int:
        return self.blocks[0].line

    @property
    def text(self) -> str:
        """The source; every line keeps the number it has on the page."""
        lines: list[str] = []
        for block in self.blocks:
            lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
        return "\n".join(lines) + "\n"

    @property
    def is_test(self) -> bool:
        return re.search(r"^(async )?def test_", self.text, re.MULTILINE) is not None

    @property
    def needs_spark(self) -> bool:
        return "pyspark" in self.text or "sparrowmq.spark" in self.text


@dataclass
class Page:
    """One Markdown file."""

    path: Path
    text: str = field(init=False, repr=False)
    blocks: list[Block] = field(init=False, repr=False)
    prose: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.text = self.path.read_text()
        self.blocks, self.prose = _split(self.text)

    def __str__(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def programs(self) -> list[Program]:
        """What is to be run, in order."""
        found: list[Program] = []
        for block in self.blocks:
            if block.language != "python" or NOT_RUN.fullmatch(block.mark):
                continue
            if block.mark == CONTINUES:
                found[-1].blocks.append(block)
            else:
                found.append(Program(self, [block]))
        return found

    @property
    def links(self) -> list[str]:
        """Targets of all links outside of code."""
        return _LINK.findall(_INLINE.sub("", self.prose))

    @property
    def anchors(self) -> set[str]:
        """What `#…` may name, by GitHub's rules."""
        found: set[str] = set()
        for line in self.prose.splitlines():
            if match := _HEADING.match(line):
                slug = re.sub(r"[^\w\- ]", "", match[1].strip().lower()).replace(" ", "-")
                same = sum(1 for other in found if re.fullmatch(re.escape(slug) + r"(-\d+)?", other))
                found.add(f"{slug}-{same}" if same else slug)
        return found

    def table(self, heading: str) -> list[list[str]]:
        """The rows of the first table after a line of `prose` that starts with `heading`; no head."""
        lines = self.prose.splitlines()
        start = next(i for i, line in enumerate(lines) if line.startswith(heading))
        start = next(i for i in range(start, len(lines)) if lines[i].startswith("|"))
        rows = []
        for line in lines[start + 2 :]:
            if not line.startswith("|"):
                break
            rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        return rows

    @property
    def commands(self) -> Iterator[list[str]]:
        """The arguments of every `sparrow …` in code, the alternatives of `a|b` one by one."""
        texts = [match[1] for match in _INLINE.finditer(self.prose)]
        for block in self.blocks:
            if block.language in ("", "sh", "console", "text"):
                texts += block.text.replace("\\\n", " ").splitlines()
        for text in texts:
            yield from _commands(text)


def _split(text: str) -> tuple[list[Block], str]:
    """The fenced blocks, and the text without them."""
    blocks: list[Block] = []
    prose: list[str] = []
    inside: list[str] | None = None
    language, start, mark = "", 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if fence and inside is None:
            language, start, inside = fence[2], number + 1, []
            mark = prose[-1].strip() if prose else ""
        elif fence and inside is not None:
            blocks.append(Block(language, start, "\n".join(inside) + "\n", mark))
            inside = None
        elif inside is not None:
            inside.append(line)
        else:
            prose.append(line)
    assert inside is None, f"the block that starts at line {start} has no end"
    return blocks, "\n".join(prose)


def _commands(text: str) -> Iterator[list[str]]:
    if "sparrow " not in f"{text} ":
        return
    try:
        words = shlex.split(text, comments=True)
    except ValueError:  # an apostrophe: prose, not a command
        return
    for place, word in enumerate(words):
        if word not in ("sparrow", "./sparrow"):
            continue
        if any(other not in ("$", "&&", "||", "|", ";") for other in words[place - 1 : place]):
            continue
        arguments: list[str] = []
        for argument in words[place + 1 :]:
            if argument in ("|", "||", "&&", ";", "&", ">", ">>", "<", "2>", "…"):
                break
            arguments.append(argument)
        yield from [arguments] if not arguments else _choices(arguments)


def _choices(arguments: list[str]) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for argument in arguments:
        parts = argument.split("|") if re.fullmatch(r"[\w|-]+", argument) else [argument]
        found = [[*start, part] for start in found for part in parts]
    return found


def pages() -> list[Page]:
    """All pages there are."""
    return [
        Page(path)
        for path in sorted(
            [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
        )
    ]


@dataclass(frozen=True)
class Row:
    """A row of the tables of proofs: its id, the other cells, the tests that the last one names."""

    name: str
    cells: tuple[str, ...]
    tests: tuple[str, ...]


_PROVEN = re.compile(r"^\| ([A-Z0-9][-\w.]*) \| (.*) \|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/]+\.py(?:::\w+)+)`")


def proven_rows(page: str) -> list[Row]:
    """The rows below `What proves it`; the last cell of each names its tests."""
    found = []
    for match in _PROVEN.finditer(page.partition("\n## What proves it\n")[2]):
        cells = match[2].split(" | ")
        found.append(Row(match[1], tuple(cells), tuple(_TEST.findall(cells[-1]))))
    return found
