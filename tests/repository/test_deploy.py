"""What deploy/ holds: manifests and image keep the rules below, and their commands are ours.

No cluster is started. `tests/versions/test_deploy.py` holds the manifests against Kubernetes' own schemas,
`tests/spark/sessions/test_stream_job.py` runs the job.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import typer.main
import yaml

from sparrowmq.cli.main import app

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
DOCKERFILE = DEPLOY / "image" / "Dockerfile"
OURS = "registry.example.com/sparrowmq-spark:"


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in MANIFESTS:
        for value in yaml.safe_load_all(path.read_text()):
            yield path.name, value


def of_kind(*kinds: str) -> list[dict[str, Any]]:
    return [value for _, value in documents() if value["kind"] in kinds]


def pods() -> Iterator[dict[str, Any]]:
    """The specifications of pods, of jobs and cron jobs."""
    for value in of_kind("Job", "CronJob"):
        spec = value["spec"].get("jobTemplate", value)["spec"]
        yield spec["template"]["spec"]


def version() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)
    elif isinstance(value, str):
        yield value


def test_each_document_has_a_kind_and_a_name_of_its_own() -> None:
    seen = [(value["apiVersion"], value["kind"], value["metadata"]["name"]) for _, value in documents()]
    assert len(seen) == len(set(seen)) > 5
    assert {kind for _, kind, _ in seen} >= {"CronJob", "Job", "SparkApplication", "Role", "ServiceAccount"}


def test_images_are_this_release_and_spark_the_one_it_is_tested_with() -> None:
    images = [text for _, value in documents() for text in strings(value) if OURS in text]
    assert {text.partition(OURS)[2] for text in images} == {version()}
    assert len(images) == 4
    (application,) = of_kind("SparkApplication")
    lines = DOCKERFILE.read_text().splitlines()
    assert application["spec"]["sparkVersion"] == pyspark.__version__
    assert f"ARG SPARK={pyspark.__version__}" in lines
    assert f"ARG SPARROWMQ={version()}" in lines


def test_pods_run_without_rights_and_have_time_to_end_their_batch() -> None:
    found = list(pods())
    assert len(found) == 2
    for pod in found:
        assert pod["restartPolicy"] == "Never", "the Job tries again, in a new pod"
        assert pod["terminationGracePeriodSeconds"] >= 60
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert container["resources"]["limits"]["memory"] == container["resources"]["requests"]["memory"]
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    (application,) = of_kind("SparkApplication")
    for role in ("driver", "executor"):
        assert application["spec"][role]["securityContext"]["runAsNonRoot"] is True


def test_what_a_manifest_names_is_there() -> None:
    names = {(value["kind"], value["metadata"]["name"]) for _, value in documents()}
    for pod in pods():
        account = pod.get("serviceAccountName")
        assert account is None or ("ServiceAccount", account) in names
        mounted = {mount["name"] for one in pod["containers"] for mount in one.get("volumeMounts", ())}
        assert mounted == {volume["name"] for volume in pod.get("volumes", ())}
        for volume in pod.get("volumes", ()):
            assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in names
    (binding,) = of_kind("RoleBinding")
    assert ("Role", binding["roleRef"]["name"]) in names
    (application,) = of_kind("SparkApplication")
    spec = application["spec"]
    assert ("ServiceAccount", spec["driver"]["serviceAccount"]) in names
    inside, _, file = spec["mainApplicationFile"].removeprefix("local://").rpartition("/")
    assert f"COPY deploy/jobs {inside}" in DOCKERFILE.read_text()
    assert (DEPLOY / "jobs" / file).is_file()


def test_commands_are_ours_and_only_wrong_usage_ends_a_job() -> None:
    for pod in pods():
        (container,) = pod["containers"]
        words: list[str] = [*container["command"], *container["args"]]
        first = words.pop(0)
        assert first == "sparrow"
        command: Any = typer.main.get_command(app)
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        context = command.make_context("sparrow", list(words))  # raises for an unknown option
        assert context.params["show"] == "json" and context.params["as_json"]
        assert context.params["master"].startswith(("local[", "k8s://"))
    for value in of_kind("Job", "CronJob"):
        spec = value["spec"].get("jobTemplate", value)["spec"]
        (rule,) = spec["podFailurePolicy"]["rules"]
        assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", [2]), "docs/scheduling.md"
    (cron,) = of_kind("CronJob")
    assert cron["spec"]["concurrencyPolicy"] == "Forbid", "an archive has one writer"


def instructions(text: str) -> list[tuple[str, str]]:
    """A Dockerfile's instructions, continued lines joined."""
    joined = re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*\n", "", text))
    lines = (line.partition(" ") for line in joined.splitlines() if line)
    return [(word, rest.strip()) for word, _, rest in lines]


