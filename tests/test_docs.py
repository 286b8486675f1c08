"""The documentation tells the truth: programs run, tables are the code's, links lead somewhere."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
from tests import test_layers
from tests.pages import ROOT, Page, Program, pages
from tests.support import run

from sparrowmq.cli.main import app
from sparrowmq.client.settings import ClientSettings, ConsumerSettings, ProducerSettings, PullSettings
from sparrowmq.core.allocation import Averagely
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.testing import LocalCluster
from sparrowmq.transport.client import RemotingClient

PAGES = pages()
SPARK_SECONDS_MAX = 300
PYTEST_OPTIONS = ("-q", "-W", "error", "-p", "no:asyncio", "-p", "no:cacheprovider")
DOCS = ROOT / "docs"


def page(name: str) -> Page:
    return next(page for page in PAGES if str(page) == name)


SAMPLE = """# One `word`, twice!

[a](b.md) `[not](a.md)` [c](#one-word-twice)

```python
x = 1
```

<!-- continues -->
```python
print(x)
```

<!-- not run: it has no end -->
```python
while True: pass
```

## One word, twice

| name | `sparrow up|broker --set a=b` |
| --- | --- |
| 1 | 2 \\| 3 |

```sh
echo x | sparrow send T --file -   # sparrow comment
./sparrow topic \\
  list
```
"""


def test_a_page_is_taken_apart(tmp_path: Path) -> None:
    path = tmp_path / "sample.md"
    path.write_text(SAMPLE)
    sample = Page(path)
    assert [block.language for block in sample.blocks] == ["python", "python", "python", "sh"]
    (program,) = sample.programs
    assert program.text.splitlines()[5:] == ["x = 1", "", "", "", "", "print(x)"]
    assert sample.links == ["b.md", "#one-word-twice"]
    assert sample.anchors == {"one-word-twice", "one-word-twice-1"}
    assert sample.table("## One") == [["1", "2 \\| 3"]]
    assert list(sample.commands) == [
        ["up", "--set", "a=b"],
        ["broker", "--set", "a=b"],
        ["send", "T", "--file", "-"],
        ["topic", "list"],
    ]


# Programs


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running:
        yield running


def addressed(text: str, cluster: LocalCluster) -> str:
    """The text with the cluster's addresses instead of the usual ones."""
    return text.replace("127.0.0.1:9876", cluster.namesrv).replace("127.0.0.1:10911", cluster.broker_address)


def execute(program: Program, cluster: LocalCluster) -> None:
    """Run a program in this process, a test in a pytest of its own."""
    text = addressed(program.text, cluster)
    if program.is_test:
        script = Path("test_page.py")
        script.write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *PYTEST_OPTIONS, str(script)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{program.page}:{program.line}\n{done.stdout}{done.stderr}"
        return
    exec(compile(text, str(program.page.path), "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_python_blocks_compile(page: Page) -> None:
    for block in page.blocks:
        if block.language == "python":
            compile("\n" * (block.line - 1) + block.text, str(page.path), "exec")


@pytest.mark.parametrize("page", [page for page in PAGES if page.programs], ids=str)
def test_programs_run(
    page: Page, cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for program in page.programs:
        if not program.needs_spark:
            execute(program, cluster)


SMALL_SPARK = (
    "spark.ui.enabled=false",
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.sql.shuffle.partitions=2",
    "spark.log.level=ERROR",
)
"""What a user's `spark-defaults.conf` would say; programs may set what they like over it."""

CHILD = """
import json, os, sys, traceback
from pyspark.sql import SparkSession
SparkSession.stop = lambda session: [query.stop() for query in session.streams.active]
for line in sys.stdin:
    path, directory = json.loads(line)
    os.chdir(directory)
    failed = ""
    try:
        with open(path) as source:
            exec(compile(source.read(), path, "exec"), {"__name__": "__main__"})
    except BaseException:
        failed = traceback.format_exc()
    print("\\n" + json.dumps({"failed": failed}), flush=True)
"""


class SparkChild:
    """A process that runs programs with Spark one after the other: there is one session for all of them."""

    def __init__(self, directory: Path) -> None:
        from tests.spark.spark_home import quick_environment

        binaries = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        settings = " ".join(f"--conf {setting}" for setting in SMALL_SPARK)
        environment = {
            **os.environ,
            **quick_environment(),
            "PATH": binaries,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell",
        }
        self.log = directory / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", CHILD],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=directory,
                env=environment,
                text=True,
            )

    def run(self, script: Path) -> str:
        """What went wrong with a program, or nothing."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([str(script), str(script.parent)]) + "\n")
        self.process.stdin.flush()
        printed: list[str] = []
        for line in self.process.stdout:
            printed.append(line)
            if line.startswith('{"failed":'):
                failed: str = json.loads(line)["failed"]
                return failed and f"{''.join(printed)[-4000:]}{failed}"
        return f"the process died: {''.join(printed)[-4000:]}{self.log.read_text()[-8000:]}"

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def spark_child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkChild]:
    child = SparkChild(tmp_path_factory.mktemp("pages"))
    yield child
    child.close()


@pytest.mark.spark
@pytest.mark.timeout(SPARK_SECONDS_MAX)
@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(program.needs_spark for program in page.programs)], ids=str
)
def test_spark_programs_run(
    page: Page,
    cluster: LocalCluster,
    spark_child: SparkChild,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for program in page.programs:
        if not program.needs_spark:
            execute(program, cluster)
            continue
        script = tmp_path / "page.py"
        script.write_text(addressed(program.text, cluster))
        failed = spark_child.run(script)
        assert not failed, f"{page}:{program.line}\n{failed}"


# Links and commands


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page: Page) -> None:
    wrong = []
    for link in page.links:
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.path.parent / name).resolve() if name else page.path
        if not target.exists() or (anchor and anchor not in Page(target).anchors):
            wrong.append(link)
    assert wrong == []


@cache
def command_tree() -> Any:
    return typer.main.get_command(app)


def fault(arguments: list[str]) -> str | None:
    """What is wrong with the arguments of `sparrow`: a command or an option that does not exist."""
    command = command_tree()
    words = ["sparrow"]
    is_value = False
    for place, argument in enumerate(arguments):
        inner = getattr(command, "commands", None)
        if is_value:
            is_value = False
        elif inner is not None and not argument.startswith("-"):
            if argument not in inner:
                return f"{' '.join(words)} has no command {argument!r}"
            command = inner[argument]
            words.append(argument)
        elif argument == "--":
            break
        elif len(argument) > 1 and argument.startswith("-"):
            known = {
                name: parameter
                for parameter in command.params
                for name in (*parameter.opts, *parameter.secondary_opts)
            }
            name, equals, _ = argument.partition("=")
            is_value = name in known and not equals and not known[name].is_flag
            if name not in {*known, "--help", "-h"}:
                return f"{' '.join(words)} has no option {argument!r} ({' '.join(arguments[: place + 1])})"
    return None


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_commands_exist(page: Page) -> None:
    assert [text for arguments in page.commands if (text := fault(arguments))] == []


def test_the_check_of_commands() -> None:
    assert [fault(words.split()) for words in ("", "up", "topic create T --queues 8", "send T -")] == [
        None
    ] * 4
    assert fault(["stop"]) == "sparrow has no command 'stop'"
    assert fault(["topic", "make"]) == "sparrow topic has no command 'make'"
    assert fault(["up", "--fast=1"]) == "sparrow up has no option '--fast=1' (up --fast=1)"


def test_every_command_is_documented() -> None:
    named = {tuple(arguments[:1]) for page in PAGES for arguments in page.commands}
    assert {(name,) for name in command_tree().commands} <= named


# Tables


def test_settings_page_is_fresh() -> None:
    script = ROOT / "scripts" / "generate_settings.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "fresh\n"), done.stdout + done.stderr


def test_commands_page_is_fresh() -> None:
    script = ROOT / "scripts" / "generate_commands.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "fresh\n"), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("heading", "kind", "base"),
    [
        ("`ClientSettings`", ClientSettings, None),
        ("`ProducerSettings`", ProducerSettings, ClientSettings),
        ("`ConsumerSettings`", ConsumerSettings, ClientSettings),
        ("`PullSettings`", PullSettings, ClientSettings),
    ],
)
def test_client_settings_are_those_of_the_code(heading: str, kind: Any, base: Any) -> None:
    inherited = {item.name for item in dataclasses.fields(base)} if base else set()
    expected = {
        item.name: sorted(item.default) if isinstance(item.default, frozenset) else item.default
        for item in dataclasses.fields(kind)
        if item.name not in inherited
    }
    shown = {}
    for name, default, _ in page("docs/client.md").table(heading):
        value = eval(default.strip("`"), {"Averagely": Averagely})
        shown[name.strip("`")] = sorted(value) if isinstance(value, set) else value
    assert shown == expected


def test_import_table_is_that_of_the_layer_test() -> None:
    expected = {
        name: (allowed - {"public"}, "public" in allowed, test_layers.WHEN_RUN.get(name, frozenset()))
        for name, allowed in test_layers.ALLOWED.items()
        if name not in ("public", "testing")
    }
    shown = {}
    for name, _, imports in page("docs/architecture.md").table("| package"):
        now, _, later = imports.partition("; when a command runs:")
        shown[name.strip("`")] = (
            frozenset(re.findall(r"`(\w+)`", now)),
            "public names" in now,
            frozenset(re.findall(r"`(\w+)`", later)),
        )
    assert shown.pop("testing") == (frozenset(), False, frozenset())  # everything
    assert shown == expected


def supported(address: str) -> dict[int, str]:
    """Codes a server has a handler for: it does not answer 3 to an empty request."""

    async def ask() -> dict[int, str]:
        client = RemotingClient()
        try:
            answers = {code: await client.call(address, Command(code), 5.0) for code in RequestCode}
        finally:
            await client.close()
        refused = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        return {int(code): code.name for code, answer in answers.items() if answer.code != refused}

    return run(ask())


@pytest.mark.parametrize("server", ["name server", "broker"])
def test_request_codes_are_those_of_the_servers(server: str, cluster: LocalCluster) -> None:
    address = cluster.namesrv if server == "name server" else cluster.broker_address
    rows = page("docs/protocol.md").table(f"## Requests to a {server}")
    assert {int(code): name.strip("`") for code, name, *_ in rows} == supported(address)


def test_answer_codes_are_those_of_the_code() -> None:
    rows = page("docs/protocol.md").table("## Answers")
    assert {int(code): name.strip("`") for code, name, _ in rows}.items() <= {
        int(code): code.name for code in ResponseCode
    }.items()


def test_what_clients_survive_is_tested() -> None:
    rows = page("docs/client.md").table("## What clients survive")
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row[2])]
    assert len(names) >= len(rows)
    for name in names:
        path, _, function = name.rpartition("::")
        source = (ROOT / (path or "tests/crash/test_robust_clients.py")).read_text()
        assert f"\ndef {function}(" in source, name
