"""Processes: settings from files and the environment, servers made of them, and running until a signal.

The command line, `LocalCluster` and the demo all start servers here and nowhere else.
"""
