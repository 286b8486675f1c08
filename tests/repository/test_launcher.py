"""The launcher: what it runs, and what it says when something is missing. No network, no real set-up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
STAMPED = ("pyproject.toml", "constraints.txt")
"""What an environment is made from."""
TOOLS = ("sh", "cat", "cksum", "id", "sed", "head", "dirname", "tail", "rm", "mkdir", "mktemp")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A directory with the launcher, and a PATH with nothing but the tools it needs."""
    root = tmp_path / "clone"
    tools = tmp_path / "tools"
    root.mkdir()
    tools.mkdir()
    for name in ("sparrow", *STAMPED):
        shutil.copy(ROOT / name, root / name)
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    return root


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # a link to one of the system's programs, which must not be written to
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def stamp(root: Path, name: str) -> None:
    """An environment that was set up: its programs print their arguments."""
    program(root / ".venv" / "bin" / "sparrow", 'printf "<%s>" "$@"')
    program(root / ".venv" / "bin" / "python", 'printf "<%s>" "$@"')
    made_from = b"".join((root / part).read_bytes() for part in STAMPED)
    text = subprocess.run(["cksum"], input=made_from, capture_output=True, check=True).stdout.decode()
    (root / ".venv" / f".sparrow-{name}").write_text(f"{root} {text.strip()}")


def sparrow(root: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": str(root.parent / "tools"), "HOME": os.environ.get("HOME", "/"), **environment}
    return subprocess.run(
        [str(root / "sparrow"), *arguments], env=variables, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("base", ()),
        ("base", ("send", "T", "a b", "")),
        ("demo", ("up",)),
        ("demo", ("demo", "--help")),
        ("test-full", ("up",)),
    ],
)
def test_what_is_installed_runs_at_once(clone: Path, name: str, arguments: tuple[str, ...]) -> None:
    stamp(clone, name)
    done = sparrow(clone, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("".join(f"<{argument}>" for argument in arguments) or "<>")


@pytest.mark.parametrize("arguments", [("fast",), ("--help",), ("long", "--jobs", "2")])
def test_the_checks_are_those_of_the_repository(clone: Path, arguments: tuple[str, ...]) -> None:
    stamp(clone, "test-full")
    tools = (
        "java",
        "javac",
        "mvn",
        "node",
        "npm",
        "initdb",
        "mariadbd",
        "chromium",
        "prometheus",
        "promtool",
    )
    for name in tools:
        program(clone.parent / "tools" / name, "echo 'openjdk version \"17.0.1\"' >&2")
    done = sparrow(clone, "test", *arguments)
    wanted = "".join(f"<{argument}>" for argument in ("-m", "scripts.checks", *arguments))
    assert (done.returncode, done.stdout, done.stderr) == (0, wanted, "")


def test_it_runs_where_it_was_called(clone: Path, tmp_path: Path) -> None:
    stamp(clone, "base")
    program(clone / ".venv" / "bin" / "sparrow", 'printf "%s" "$PWD"')
    variables = {"PATH": str(tmp_path / "tools")}
    done = subprocess.run(
        ["../clone/sparrow"],
        cwd=tmp_path / "tools",
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == str(tmp_path / "tools")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("base", ("demo",)),
        ("demo", ("test", "fast")),
        ("nothing", ("up",)),
        ("test", ("test", "full")),
        ("test", ("test", "--jobs", "1", "long")),
    ],
)
def test_a_smaller_set_is_not_enough(clone: Path, name: str, arguments: tuple[str, ...]) -> None:
    stamp(clone, name)
    done = sparrow(clone, *arguments)
    assert done.returncode == 1
    assert "Python 3.11 or later is needed; found: none" in done.stderr


@pytest.mark.parametrize("changed", STAMPED)
def test_a_change_of_what_is_installed_sets_up_again(clone: Path, changed: str) -> None:
    stamp(clone, "base")
    with (clone / changed).open("a") as project:
        project.write("\n# changed\n")
    assert "Python 3.11 or later is needed" in sparrow(clone).stderr


def test_an_old_python_is_named(clone: Path) -> None:
    program(clone.parent / "tools" / "python3", '[ "$1" = --version ] && echo "Python 3.9.2" || exit 1')
    assert "Python 3.11 or later is needed; found: Python 3.9.2" in sparrow(clone).stderr


def test_packages_are_installed_by_the_constraints(clone: Path) -> None:
    """Also what builds the package; a path with a blank in it changes nothing."""
    root = clone.rename(clone.parent / "a clone")
    (root.parent / "tools" / "python3").symlink_to(sys.executable)
    shown = 'printf "%s\\n" "$PWD" "$PIP_CONSTRAINT" "$PIP_BUILD_CONSTRAINT" "$*" >&2; exit 1'
    program(root / ".venv" / "bin" / "python", f'case "$*" in *--version) ;; *) {shown} ;; esac')
    lines = sparrow(root, "up").stderr.splitlines()
    said = lines.index(str(root))
    assert lines[said + 1 : said + 3] == ["constraints.txt"] * 2
    assert lines[said + 3].endswith(f"--editable {root}[coordinator]")


