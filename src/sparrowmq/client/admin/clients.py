"""The clients that are connected to one broker: members of groups and producers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sparrowmq.client.admin.types import BrokerClient, GroupMemberInfo


def joined(
    consumers: Mapping[str, Iterable[GroupMemberInfo]], producers: Mapping[str, Iterable[GroupMemberInfo]]
) -> Sequence[BrokerClient]:
    """Each client once, with its groups, by address. Pure."""
    known: dict[tuple[str, str], tuple[GroupMemberInfo, set[str], set[str]]] = {}
    for place, groups in ((1, consumers), (2, producers)):
        for group, members in groups.items():
            for one in members:
                found = known.setdefault((one.address, one.client_id), (one, set(), set()))
                (found[1] if place == 1 else found[2]).add(group)
    return [
        BrokerClient(
            one.client_id, one.address, one.language, one.version,
            tuple(sorted(consumes)), tuple(sorted(produces)),
        )
        for _, (one, consumes, produces) in sorted(known.items())
    ]  # fmt: skip
