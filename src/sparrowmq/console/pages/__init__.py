"""All pages and forms, in the order in which their paths are matched."""

from collections.abc import Sequence
from typing import Final

from sparrowmq.console.pages import (
    access,
    alarms,
    audit,
    brokers,
    group_changes,
    group_views,
    groups,
    messages,
    overview,
    people,
    pipelines,
    replicas,
    search,
    services,
    topics,
)
from sparrowmq.console.visits import Form, Page

PAGES: Final[Sequence[Page]] = (
    *overview.PAGES,
    *topics.PAGES,
    *groups.PAGES,
    *group_views.PAGES,
    *messages.PAGES,
    *brokers.PAGES,
    *replicas.PAGES,
    *services.PAGES,
    *alarms.PAGES,
    *people.PAGES,
    *access.PAGES,
    *pipelines.PAGES,
    *search.PAGES,
    *audit.PAGES,
)
FORMS: Final[Sequence[Form]] = (
    *topics.FORMS,
    *groups.FORMS,
    *group_changes.FORMS,
    *messages.FORMS,
    *brokers.FORMS,
    *replicas.FORMS,
    *services.FORMS,
    *alarms.FORMS,
    *people.FORMS,
    *access.FORMS,
    *pipelines.FORMS,
)
