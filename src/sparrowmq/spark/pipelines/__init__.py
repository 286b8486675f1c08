"""Pipelines on the data source: one module each, and the frame they share.

Each has a frozen settings object, a function that runs it in a Spark session, and one that says beforehand
what it will do (`steps.Plan`). `watch.Watch` is how a run tells what it does and is asked to stop.
"""
