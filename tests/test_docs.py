"""The documentation tells the truth: programs run, tables are the code's, links lead somewhere."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
from scripts import checks
from tests import test_layers
from tests.pages import ROOT, Page, Program, pages
from tests.reader import addressed, environment_of_a_reader
from tests.support import run

from sparrowmq.aio import Admin
from sparrowmq.broker.access.rights import RIGHTS
from sparrowmq.cli.main import app
from sparrowmq.client.base.settings import ClientSettings, ConsumerSettings, ProducerSettings, PullSettings
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

def forget_session():
    session = SparkSession._instantiatedSession
    if session is None:
        return
    sessions = SparkSession._get_j_spark_session_class(session._jvm)
    sessions.clearDefaultSession()
    sessions.clearActiveSession()
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    session.sparkContext.pythonExec = "python3"

for line in sys.stdin:
    path, directory = json.loads(line)
    os.chdir(directory)
    failed = ""
    try:
        with open(path) as source:
            exec(compile(source.read(), path, "exec"), {"__name__": "__main__"})
    except BaseException:
        failed = traceback.format_exc()
    forget_session()
    print("\\n" + json.dumps({"failed": failed}), flush=True)
"""


class SparkChild:
    """A process of a reader that runs programs with Spark one after the other, each in a session of its own.

    They share one JVM, which makes them quick; what a program registers is not there for the next one.
    """

    def __init__(self, directory: Path) -> None:
        from tests.spark.spark_home import quick_environment

        settings = " ".join(f"--conf {setting}" for setting in SMALL_SPARK)
        environment = {
            **environment_of_a_reader(directory),
            **quick_environment(),
            "PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell",
        }
        self.log = directory / "log"
        self.place = directory / "place"
        self.place.mkdir()
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", CHILD],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.place,
                env=environment,
                text=True,
            )

    def begin_page(self) -> None:
        """Forget what the page before has put into relative paths: Java has the same directory for all."""
        for left in self.place.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()

    def run(self, script: Path) -> str:
        """What went wrong with a program, or nothing."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([str(script), str(self.place)]) + "\n")
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
    spark_child.begin_page()
    monkeypatch.chdir(spark_child.place)
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


def test_every_page_can_be_reached_from_the_readme() -> None:
    found, next_ones = set[Path](), {ROOT / "README.md"}
    while next_ones:
        found |= next_ones
        targets = {
            (path.parent / link.partition("#")[0]).resolve()
            for path in next_ones
            for link in Page(path).links
            if link.partition("#")[0].endswith(".md") and "://" not in link
        }
        next_ones = targets - found
    assert {page.path for page in PAGES if page.path.is_relative_to(DOCS)} - found == set()


def test_every_decision_has_its_own_number_and_a_row_of_the_index() -> None:
    rows = page("docs/adr/README.md").table("| number")
    shown = {int(number): link for number, link in rows}
    expected = {}
    for path in sorted((DOCS / "adr").glob("[0-9]*.md")):
        number, _, title = path.read_text().partition("\n")[0].removeprefix("# ").partition(". ")
        assert path.name.startswith(f"{int(number):04d}-"), path.name
        assert int(number) not in expected, f"{path.name}: this number is taken; use the next free one"
        expected[int(number)] = f"[{title}]({path.name})"
    assert shown == expected
    assert [int(number) for number, _ in rows] == sorted(expected)


@cache
def command_tree() -> Any:
    return typer.main.get_command(app)


def fault(arguments: list[str]) -> str | None:
    """What is wrong with the arguments of `sparrow`: a command or an option that does not exist."""
    if arguments[:1] == ["test"]:  # the launcher's
        try:
            checks.parser().parse_args(arguments[1:])
        except SystemExit:
            return f"./sparrow test does not take {' '.join(arguments[1:])!r}"
        return None
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
    assert fault(["test", "long", "--jobs", "1"]) is None
    assert fault(["test", "quick"]) == "./sparrow test does not take 'quick'"
    assert fault(["stop"]) == "sparrow has no command 'stop'"
    assert fault(["topic", "make"]) == "sparrow topic has no command 'make'"
    assert fault(["up", "--fast=1"]) == "sparrow up has no option '--fast=1' (up --fast=1)"


def test_every_command_is_documented() -> None:
    named = {tuple(arguments[:1]) for page in PAGES for arguments in page.commands}
    assert {(name,) for name in command_tree().commands} <= named


# Tables


def test_settings_page_is_fresh() -> None:
    command = [sys.executable, "-m", "scripts.generate_settings", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "fresh\n"), done.stdout + done.stderr


def test_table_of_rights_is_fresh() -> None:
    command = [sys.executable, "-m", "scripts.generate_rights", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "fresh\n"), done.stdout + done.stderr


def test_commands_page_is_fresh() -> None:
    command = [sys.executable, "-m", "scripts.generate_commands", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
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
    for name, _, default, _ in page("docs/client.md").table(heading):
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


def test_rooms_of_spark_are_those_of_the_layer_test() -> None:
    shown = {
        name.strip("`"): set(re.findall(r"`([\w.]+)`", imports))
        for name, _, imports in page("docs/architecture.md").table("| room | owns | may import, of these")
    }
    assert shown == {name: set(below.split()) for name, below in test_layers.ROOMS["spark"].items()}


def test_table_of_rooms_is_that_of_the_layer_test() -> None:
    rows = page("docs/architecture.md").table("| package | rooms")
    shown = {name.strip("`"): re.findall(r"`([\w.]+)`", rooms) for name, rooms in rows}
    assert shown == {name: list(rooms) for name, rooms in test_layers.ROOMS.items()}


def test_the_glossary_has_each_term_once_and_names_modules_that_are_there() -> None:
    rows = page("docs/glossary.md").table("| term")
    terms = [row[0] for row in rows]
    assert terms == sorted(set(terms), key=str.lower)
    assert [row[-1] for row in rows if not (ROOT / "src" / "sparrowmq" / row[-1].strip("`")).is_file()] == []


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


TO_CLIENTS = frozenset({39, 40, 220, 221, 326, 905})
"""What servers ask their clients and each other, besides 307 and 309, which clients ask servers, too."""


def codes_in(text: str) -> set[int]:
    """The codes a cell lists: numbers, and ranges written `1 to 3`; not what stands in brackets."""
    found: set[int] = set()
    for first, last in re.findall(r"(\d+)(?: to (\d+))?", re.sub(r"\([^)]*\)", "", text)):
        found.update(range(int(first), int(last or first) + 1))
    return found


def refused_codes() -> set[int]:
    """The codes that the page says are refused."""
    rows = page("docs/protocol.md").table("## What is refused")
    return set().union(*(codes_in(codes) for _, codes, _ in rows))


def served_codes() -> set[int]:
    """The codes in the page's tables of what servers do, the coordinator's among them."""
    tables = (
        "## Requests to a name server",
        "## Requests to a broker",
        "### Members and their coordinator",
        "## Access control",
    )
    return set().union(
        *(codes_in(row[0]) for table in tables for row in page("docs/protocol.md").table(table))
    )


def test_codes_in_a_cell() -> None:
    assert codes_in("400 (for groups with 7), 402, 10 to 12") == {400, 402, 10, 11, 12}


def test_every_code_we_have_a_name_or_rights_for_is_served_or_listed_as_refused() -> None:
    known = {int(code) for code in RequestCode} | {int(code) for code in RIGHTS}
    assert known - served_codes() - refused_codes() - TO_CLIENTS == set()


def test_what_the_page_says_is_refused_is_refused(cluster: LocalCluster) -> None:
    async def ask() -> dict[int, int]:
        client = RemotingClient()
        try:
            group = {"consumerGroup": "nobody", "topic": "T"}
            calls = {
                code: await client.call(cluster.broker_address, Command(code, ext=dict(group)), 5.0)
                for code in refused_codes()
            }
        finally:
            await client.close()
        return {code: answer.code for code, answer in calls.items()}

    refused = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert {code: found for code, found in run(ask()).items() if found != refused} == {}
    assert (refused_codes() - {400}) & served_codes() == set()


def test_answer_codes_are_those_of_the_code() -> None:
    rows = page("docs/protocol.md").table("## Response codes")
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


def test_what_attackers_may_try_is_tested() -> None:
    section = (
        page("docs/operations.md").text.partition("\n## What an attacker may try\n")[2].partition("\n## ")[0]
    )
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith(("| what is tried |", "| --- |"))]
    assert len(rows) >= 60
    for row in rows:
        names = re.findall(r"`(tests/[^`]+)`", row)
        assert names, row
        for name in names:
            path, *inside = name.split("::")
            source = (ROOT / path).read_text()
            for one in inside:
                assert re.search(rf"^ *(?:async )?(?:def|class) {one}\b", source, re.MULTILINE), name


def test_every_change_is_told_once() -> None:
    """Lines that were changed on two sides must not both stay."""
    text = (ROOT / "CHANGELOG.md").read_text()
    entries = [" ".join(one.split()) for one in re.split(r"\n(?=- |\n|#)", text)]
    beginnings = [one[:60] for one in entries if one.startswith("- ")]
    assert sorted({one for one in beginnings if beginnings.count(one) > 1}) == []


@pytest.mark.parametrize("page", [*PAGES, Page(ROOT / "CHANGELOG.md")], ids=str)
def test_calls_of_admin_have_their_names(page: Page) -> None:
    """Former names, such as `Admin.create_topic`, work with a warning only."""
    parts = vars(Admin("127.0.0.1:1"))
    assert sorted({name for name in re.findall(r"\bAdmin\.(\w+)", page.text) if name not in parts}) == []
