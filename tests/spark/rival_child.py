"""A second driver on a checkpoint that has one: `python -m tests.spark.rival_child NAMESRV TOPIC CHECKPOINT`.

It prints lines of JSON: `ready` when it waits for messages, the bodies of each batch, the error that ends it.
It ends when its standard input does.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from pyspark.errors import StreamingQueryException
from tests.spark.support import Collected, stream
from tests.support import until_sync

from sparrowmq.spark.sessions import builder

READY_SECONDS = 120
EVERY = "2 seconds"


def say(**values: Any) -> None:
    """One line."""
    print(json.dumps(values), flush=True)


def main(namesrv: str, topic: str, checkpoint: str) -> None:
    spark = builder("rival").getOrCreate()

    class Told(Collected):
        def __call__(self, frame: Any, batch_id: int) -> None:
            super().__call__(frame, batch_id)
            say(batch=batch_id, bodies=[text for number, text in self.rows if number == batch_id])

    options = {"nameServer": namesrv, "subscribe": topic, "startingOffsets": "earliest"}
    writer = stream(spark, options).writeStream.foreachBatch(Told())
    writer = writer.trigger(processingTime=EVERY)  # slow: the other one is first to see new messages
    query = writer.option("checkpointLocation", checkpoint).start()
    until_sync(lambda: query.exception() or "Waiting for" in query.status["message"], READY_SECONDS)
    say(ready=True)

    def stop() -> None:
        sys.stdin.read()
        query.stop()

    threading.Thread(target=stop, daemon=True).start()
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        say(error=str(error))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
