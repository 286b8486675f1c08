"""Figures for operators: text format, histograms, lag. Pure.

Owns Prometheus' text format with its bounds, and the definition of a group's lag.

May import: core.
Begin with `exposition`.
"""
