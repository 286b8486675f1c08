"""The table of rights of the members' port: each request that it serves has a row."""

from __future__ import annotations