def faults(text: str) -> list[str]:
    """What is wrong with a Dockerfile, by the few rules that matter here."""
    found = instructions(text)
    wrong = []
    stages = [rest for word, rest in found if word == "FROM"]
    wrong += [f"FROM {image}: no version" for image in stages if not re.search(r":\S*[\d$]", image)]
    wrong += [f"ADD {rest}: COPY does it" for word, rest in found if word == "ADD"]
    for rest in (rest for word, rest in found if word == "RUN"):
        if "apt-get install" in rest and "rm -rf /var/lib/apt/lists/*" not in rest:
            wrong.append("apt's lists stay in the image")
        if "apt-get install" in rest and "--no-install-recommends" not in rest:
            wrong.append("apt-get installs what nobody asked for")
        if "pip install" in rest:
            if "--no-cache-dir" not in rest:
                wrong.append("pip's cache stays in the image")
            packages = shlex.split(rest.partition("pip install")[2].partition("&&")[0])
            wrong += [f"{name}: no version" for name in packages if name[0] != "-" and "==" not in name]
    for rest in (rest for word, rest in found if word == "COPY" and "--from" not in rest):
        source = rest.split()[-2]
        if not (ROOT / source).exists():
            wrong.append(f"COPY {source}: it is not there")
    users = [rest for word, rest in found if word == "USER"]
    if not users or users[-1] in ("root", "0"):
        wrong.append("it runs as root")
    return wrong


def test_the_image_keeps_the_rules() -> None:
    assert faults(DOCKERFILE.read_text()) == []


def test_the_rules_find_what_breaks_them() -> None:
    bad = "FROM python\nRUN apt-get install \\\n    x\nRUN pip install y\nADD a b\nCOPY nowhere /x\n"
    assert faults(bad) == [
        "FROM python: no version",
        "ADD a b: COPY does it",
        "apt's lists stay in the image",
        "apt-get installs what nobody asked for",
        "pip's cache stays in the image",
        "y: no version",
        "COPY nowhere: it is not there",
        "it runs as root",
    ]


def test_the_script_for_yarn_says_what_it_needs(tmp_path: Path) -> None:
    script = DEPLOY / "yarn" / "submit.sh"
    subprocess.run(["sh", "-n", script], check=True, timeout=60)
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "spark-submit").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (bin_ / "spark-submit").chmod(0o755)
    (tmp_path / "env.tar.gz").touch()

    def ran(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        base = {"PATH": f"{bin_}:/usr/bin:/bin", "SPARROW_ENVIRONMENT": str(tmp_path / "env.tar.gz")}
        return subprocess.run(
            ["sh", script, *arguments],
            env=base | environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    nowhere = ran("job.py")
    assert nowhere.returncode != 0 and "HADOOP_CONF_DIR: set it to the directory" in nowhere.stderr
    assert ran(HADOOP_CONF_DIR="/x").returncode == 2
    done = ran("job.py", "a b", HADOOP_CONF_DIR="/x")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:4] == ["--master", "yarn", "--deploy-mode", "cluster"]
    assert lines[-2:] == ["job.py", "a b"]
    assert f"{tmp_path / 'env.tar.gz'}#environment" in lines
