"""The page of the protocol knows every request of RocketMQ's, and says whether it is served."""

from __future__ import annotations

import re
import subprocess

import pytest
from tests.interop.apache import jars
from tests.test_docs import TO_CLIENTS, refused_codes, served_codes

pytestmark = pytest.mark.interop


def test_every_code_of_rocketmq_is_served_or_listed_as_refused() -> None:
    name = "org.apache.rocketmq.remoting.protocol.RequestCode"
    said = subprocess.run(
        ["javap", "-constants", "-cp", f"{jars()}/*", name],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    codes = {int(number): code for code, number in re.findall(r"int (\w+) = (\d+);", said.stdout)}
    assert len(codes) > 150
    known = served_codes() | refused_codes() | TO_CLIENTS
    assert {number: code for number, code in codes.items() if number not in known} == {}
