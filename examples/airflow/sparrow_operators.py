"""An operator that runs a pipeline, and a sensor that waits until one has something to do; for Airflow 3.

Copy both modules into the DAGs' folder, or a plugin. Airflow's workers need the command `sparrow`, not the
package: it may be in a separate environment with Spark, so that its requirements do not conflict with
Airflow's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import BaseOperator, BaseSensorOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from sparrow_pipe import Pipe, PipeError


class SparrowPipeOperator(BaseOperator):
    """Runs `sparrow pipe …` to its end; its result goes to XCom, its progress to the task's log.

    A try that failed is repeated as the task's `retries` say: every pipeline goes on where it was. A wrong
    option fails the task at once. When Airflow ends the task, the batch in hand is finished first, within
    `stop_seconds`.
    """

    template_fields: Sequence[str] = ("pipe", "environment")

    def __init__(
        self,
        *,
        pipe: Sequence[str],
        sparrow: str = "sparrow",
        environment: Mapping[str, str] | None = None,
        stop_seconds: float = 120,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pipe = pipe
        self.sparrow = sparrow
        self.environment = environment
        self.stop_seconds = stop_seconds
        self._running: Pipe | None = None

    def execute(self, context: Any) -> dict[str, Any]:
        """Run it."""
        self._running = Pipe(self.pipe, sparrow=self.sparrow, environment=self.environment)
        try:
            result = self._running.run(lambda line: self.log.info("%s", line))
        except PipeError as error:
            raise (AirflowException if error.again else AirflowFailException)(str(error)) from error
        if result.get("stopped"):
            raise AirflowException(f"stopped; {result.get('lag', 'some')} messages may wait")
        return result

    def on_kill(self) -> None:
        """Airflow ends the task."""
        if self._running is not None:
            self._running.stop(self.stop_seconds)


class SparrowWaitingSensor(BaseSensorOperator):
    """Waits until at least so many messages wait for a pipeline, by its `--plan`, which starts no Spark."""

    template_fields: Sequence[str] = ("pipe", "environment")

    def __init__(
        self,
        *,
        pipe: Sequence[str],
        messages: int = 1,
        sparrow: str = "sparrow",
        environment: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pipe = pipe
        self.messages = messages
        self.sparrow = sparrow
        self.environment = environment

    def poke(self, context: Any) -> bool:
        """Look once. A cluster that is away for a moment is no reason to give up: the sensor looks again."""
        try:
            found = Pipe(self.pipe, sparrow=self.sparrow, environment=self.environment).waiting()
        except PipeError as error:
            if not error.again:
                raise AirflowFailException(str(error)) from error
            self.log.warning("%s", error)
            return False
        self.log.info("%d messages wait", found)
        return found >= self.messages
