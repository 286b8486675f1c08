from __future__ import annotations

import pytest

from sparrowmq.coordinator.users.roles import GLOBAL_ROLES, NEEDS, RANKS, Right, Role, allowed, need, role_of
from sparrowmq.core.errors import RefusedError

G, T = ("group", "g"), ("topic", "t")


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("right", Right)
@pytest.mark.proves("pmq:P3", "pmq:8.1")
def test_every_role_against_every_right(role: Role, right: Right) -> None:
    rank = RANKS.index(role)
    expected = rank >= RANKS.index(NEEDS[right])
    assert allowed(role, {}, right) is expected
    assert allowed(Role.VIEWER, {G: role}, right, G) is (expected or right is Right.READ)


@pytest.mark.proves("pmq:P3")
def test_a_role_for_one_object_says_nothing_of_others() -> None:
    mine = {G: Role.OWNER}
    assert allowed(Role.VIEWER, mine, Right.EDIT, T, G)
    assert not allowed(Role.VIEWER, mine, Right.EDIT, T)
    assert not allowed(Role.VIEWER, mine, Right.EDIT)
    assert not allowed(Role.VIEWER, mine, Right.EDIT, ("topic", "g"))
    assert not allowed(Role.VIEWER, mine, Right.OPERATE, G)


def test_a_refusal_says_who_what_and_what_it_needs() -> None:
    with pytest.raises(
        RefusedError, match="ann may not edit the group g or the topic t: that needs the role owner"
    ):
        need("ann", Role.VIEWER, {}, Right.EDIT, G, T)
    with pytest.raises(
        RefusedError, match="ann may not administer this: that needs the role admin"
    ) as caught:
        need("ann", Role.OPERATOR, {}, Right.ADMINISTER)
    assert caught.value.status == 403
    need("ann", Role.ADMIN, {}, Right.ADMINISTER)


def test_roles_are_known_or_refused() -> None:
    assert role_of("admin", GLOBAL_ROLES) is Role.ADMIN
    for text in ("owner", "root", ""):
        with pytest.raises(RefusedError, match="the role must be one of viewer, operator, admin") as caught:
            role_of(text, GLOBAL_ROLES)
        assert caught.value.status == 422
