"""Writes docs/commands.md: every command of `sparrow` with its arguments and options.

python -m scripts.generate_commands            write the page
python -m scripts.generate_commands --check    say (exit status 1) whether it is stale
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import typer.main
from scripts.generated import ROOT, write

from sparrowmq.cli.main import app
from sparrowmq.cli.tree import SUBJECTS

TARGET = ROOT / "docs" / "commands.md"
HEAD = """# Commands

This page describes every command of `sparrow`; `--help` prints the same text for each. The page is made by
`scripts/generate_commands.py`.

`--namesrv` is `HOST:PORT`; separate several with `;`. The default is `SPARROW_NAMESRV` or `NAMESRV_ADDR`,
else 127.0.0.1:9876. `--json` prints one value per line. A command that fails prints one line that starts
with `sparrow:` and exits with status 1; a wrong option exits with status 2, Ctrl-C with 130. Times are
printed with their zone; those given without one are in UTC, or in the zone that the environment variable
`SPARROW_TIME_ZONE` names (`Europe/Berlin`). All commands
except `up`, `nameserver`, `broker`, `torture` and `demo` also work with Apache RocketMQ. Commands with
`--coordinator URL` send requests to a [coordinator](coordination.md), whatever brokers it monitors. `sparrow
--install-completion` completes commands and options in bash, zsh, fish and PowerShell.

"""


def leaves(command: Any, words: tuple[str, ...] = ("sparrow",)) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The commands that do something, with the words that call them, in order."""
    inner: dict[str, Any] = getattr(command, "commands", None) or {}
    if not inner or command.invoke_without_command:
        yield words, command
    for name in inner if len(words) == 1 else sorted(inner):
        if not inner[name].hidden:
            yield from leaves(inner[name], (*words, name))


def contents(calls: Iterable[tuple[str, ...]]) -> str:
    """The commands by subject, each with a link to what is said of it."""
    links: dict[str, list[str]] = {}
    for words in calls:
        links.setdefault(words[1], []).append(f"[{' '.join(words[1:])}](#{'-'.join(words)})")
    rows = [
        (title, ", ".join(link for name in names for link in links[name]))
        for title, names in SUBJECTS.items()
    ]
    return markdown(("", "commands"), rows)


def markdown(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table, and a blank line."""
    lines = [head, ("---",) * len(head), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells) + "\n"


def default_text(parameter: Any) -> str:
    """A default as it would be typed; a dash for none."""
    if parameter.required:
        return "required"
    value = parameter.default() if callable(parameter.default) else parameter.default
    if value is None or isinstance(value, bool) or value in ("", (), []):
        return "–"
    return f"`{value.value if isinstance(value, enum.Enum) else value}`"


def argument_text(parameter: Any) -> str:
    """An argument as `--help` shows it."""
    name = parameter.metavar or parameter.name.upper()
    return (name if parameter.required else f"[{name}]") + ("..." if parameter.nargs == -1 else "")


def section(words: tuple[str, ...], command: Any) -> str:
    """What the page says of one command."""
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    call = " ".join((*words, *(argument_text(one) for one in arguments)))
    text = f"## `{' '.join(words)}`\n\n{' '.join((command.help or '').split())}\n\n```sh\n{call}\n```\n\n"
    if arguments:
        meanings = [(f"`{argument_text(one)}`", one.help or "") for one in arguments]
        text += markdown(("argument", "meaning"), meanings)
    if options:
        rows = [
            (
                ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts)),
                default_text(one),
                one.help or "",
            )
            for one in options
        ]
        text += markdown(("option", "default", "meaning"), rows)
    return text


def render() -> str:
    """The page."""
    root: Any = typer.main.get_command(app)
    found = list(leaves(root))
    parts = [section(("sparrow",), root), *(section(words, command) for words, command in found)]
    return HEAD + contents(words for words, _ in found) + "".join(parts).rstrip("\n") + "\n"


if __name__ == "__main__":
    sys.exit(write(render(), TARGET))