def test_packages_are_installed_by_uv_where_it_can_be_had(clone: Path) -> None:
    (clone.parent / "tools" / "python3").symlink_to(sys.executable)
    uv = clone / ".venv" / "bin" / "uv"
    program(uv, f'printf "%s\\n" "$@" >{clone.parent}/uv')
    program(clone / ".venv" / "bin" / "python", 'case "$*" in *--version | *uv) ;; *) exit 1 ;; esac')
    sparrow(clone, "up")
    assert (clone / ".venv" / ".sparrow-base").exists()
    asked = (clone.parent / "uv").read_text().splitlines()
    assert asked[:2] == ["pip", "install"] and asked[-1] == f"{clone}[coordinator]"
    assert [asked[asked.index(name) + 1] for name in ("--constraint", "--build-constraint")] == (
        ["constraints.txt"] * 2
    )


def test_what_uv_has_in_its_cache_is_not_downloaded_again(clone: Path) -> None:
    """It asks the index when the cache lacks something."""
    (clone.parent / "tools" / "python3").symlink_to(sys.executable)
    asked = clone.parent / "uv"
    there = f'echo "$*" >>{asked}; case "$*" in *--offline*) exit %d ;; esac'
    program(clone / ".venv" / "bin" / "python", "exit 0")
    for status in (0, 1):
        asked.unlink(missing_ok=True)
        program(clone / ".venv" / "bin" / "uv", there % status)
        with (clone / "constraints.txt").open("a") as constraints:
            constraints.write("\n")
        sparrow(clone, "up")
        assert (clone / ".venv" / ".sparrow-base").exists()
        installs = [line for line in asked.read_text().splitlines() if "--editable" in line]
        assert [" --offline " in line for line in installs] == [True, False][: 1 + status]


def test_uv_is_installed_by_the_pip_that_comes_with_python(clone: Path) -> None:
    """So the environment is made without one, which takes a quarter of the time."""
    tools, asked = clone.parent / "tools", clone.parent / "asked"
    making = f'case "$2" in venv) echo "$*" >>{asked}; exit 1 ;; esac; exec {sys.executable} "$@"'
    program(tools / "python3", making)
    assert "no virtual environment could be made" in sparrow(clone, "up").stderr
    program(
        clone / ".venv" / "bin" / "python",
        f'echo "$*" >>{asked}; case "$*" in *--version) ;; *) exit 1 ;; esac',
    )
    assert sparrow(clone, "up").returncode == 1
    venv, _, uv, *_ = asked.read_text().splitlines()
    assert venv == f"-m venv --without-pip {clone}/.venv"
    wheel, _, rest = uv.partition(".whl/pip ")
    assert Path(f"{wheel}.whl").is_file()
    assert rest == "install --quiet --disable-pip-version-check --constraint constraints.txt uv"


def test_pip_goes_on_where_uv_fails(clone: Path) -> None:
    (clone.parent / "tools" / "python3").symlink_to(sys.executable)
    program(clone / ".venv" / "bin" / "uv", "exit 1")
    shown = f'printf "%s\\n" "$*" >>{clone.parent}/pip'
    program(clone / ".venv" / "bin" / "python", shown)
    sparrow(clone, "up")
    assert (clone / ".venv" / ".sparrow-base").exists()
    asked = (clone.parent / "pip").read_text().splitlines()
    assert any(line.endswith("--constraint constraints.txt uv") for line in asked)
    assert asked[-1].endswith(f"--editable {clone}[coordinator]")


def test_a_failed_set_up_leaves_no_stamp(clone: Path) -> None:
    """pip cannot install anything here: there are no sources beside the launcher."""
    (clone.parent / "tools" / "python3").symlink_to(sys.executable)
    program(
        clone / ".venv" / "bin" / "python", 'case "$*" in *--version) ;; *) echo broken >&2; exit 1 ;; esac'
    )
    done = sparrow(clone, "up")
    assert done.returncode == 1
    assert "pip could not install it (see above)" in done.stderr
    assert not list((clone / ".venv").glob(".sparrow-*"))


