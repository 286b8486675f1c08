"""Access control of the brokers, for admins: users and policies."""

from collections.abc import Sequence
from typing import Final

from sparrowmq.console.pages.access import users
from sparrowmq.console.visits import Form, Page, PagePart, Visit
from sparrowmq.coordinator.users.roles import RoleRight


def _links(visit: Visit) -> Sequence[tuple[str, str]]:
    if not visit.may(RoleRight.ADMINISTER):
        return ()
    return (("access.new-user", "/new/access-user"),)


PAGES: Final[Sequence[Page]] = (
    Page(
        "/access",
        "page.access",
        "access",
        (
            PagePart("access-users", users.everyone),
            PagePart("policies", users.all_policies),
        ),
        links=_links,
        is_live=False,
    ),
    *users.PAGES,
)
FORMS: Final[Sequence[Form]] = users.FORMS
