"""In Airflow's environment: runs the DAG under examples/airflow, prints states and what went to XCom."""

from __future__ import annotations

import json

import archive_orders  # type: ignore[import-not-found]
from airflow.models.xcom import XComModel  # type: ignore[import-not-found]
from airflow.utils.session import create_session  # type: ignore[import-not-found]

archive_orders.dag.get_task("enough").soft_fail = False
ended = archive_orders.dag.test()
with create_session() as session:
    values = {row.task_id: row.value for row in session.query(XComModel).filter_by(key="return_value")}
tasks = {task.task_id: str(task.state) for task in ended.get_task_instances()}
print(json.dumps({"state": str(ended.state), "tasks": tasks, "values": values}))
