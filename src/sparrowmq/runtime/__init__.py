"""Processes: reads settings from files and the environment, creates servers, and runs them until a signal.

The command line, `LocalCluster` and the demo all start servers here.
"""
