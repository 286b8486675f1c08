"""Measurements beside Apache RocketMQ: `python -m benchmarks --help` from the root of the repository.

Every figure comes from one run in which both peers took turns on the same machine, as medians with their
spread and as ratio. Every benchmark checks that what was sent has arrived. Linux only: processor time and
memory are read from `/proc`.
"""
