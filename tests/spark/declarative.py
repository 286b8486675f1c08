"""The example project of a declarative pipeline, run against a cluster, and what must come of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sparrowmq as mq

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "declarative"
HOME = "/tmp/sparrow-declarative"
"""Where the example keeps its files; a test has its own place."""
TOPICS = ("Orders", "LargeOrders")
RUN_SECONDS = 600


@dataclass
class Project:
    """A copy of the example, whose files are below `directory`."""

    directory: Path
    namesrv: str
    sent: int = 0

    @classmethod
    def copied(cls, directory: Path, namesrv: str, schema: str = "") -> Project:
        """The project with its own places, in database `schema` of the catalog if that is given."""
        shutil.copytree(EXAMPLE, directory)
        for name in ("spark-pipeline.yml", "conf/spark-defaults.conf"):
            text = (directory / name).read_text()
            assert HOME in text
            (directory / name).write_text(text.replace(HOME, str(directory / "home")))
        (directory / "home").mkdir()
        if schema:
            with (directory / "spark-pipeline.yml").open("a") as spec:
                spec.write(f"schema: {schema}\n")
        return cls(directory, namesrv)

    def create_topics(self) -> None:
        """The two topics of the project, empty."""
        with mq.Admin(namesrv=self.namesrv) as admin:
            for topic in TOPICS:
                admin.topics.create(topic, queues=2)

    def send(self, count: int) -> None:
        """So many further orders, every fifth of them large, and one body that is none."""
        numbers = range(self.sent, self.sent + count)
        bodies = [
            {"id": number, "region": "eu" if number % 2 else "us", "amount": 2000 if number % 5 == 0 else 10}
            for number in numbers
        ]
        with mq.Producer("declarative", namesrv=self.namesrv) as producer:
            for body in [*map(json.dumps, bodies), "no order"]:
                producer.send(mq.Message("Orders", body.encode()))
        self.sent += count

    def run(self, command: Sequence[str | Path], **environ: str) -> str:
        """Run the pipeline with a runner; what it says. AssertionError when it fails.

        It finds its Python as a reader's does, by PATH; a session of this process may have named one.
        """
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"},
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
            "SPARROW_NAMESRV": self.namesrv,
            **environ,
        }
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_SECONDS,
        )
        assert done.returncode == 0, done.stdout[-8000:]
        return done.stdout

    def large(self) -> Counter[int]:
        """How often each order stands in the topic that the sink writes to."""
        found: Counter[int] = Counter()
        with mq.PullConsumer("declarative_reader", namesrv=self.namesrv) as consumer:
            for queue in consumer.queues("LargeOrders"):
                position = consumer.min_offset(queue)
                while position < consumer.max_offset(queue):
                    result = consumer.pull(queue, position)
                    found.update(json.loads(message.body)["id"] for message in result.messages)
                    position = result.next_offset
        return found

    @property
    def expected_large(self) -> Counter[int]:
        """Each large order once."""
        return Counter(range(0, self.sent, 5))
