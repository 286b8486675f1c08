"""Pipelines on the data source: one room each, and `common`, which they share.

Each has a frozen settings object, a function that runs it in a Spark session, and one that returns its plan
(`common.steps.Plan`). Through `common.watch.Watch`, a run reports its progress and is stopped.
"""
