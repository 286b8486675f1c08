"""Access control of the brokers, for admins: users and policies of 5.x, accounts of 4.x."""

from collections.abc import Sequence
from typing import Final

from sparrowmq.console.pages.access import accounts, users
from sparrowmq.console.visits import Form, Page, PagePart, Visit
from sparrowmq.coordinator.users.roles import RoleRight


def _links(visit: Visit) -> Sequence[tuple[str, str]]:
    if not visit.may(RoleRight.ADMINISTER):
        return ()
    return (
        ("access.new-user", "/new/access-user"),
        ("access.new-account", "/new/access-account"),
        ("access.white", "/access/white"),
    )


PAGES: Final[Sequence[Page]] = (
    Page(
        "/access",
        "page.access",
        "access",
        (
            PagePart("access-users", users.everyone),
            PagePart("policies", users.all_policies),
            PagePart("accounts", accounts.accounts),
        ),
        links=_links,
        is_live=False,
    ),
    *users.PAGES,
    *accounts.PAGES,
)
FORMS: Final[Sequence[Form]] = (*users.FORMS, *accounts.FORMS)
