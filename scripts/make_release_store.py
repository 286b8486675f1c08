"""Makes a small store directory with the code of one release, and a ledger of what clients saw in it.

python -m scripts.make_release_store SOURCE NAME

SOURCE is a checkout of the release, for example `git worktree add /tmp/old v0.1.0`; its dependencies must be
installed here. Writes tests/fixtures/store/NAME.tar.xz and NAME.jsonl.xz; `tests/store/test_releases.py`
opens them with the code of today.
"""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "store"
CHILD = """
import json, sys, time
import sparrowmq as mq
from sparrowmq.testing import LocalCluster

root = sys.argv[1]
sizes = {"mapped_file_size_commit_log": 65536, "mapped_file_size_consume_queue": 2000}
lines = []
with LocalCluster(root, **sizes, max_hash_slot_num=200, max_index_num=1000) as cluster:
    for topic in ("Orders", "Later", "Pay", "Gone"):
        cluster.create_topic(topic, queues=2)
    with mq.Producer("shop", namesrv=cluster.namesrv) as producer:
        for number in range(300):
            text = f"order {number} " + "x" * (number % 400)
            message = mq.Message("Orders", text.encode(), tags=f"t{number % 3}", keys=[f"k{number}"])
            producer.send(message)
        for level in (1, 18):
            producer.send(mq.Message("Later", b"level %d" % level, delay_level=level))
        producer.send(mq.Message("Gone", b"gone"))
    with mq.Admin(namesrv=cluster.namesrv) as admin:
        admin.delete_topic("Gone")
    with mq.PullConsumer("readers", namesrv=cluster.namesrv) as consumer:
        queues = consumer.queues("Orders")
        consumer.assign(queues)
        for queue in queues:
            consumer.seek_to_begin(queue)
        seen = []
        while len(seen) < 300:
            seen += consumer.poll(5)
        consumer.commit()
        for one in seen:
            lines.append([one.topic, one.queue.queue_id, one.queue_offset, one.body.decode(), one.keys[0]])
    time.sleep(1.5)  # level 1 is delivered
print(json.dumps(lines))
"""


def main(source: str, name: str) -> None:
    """Make the two files."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / name / "store"
        root.mkdir(parents=True)
        environment = {**os.environ, "PYTHONPATH": str(Path(source) / "src")}
        done = subprocess.run(
            [sys.executable, "-c", CHILD, str(root)],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            cwd=scratch,
        )
        lines = sorted(json.loads(done.stdout.splitlines()[-1]))
        with tarfile.open(TARGET / f"{name}.tar.xz", "w:xz") as archive:
            archive.add(Path(scratch) / name, arcname=name)
        with lzma.open(TARGET / f"{name}.jsonl.xz", "wt", encoding="utf-8") as ledger:
            ledger.writelines(json.dumps(line) + "\n" for line in lines)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
