"""The Spark programs under examples/ run, in the tests' session, and do what they say."""

from __future__ import annotations

import runpy
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tests.repository.test_examples import EXAMPLES
from tests.spark.support import Topics

SAYS = {
    "spark_deduplicate": "100 stored, 50 read\n",
    "spark_join": "order-1: book 1 was paid with 30\norder-3: book 3 was paid with 8\n",
    "spark_state": "after run 1: drill 2, drill 3, press 4\n"
    "after run 2: drill 2, drill 3, lathe 4, lathe 5, lathe 6, press 4\n",
    "spark_windows": "in complete windows: {'created': 40, 'paid': 20}\n",
}
"""What each program prints at its end."""
ELSEWHERE = {
    "spark_merge_delta": "tests/versions/test_merges.py",
    "spark_merge_iceberg": "tests/versions/test_merges.py",
    "spark_merge_postgresql": "tests/databases/test_merges.py",
}
"""Programs that need another Spark, or a database, and where they are run."""
SETTING = "spark.sql.streaming.stateStore.providerClass"


@pytest.fixture
def own_state_store(spark: SparkSession) -> Iterator[None]:
    """What a program sets does not reach other tests."""
    before = spark.conf.get(SETTING)
    yield
    spark.conf.set(SETTING, before)


@pytest.mark.proves("spark:Q-01", "spark:Q-03", "spark:Q-04")
@pytest.mark.usefixtures("spark", "own_state_store")
@pytest.mark.parametrize("program", SAYS)
def test_the_program_runs(program: str, topics: Topics, capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(EXAMPLES / f"{program}.py"), run_name=program)["main"]
    main(topics.cluster.namesrv)
    assert capsys.readouterr().out.endswith(SAYS[program])


def test_every_spark_program_is_run() -> None:
    assert sorted({**SAYS, **ELSEWHERE}) == sorted(path.stem for path in EXAMPLES.glob("spark_*.py"))
    for program, test in ELSEWHERE.items():
        assert f'"{program}.py"' in (EXAMPLES.parent / test).read_text()
