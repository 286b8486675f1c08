from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.shipping import check_driver, package_zip


def test_the_zip_holds_the_package_and_the_module_that_spark_looks_for(tmp_path: Path) -> None:
    path = package_zip(tmp_path / "sparrowmq.zip")
    names = zipfile.ZipFile(path).namelist()
    assert {"pyspark_rocketmq.py", "sparrowmq/__init__.py", "sparrowmq/spark/source.py"} <= set(names)
    assert all(name.endswith(".py") for name in names)
    code = "import sparrowmq.spark.read.fetch; print(sparrowmq.__file__)"
    said = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(path)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.startswith(str(path))


def test_a_driver_with_its_own_package_is_fine(tmp_path: Path) -> None:
    for package in (Path(__file__).parent, Path("/opt/site-packages/sparrowmq")):
        assert check_driver(str(tmp_path), package) is None  # type: ignore[func-returns-value]


@pytest.mark.proves("spark:H-03")
@pytest.mark.parametrize("place", ["sent/sparrowmq", "elsewhere/sparrowmq.zip/sparrowmq"])
def test_a_driver_that_has_only_what_workers_get_is_told(tmp_path: Path, place: str) -> None:
    with pytest.raises(SettingsError, match=r"only from --py-files .*pip install 'sparrowmq\[spark\]'"):
        check_driver(str(tmp_path / "sent"), tmp_path / place)
