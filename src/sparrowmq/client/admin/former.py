"""The names that the calls of `Admin` had before they were in parts. They work for one more release."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final

_NAMES: Final = {
    "topics": (
        "create_topic=create delete_topic=delete offset_at=search_offset put_topic_config=set_config "
        "queue_entries=entries search_offset set_topic_perm=set_perm topic_config=config "
        "topic_groups=groups topic_list=list topic_route=route topic_status=status"
    ),
    "groups": (
        "clone_offsets commit committed create_group=create delete_group=delete group_config=config "
        "group_connections=connections group_list=list group_members=members group_progress=progress "
        "group_rate=rate group_status=status member_offsets member_status=member reset_offsets=reset "
        "reset_queue set_request_mode"
    ),
    "brokers": (
        "broker_clients=clients broker_groups=groups broker_info=info broker_list=list "
        "broker_producers=producers broker_progress=progress broker_settings=settings broker_stats=stats "
        "broker_topics=topics change_broker_settings=set_settings clean_expired_queues "
        "clean_unused_topics cluster_info delete_expired_files replication_status=replication"
    ),
    "messages": "message_by_id=get message_by_offset_id=get_by_offset_id query_messages=query trace",
    "dead_letters": "dead_letter_groups=groups resend_dead_letter=resend_one resend_dead_letters=resend",
    "producers": "end_producers=end producer_connections=connections producer_state=state",
    "users": "create_user=create delete_user=delete grant grants revoke update_user=update",
    "holds": "hold_messages=set release_messages=delete",
    "policies": "delete_group_policy=delete group_policies=list set_group_policy=set",
    "name_servers": (
        "add_write_perm delete_value listed_topics=topics name_server_status=status order_conf "
        "put_value=set_value set_order_conf value values wipe_write_perm"
    ),
    "replicas": "promote_broker=promote promotion_plan=plan replica_state=state set_replica_role=set_role",
}
"""Former names by part; after `=` the name now, where it is another one."""
FORMER: Final[Mapping[str, str]] = {
    former: f"{part}.{now or former}"
    for part, names in _NAMES.items()
    for former, _, now in (name.partition("=") for name in names.split())
}
"""Former name to part and name."""
_CALLED: Final = {"DeadLetterAdmin": "dead_letters", "HoldAdmin": "holds", "UserAdmin": "users"}
"""Parts whose names were calls before, by class."""


def former_name(admin: object, name: str) -> Any:
    """The call that had this name, with a warning."""
    path = FORMER.get(name)
    if path is None:
        kind = type(admin).__name__
        raise AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=admin)
    warnings.warn(f"admin.{name} is now admin.{path}", DeprecationWarning, stacklevel=2)
    return attrgetter(path)(admin)


def former_call(part: Any, *args: Any, **options: Any) -> Any:
    """`admin.dead_letters(…)`, `admin.holds()` and `admin.users(…)`, with a warning."""
    kind = type(part).__name__
    if kind not in _CALLED:
        raise TypeError(f"{kind!r} object is not callable")
    name = _CALLED[kind]
    warnings.warn(f"admin.{name}(…) is now admin.{name}.list(…)", DeprecationWarning, stacklevel=2)
    return part.list(*args, **options)
