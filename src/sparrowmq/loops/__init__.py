"""Event loops: how they are made, and the loop of a process that runs in a thread.

`event_loop` makes loops. It also has the loop thread that the synchronous classes and Spark's processes
share.
"""
