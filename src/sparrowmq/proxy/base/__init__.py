"""Shared by all calls: refusals with the API's codes, limits, checks of names, receipts, conversions. Pure.

May import: definition.

Begin with `refusals` and `converting`.
"""
