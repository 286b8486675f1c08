"""The files of the pages are in the wheel and stay small."""

from __future__ import annotations

import gzip
import tomllib
from pathlib import Path

from tests.console.site import Reader

from sparrowmq import console
from sparrowmq.console.rendering import STATIC, static_file

HOME = Path(console.__file__).parent
ROOT = Path(__file__).parent.parent.parent
PAGE_BYTES_MAX = 150 * 1024


def test_every_file_that_is_not_a_module_is_package_data() -> None:
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"][
        "sparrowmq"
    ]
    packed = {path for pattern in named for path in HOME.parent.glob(pattern)}
    files = {path for path in HOME.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert len(files) > 15 and files <= packed


def test_nothing_is_loaded_from_other_sites() -> None:
    for path in HOME.rglob("*"):
        if path.suffix in (".html", ".css", ".js", ".svg"):
            text = path.read_text().replace("http://www.w3.org/2000/svg", "")
            assert "http://" not in text and "https://" not in text and "@import" not in text, path
            assert "eval(" not in text and "style=" not in text, path


def test_page_size_is_small(admin: Reader) -> None:
    files = sum(len(gzip.compress(static_file(name))) for name in STATIC)
    for path in ("/", "/audit", "/services"):
        assert len(gzip.compress(admin.page(path).text.encode())) + files < PAGE_BYTES_MAX
