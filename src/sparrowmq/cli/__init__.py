"""The command `sparrow`.

Servers, Spark and what else is heavy are imported by the command that needs them, when it runs.
"""
