"""Managed groups: plans, hand-overs, and what people set of them."""
