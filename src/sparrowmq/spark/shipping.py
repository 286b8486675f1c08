"""This package for Spark's workers: a zip for `--py-files`, and a check that the driver has the package
installed.

The driver needs the installed package: Spark computes a stream's offsets in a separate process there, which
does not get `--py-files` (spark:H-03).
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sparrowmq.core.errors import SettingsError

_PACKAGE: Final = Path(__file__).resolve().parents[1]


def package_zip(target: Path | str) -> Path:
    """Write this package, and the module by which Spark finds it, to a zip file for `--py-files`.

    It contains only Python files: workers need the dependencies of `sparrowmq[spark]` from elsewhere. Returns
    the absolute path. Raises OSError.
    """
    path = Path(target).absolute()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for source, name in _sources():
            archive.write(source, name)
    return path


def _sources() -> Iterator[tuple[Path, str]]:
    root = _PACKAGE.parent
    for source in sorted(_PACKAGE.rglob("*.py")):
        yield source, source.relative_to(root).as_posix()
    yield root / "pyspark_rocketmq.py", "pyspark_rocketmq.py"


def check_driver(shipped: str, package: Path | str = _PACKAGE) -> None:
    """Raises `SettingsError` when the driver has `package` only from `--py-files`.

    `shipped` is the directory where Spark stores files that are sent to workers (`SparkFiles`).
    """
    path, root = Path(package).resolve(), Path(shipped).resolve()
    if path.is_relative_to(root) or ".zip" in {part.suffix for part in (path, *path.parents)}:
        raise SettingsError(
            f"the driver has sparrowmq only from --py-files ({path}); streams would fail there with "
            f"ModuleNotFoundError. Install it on the driver: pip install 'sparrowmq[spark]'"
        )
