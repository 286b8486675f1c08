"""Revocation of tokens: with a token, all tokens made from it, directly or indirectly, are revoked."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, delete, or_, select

from sparrowmq.coordinator.database.tables import token


def revoke_all(connection: Connection, name: str) -> None:
    """Revoke all tokens of a person, and those that the person created for others."""
    revoke_where(connection, or_(token.c.person == name, token.c.maker == name))


def revoke_where(connection: Connection, which: ColumnElement[bool]) -> None:
    """Revoke some tokens and those created from them. A person has at most two hundred."""
    ids = list(connection.execute(select(token.c.id).where(which)).scalars())
    while ids:
        children = list(connection.execute(select(token.c.id).where(token.c.parent.in_(ids))).scalars())
        connection.execute(delete(token).where(token.c.id.in_(ids)))
        ids = children
