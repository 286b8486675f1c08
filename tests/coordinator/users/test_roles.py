from __future__ import annotations

import pytest
from tests.support import about

from sparrowmq.coordinator.users.roles import (
    GLOBAL_ROLES,
    NEEDS,
    RANKS,
    Role,
    RoleRight,
    allowed,
    need,
    role_of,
)
from sparrowmq.core.errors import RefusedError

G, T = ("group", "g"), ("topic", "t")


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("right", RoleRight)
@pytest.mark.proves("pmq:P3", "pmq:8.1")
def test_every_role_is_checked_against_every_right(role: Role, right: RoleRight) -> None:
    rank = RANKS.index(role)
    expected = rank >= RANKS.index(NEEDS[right])
    assert allowed(role, {}, right) is expected
    assert allowed(Role.VIEWER, {G: role}, right, G) is (expected or right is RoleRight.READ)


@pytest.mark.proves("pmq:P3")
def test_role_for_one_object_does_not_apply_to_others() -> None:
    mine = {G: Role.OWNER}
    assert allowed(Role.VIEWER, mine, RoleRight.EDIT, T, G)
    assert not allowed(Role.VIEWER, mine, RoleRight.EDIT, T)
    assert not allowed(Role.VIEWER, mine, RoleRight.EDIT)
    assert not allowed(Role.VIEWER, mine, RoleRight.EDIT, ("topic", "g"))
    assert not allowed(Role.VIEWER, mine, RoleRight.OPERATE, G)


def test_refusal_names_user_action_and_required_role() -> None:
    with pytest.raises(
        RefusedError, check=about(what="the group g or the topic t", value="ann", limit=Role.OWNER)
    ):
        need("ann", Role.VIEWER, {}, RoleRight.EDIT, G, T)
    with pytest.raises(RefusedError, check=about(status=403, value="ann", limit=Role.ADMIN)):
        need("ann", Role.OPERATOR, {}, RoleRight.ADMINISTER)
    need("ann", Role.ADMIN, {}, RoleRight.ADMINISTER)


def test_unknown_roles_are_refused() -> None:
    assert role_of("admin", GLOBAL_ROLES) is Role.ADMIN
    for text in ("owner", "root", ""):
        with pytest.raises(RefusedError, check=about(status=422, what="role", value=text)):
            role_of(text, GLOBAL_ROLES)
