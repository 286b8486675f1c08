"""Programs of the pages and examples run where a reader is: in a clone and from a wheel, in every way.

Nothing is set but HOME and PATH, and the `python3` that comes first there has none of our packages: Spark
would take it. The README's query goes each way once, and `tests/test_docs.py` runs the programs of all pages
as scripts; in the long tier every program goes every way in both places.
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import LONG
from tests.pages import ROOT, Page, Program, pages
from tests.reader import (
    SHELL,
    Home,
    addressed,
    clone,
    environment_of_a_reader,
    installed,
    run_notebook,
    run_script,
    run_shell,
)
from tests.spark.test_examples import SAYS

from sparrowmq.testing import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

Way = Callable[[Home, Path, str], str]
WAYS: dict[str, Way] = {"script": run_script, "notebook": run_notebook, "pyspark": run_shell}
HOMES: dict[str, Callable[[Path], Home]] = {"clone": clone, "wheel": installed}
EVERY_WAY = list(itertools.product(WAYS, HOMES))
FIRST_QUERY = EVERY_WAY if LONG else [("script", "wheel"), ("notebook", "clone"), ("pyspark", "wheel")]
README = Page(ROOT / "README.md")
PAGES = [page.path for page in pages() if any(program.needs_spark for program in page.programs)]
EXAMPLES = [ROOT / "examples" / f"{name}.py" for name in SAYS]
SEEN = "assert orders.count() == 2\n"
"""What is added to the README's query: it read the two orders that were sent before."""


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Home]:
    return {name: make(tmp_path_factory.mktemp(name)) for name, make in HOMES.items()}


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running:
        yield running


def prepare(program: Program, cluster: LocalCluster) -> None:
    """Run a program without Spark."""
    if not program.is_test:
        exec(compile(addressed(program.text, cluster), str(program.page), "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize(("way", "home"), FIRST_QUERY)
def test_the_first_query_of_the_guide_works(
    way: str, home: str, homes: dict[str, Home], cluster: LocalCluster, tmp_path: Path
) -> None:
    for program in README.programs:
        if not program.needs_spark:
            prepare(program, cluster)
            continue
        text = addressed(program.text, cluster) + SEEN
        assert WAYS[way](homes[home], tmp_path, text) == ""


def test_the_line_that_starts_the_shell_is_the_page_s() -> None:
    assert SHELL in [line for block in README.blocks for line in block.text.splitlines()]


UNREGISTERED = """
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sparrowmq.spark import register

spark = SparkSession.builder.master("local[1]").getOrCreate()
def count():
    options = {"nameServer": "127.0.0.1:9876", "subscribe": "Known"}
    return spark.read.format("rocketmq").options(**options).load().count()

try:
    print("found", count())
except Exception as error:
    assert "DATA_SOURCE_NOT_FOUND" in str(error), error
else:
    raise AssertionError("the python3 of this environment knows rocketmq: it is not a reader's")
register(spark)
assert count() == 0
spark = spark.newSession()
register(spark)
assert count() == 0
"""


def test_a_session_that_did_not_find_the_source_finds_it_after_registration(
    homes: dict[str, Home], cluster: LocalCluster, tmp_path: Path
) -> None:
    cluster.create_topic("Known")
    assert run_script(homes["clone"], tmp_path, addressed(UNREGISTERED, cluster)) == ""


def test_the_reader_s_python_has_none_of_our_packages(tmp_path: Path) -> None:
    environment = environment_of_a_reader(tmp_path)
    done = subprocess.run(
        ["python3", "-c", "import sparrowmq"], env=environment, capture_output=True, text=True, check=False
    )
    assert "No module named 'sparrowmq'" in done.stderr
    assert environment.keys() == {"HOME", "PATH"}


def cases(paths: list[Path], *sample: str) -> list[Any]:
    """In the long tier every path in every way and home; else the sample: a name, a way and a home."""
    every = [(path, way, home) for path, (way, home) in itertools.product(paths, EVERY_WAY)]
    chosen = [one for one in every if LONG or (one[0].name, *one[1:]) == sample]
    assert chosen, f"{sample} is not there"
    return [pytest.param(path, way, home, id=f"{path.stem}-{way}-{home}") for path, way, home in chosen]


@pytest.mark.parametrize(("path", "way", "home"), cases(PAGES, "store.md", "notebook", "wheel"))
def test_programs_of_pages(
    path: Path, way: str, home: str, homes: dict[str, Home], cluster: LocalCluster, tmp_path: Path
) -> None:
    for number, program in enumerate(Page(path).programs):
        if program.needs_spark:
            text = addressed(program.text, cluster)
            assert WAYS[way](homes[home], tmp_path / str(number), text) == ""
        else:
            prepare(program, cluster)


@pytest.mark.parametrize(("path", "way", "home"), cases(EXAMPLES, "spark_windows.py", "script", "clone"))
def test_examples(
    path: Path, way: str, home: str, homes: dict[str, Home], cluster: LocalCluster, tmp_path: Path
) -> None:
    """In a notebook and a shell they are called, for the arguments there are not the program's."""
    text, _, _ = path.read_text().partition('\n\nif __name__ == "__main__":')
    assert WAYS[way](homes[home], tmp_path, f'{text}\nmain("{cluster.namesrv}")\n') == ""