@pytest.mark.parametrize(
    ("command", "what", "packages"),
    [
        ("demo", "Java 17 or later", "openjdk-17-jre-headless"),
        ("test", "a JDK 17 or later with Maven", "openjdk-17-jdk-headless maven"),
    ],
)
@pytest.mark.parametrize(
    "java", ["", "echo 'openjdk version \"11.0.2\"' >&2", "echo 'java version \"1.8.0_1\"' >&2"]
)
def test_missing_java_is_told_with_the_line_to_type(
    clone: Path, command: str, what: str, packages: str, java: str
) -> None:
    stamp(clone, "test")
    if java:
        program(clone.parent / "tools" / "java", java)
    program(clone.parent / "tools" / "apt-get", "exit 1")
    done = sparrow(clone, command, SPARROW_SYSTEM_PACKAGES="no")
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"{what}" in done.stderr
    assert f"apt-get install -y --no-install-recommends {packages}" in done.stderr


@pytest.mark.parametrize("there", ["", "node", "npm"])
def test_missing_node_is_told_with_the_line_to_type(clone: Path, there: str) -> None:
    stamp(clone, "test")
    tools = clone.parent / "tools"
    for name in ("java", "javac", "mvn", *filter(None, [there])):
        program(tools / name, "echo 'openjdk version \"17.0.1\"' >&2")
    program(tools / "apt-get", "exit 1")
    done = sparrow(clone, "test", SPARROW_SYSTEM_PACKAGES="no")
    assert done.returncode == 1
    assert "Node.js with npm" in done.stderr
    assert "apt-get install -y --no-install-recommends nodejs npm" in done.stderr
    assert sparrow(clone, "test", "fast").stdout == "<-m><scripts.checks><fast>"


@pytest.mark.parametrize(
    ("there", "what", "package"),
    [
        ("", "a PostgreSQL server", "postgresql"),
        ("mariadbd", "a PostgreSQL server", "postgresql"),
        ("initdb", "a MariaDB server", "mariadb-server"),
    ],
)
def test_a_missing_database_server_is_told_with_the_line_to_type(
    clone: Path, there: str, what: str, package: str
) -> None:
    """What is there already stays as it is."""
    stamp(clone, "test")
    tools = clone.parent / "tools"
    for name in ("java", "javac", "mvn", "node", "npm", *filter(None, [there])):
        program(tools / name, "echo 'openjdk version \"17.0.1\"' >&2")
    program(tools / "apt-get", "exit 1")
    nowhere = {"SPARROW_SYSTEM_PACKAGES": "no", "SPARROW_SERVER_FOLDERS": "/nowhere"}
    done = sparrow(clone, "test", **nowhere)
    assert done.returncode == 1
    assert what in done.stderr
    assert f"apt-get install -y --no-install-recommends {package}\n" in done.stderr
    assert sparrow(clone, "test", "fast", **nowhere).stdout == "<-m><scripts.checks><fast>"
    for name in ("initdb", "mariadbd"):
        program(tools.parent / "sbin" / name, "exit 0")
    there_now = {"SPARROW_SYSTEM_PACKAGES": "no", "SPARROW_SERVER_FOLDERS": str(tools.parent / "sbin")}
    last = sparrow(clone, "test", **there_now)
    assert last.returncode == 1 and "Chromium (the tests walk through" in last.stderr
    assert "apt-get install -y --no-install-recommends chromium\n" in last.stderr
    program(tools / "chromium", "exit 0")
    program(tools / "prometheus", "exit 0")
    last = sparrow(clone, "test", **there_now)
    assert last.returncode == 1 and "Prometheus (the tests scrape" in last.stderr
    assert "apt-get install -y --no-install-recommends prometheus\n" in last.stderr
    program(tools / "promtool", "exit 0")
    found = sparrow(clone, "test", **there_now)
    assert (found.returncode, found.stdout) == (0, "<-m><scripts.checks>")


def test_a_stand_in_replaces_a_link_and_not_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    program(tmp_path / "link", "echo")
    assert (tmp_path / "real").read_text() == "real"


def test_new_java_is_enough(clone: Path) -> None:
    stamp(clone, "demo")
    program(clone.parent / "tools" / "java", "echo 'openjdk version \"17.0.1\"' >&2")
    assert sparrow(clone, "demo").stdout == "<demo>"


def test_an_old_java_home_gives_way_to_a_new_java_in_path(clone: Path, tmp_path: Path) -> None:
    stamp(clone, "demo")
    program(clone / ".venv" / "bin" / "sparrow", 'printf "%s" "${JAVA_HOME:-none}"')
    program(tmp_path / "old" / "bin" / "java", "echo 'java version \"1.8.0\"' >&2")
    program(clone.parent / "tools" / "java", "echo 'openjdk version \"21\"' >&2")
    done = sparrow(clone, "demo", JAVA_HOME=str(tmp_path / "old"))
    assert done.stdout == "none"
    assert "has no Java 17 or later; using" in done.stderr


def test_the_ci_entry_runs_every_check() -> None:
    text = (ROOT / ".ci" / "run").read_text()
    assert "exec ./sparrow test" in text
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
