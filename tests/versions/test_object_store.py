"""Archive, history, replay and a stream's checkpoint on an S3 server, by Hadoop's own module from Maven."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.versions.conftest import run

from sparrowmq.testing import LocalCluster


@pytest.fixture
def endpoint() -> Iterator[str]:
    """An S3 server with an empty bucket `lake`."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        address = "http://{}:{}".format(*server.get_host_and_port())
        keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
        boto3.client("s3", endpoint_url=address, **keys).create_bucket(Bucket="lake")
        yield address
    finally:
        server.stop()


@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_everything_is_kept_in_a_bucket(endpoint: str) -> None:
    with LocalCluster() as cluster:
        for name in ("Orders", "Again", "Copy"):
            cluster.create_topic(name, queues=2)
        python = Path(sys.executable)
        printed = run(python, "-m", "tests.versions.object_store", endpoint, cluster.namesrv)
        found = json.loads(printed.splitlines()[-1])
    assert "was taken over by process" in found.pop("taken")
    assert found == {
        "made": [True, False, "first"],
        "listed": [["a"], "third", 5, []],
        "archived": True,
        "history": True,
        "replayed": [40, 0],
        "streamed": [[True, ["0.json"]]] * 2,
    }
