"""constraints.txt has a version for all that the package and its tests need, and none that is not allowed."""

from __future__ import annotations

import pytest
from scripts import generate_constraints as script


def test_everything_has_an_allowed_version() -> None:
    assert script.problems(script.TARGET.read_text()) == []


def test_what_the_package_needs_itself_is_counted() -> None:
    assert {"msgspec", "pytest", "pyspark", "sqlalchemy", "setuptools", "psycopg-binary"} <= script.needed()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("msgspec==", "other==", "msgspec has no version in constraints.txt"),
        ("wcwidth==", "other==", "wcwidth has no version in constraints.txt"),
        ("sqlalchemy==2", "sqlalchemy==3", "sqlalchemy<3,>=2.0.36 does not allow 3"),
    ],
)
def test_a_version_that_lacks_or_is_not_allowed_is_found(old: str, new: str, says: str) -> None:
    text = script.TARGET.read_text()
    assert old in text
    found = script.problems(text.replace(old, new))
    assert any(one.startswith(says) for one in found), found


def test_comments_are_no_versions() -> None:
    assert script.pins("# a\nb==1  # why\n\n") == {"b": "1"}
