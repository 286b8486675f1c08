"""Changes of groups from pages: dynamic settings, pauses, skips, offsets of another group."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import quote, urlencode

import pytest
from tests.console.furnished import ODD
from tests.console.site import Answer, Reader, Site
from tests.console.test_pages import read
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.testing import LocalCluster

TOPIC, GROUP = "Tuned", "tuned"


@pytest.fixture(scope="module")
def tuned(console: Site, cluster: LocalCluster) -> Iterator[mq.Admin]:
    """A topic of one queue with ten messages, three of which a group has read."""
    with mq.Admin(namesrv=cluster.namesrv) as admin:
        admin.topics.create(TOPIC, queues=1)
        for group in (GROUP, "copied", "source"):
            admin.groups.create(group)
        with mq.Producer("tuner", namesrv=cluster.namesrv) as producer:
            for number in range(10):
                producer.send(mq.Message(TOPIC, str(number).encode()))
        (queue,) = admin.topics.status(TOPIC)
        admin.groups.commit(GROUP, queue.queue, 3)
        yield admin


def base(group: str = GROUP) -> str:
    return f"/groups/{group}"


def entries(console: Site, group: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(console.call("GET", f"/audit?kind=group&object={group}").text)
    return found


def test_dynamic_setting_is_set_and_unset(tuned: mq.Admin, console: Site, admin: Reader) -> None:
    path, fields = f"{base()}/setting", {"name": "threads", "value": "8", "place": "*", "minutes": "30"}
    seen = admin.post(path, fields | {"csrf": admin.page(path).hidden("csrf"), "step": "look"})
    assert "the consumer's own becomes 8" in seen.words and "after 30 minutes" in seen.words
    assert "0 managed members" in seen.words, "who follows is said before"
    assert admin.change(path, fields).headers["location"] == "/groups/tuned?_done=setting"
    assert "threads" in admin.page(base()).part("set")
    late = {"csrf": seen.hidden("csrf"), "stamp": seen.hidden("stamp"), "step": "do", "reason": "late"}
    assert admin.post(path, fields | late).status == 409, "somebody else was faster"
    unset = f"{base()}/unset"
    assert f'href="{unset}?which=threads+%2A"' in admin.page(base()).text
    assert admin.change(unset, {"which": "threads *"}).status == 303
    assert admin.get(unset).status == 409, "nothing is left to unset"
    actions = [one["action"] for one in entries(console, GROUP)]
    assert actions[:2] == ["setting.unset", "setting.set"]


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "threads", "value": "0"},
        {"name": "threads", "value": "many"},
        {"name": "threads", "value": "8", "place": TOPIC},
        {"name": "nothing", "value": "8"},
        {"name": "deny", "value": "not an address"},
        {"name": "threads", "value": "8", "minutes": "-1"},
        {"name": "threads", "value": "8", "place": "a/b/c/d"},
    ],
    ids=str,
)
def test_value_out_of_range_is_refused_and_the_input_is_kept(
    tuned: mq.Admin, admin: Reader, fields: dict[str, str]
) -> None:
    given = {"place": "*", "minutes": "0"} | fields
    answer = admin.change(f"{base()}/setting", given)
    assert answer.status in (404, 422) and 'role="alert"' in answer.text
    assert f'value="{given["value"]}"' in answer.text


def test_group_is_paused_and_resumed(tuned: mq.Admin, console: Site, admin: Reader) -> None:
    assert admin.get(f"{base()}/resume").status == 409, "it is not paused"
    assert admin.change(f"{base()}/pause", {"place": f"{TOPIC}/0", "minutes": "5"}).status == 303
    assert "pause" in admin.page(base()).part("set") and f"{TOPIC}/0" in admin.page(base()).part("set")
    assert admin.change(f"{base()}/resume", {"which": f"pause {TOPIC}/0"}).status == 303
    assert "pause" not in admin.page(base()).part("set")


def test_messages_to_skip_are_shown_before_they_are_skipped(
    tuned: mq.Admin,
    console: Site,
    admin: Reader,
) -> None:
    path = f"{base()}/skip"
    fields = {"topic": TOPIC, "queue": "broker-a/0", "count": "2"}
    seen = admin.post(path, fields | {"csrf": admin.page(path).hidden("csrf"), "step": "look"})
    assert "0 messages are read again, 2 are skipped" in seen.words
    link = f"/messages?topic={TOPIC}&amp;by=offset&amp;broker=broker-a&amp;queue=0&amp;offset=3&amp;until=5"
    assert link in seen.text, "the way to the messages that are never seen"
    exactly = admin.page(link.replace("&amp;", "&")).part("found")
    assert "2 of 2 rows" in exactly and "all messages up to offset 5" in exactly
    assert admin.change(path, fields).status == 422, "the name of the group has to be typed"
    assert admin.change(path, fields, typed=GROUP).status == 303
    until_sync(lambda: [one.consumer_offset for one in tuned.groups.progress(GROUP)] == [5])
    everything = {"topic": TOPIC, "queue": "", "count": ""}
    seen = admin.post(path, everything | {"csrf": admin.page(path).hidden("csrf"), "step": "look"})
    assert "5 are skipped" in seen.words
    wide = admin.change(path, {"topic": TOPIC, "queue": "", "count": "2"}, typed=GROUP)
    assert wide.status == 422 and "not a single queue" in wide.words
    assert admin.change(path, fields | {"count": "0"}).status == 422


def test_last_reset_is_undone_after_a_preview(tuned: mq.Admin, console: Site, admin: Reader) -> None:
    group = "undone"
    tuned.groups.create(group)
    (queue,) = tuned.topics.status(TOPIC)
    tuned.groups.commit(group, queue.queue, 3)
    path = f"{base(group)}/undo"
    assert path not in admin.page(base(group)).text, "nothing was reset yet"
    none = admin.get(path)
    assert none.status == 404 and "no reset of group undone was carried out" in none.words
    fields = {"topic": TOPIC, "queue": "", "to": "last", "time": "", "offset": ""}
    assert admin.change(f"{base(group)}/reset", fields, typed=group).status == 303
    until_sync(lambda: [one.consumer_offset for one in tuned.groups.progress(group)] == [10])
    until_sync(lambda: f'href="{path}"' in admin.page(base(group)).text)
    seen = until_sync(lambda: one if 'name="stamp"' in (one := admin.get(path)).text else None)
    assert f"The reset of {TOPIC} to last by admin" in seen.words and "agreed" in seen.words
    assert "7 messages are read again, 0 are skipped" in seen.words
    assert "queue=0&amp;offset=3&amp;until=10" in seen.text, "the way to these messages"
    assert admin.change(path).status == 422, "the name of the group has to be typed"
    assert admin.change(path, typed=group).headers["location"] == f"{base(group)}?_done=reset"
    until_sync(lambda: [one.consumer_offset for one in tuned.groups.progress(group)] == [3])
    stale = {"csrf": seen.hidden("csrf"), "stamp": seen.hidden("stamp"), "step": "do", "reason": "x"}
    late = until_sync(lambda: one if "still waits" not in (one := admin.post(path, stale)).words else None)
    assert late.status == 409 and "7 are skipped" in late.words, "the undo can be undone, after a look"
    asked, done = (
        next(one for one in entries(console, group) if one["action"] == action)
        for action in ("group.reset", "group.reset.done")
    )
    assert asked["after"]["to"] == f"undo:{seen.hidden('stamp')}"  # type: ignore[index]
    assert (done["before"][f"{TOPIC}/broker-a/0"], done["after"][f"{TOPIC}/broker-a/0"]) == (10, 3)  # type: ignore[index]


def test_offsets_of_another_group_are_copied(tuned: mq.Admin, console: Site, admin: Reader) -> None:
    path = f"{base('copied')}/clone"
    (queue,) = tuned.topics.status(TOPIC)
    tuned.groups.commit("copied", queue.queue, 9)
    tuned.groups.commit("source", queue.queue, 4)
    fields = {"source": "source", "topic": ""}
    seen = admin.post(path, fields | {"csrf": admin.page(path).hidden("csrf"), "step": "look"})
    assert "copied continues at the offsets of source: 5 messages are read again, 0 are skipped" in seen.words
    assert admin.change(path, fields, typed="copied").status == 303
    assert [one.consumer_offset for one in tuned.groups.progress("copied")] == [4]
    (entry,) = (one for one in entries(console, "copied") if one["action"] == "group.takeover")
    assert entry["before"] == {f"{TOPIC}/broker-a/0": 9}
    assert entry["after"] == {"source": "source", f"{TOPIC}/broker-a/0": 4}
    for wrong in ("copied", "no-such-group", "no blank"):
        assert admin.change(path, {"source": wrong}).status in (404, 422), wrong


def test_offsets_are_not_copied_while_members_are_online(
    tuned: mq.Admin, admin: Reader, cluster: LocalCluster
) -> None:
    settings = mq.ConsumerSettings(namesrv=cluster.namesrv, persist_interval=0.1)
    with mq.PushConsumer("copied", settings=settings) as consumer:
        consumer.subscribe(TOPIC, handler=lambda message: None)

        def settled() -> bool:
            """Whether the group's offsets no longer change: a changed preview must be confirmed again."""
            return all(one.lag == 0 for one in tuned.groups.progress("copied"))

        until_sync(lambda: tuned.groups.connections("copied") is not None and settled())
        answer = admin.change(f"{base('copied')}/clone", {"source": "source"}, typed="copied")
        assert answer.status == 422 and "members online" in answer.words


def test_member_page_shows_its_state_and_threads(
    tuned: mq.Admin, admin: Reader, cluster: LocalCluster
) -> None:
    with mq.PushConsumer("running", namesrv=cluster.namesrv) as consumer:
        consumer.subscribe(TOPIC, handler=lambda message: None)
        until_sync(lambda: tuned.groups.connections("running") is not None)
        (member,) = until_sync(lambda: tuned.groups.status("running"))
        path = f"{base('running')}/members/{quote(member.client_id, safe='')}"
        until_sync(lambda: TOPIC in admin.page(path).part("held"))
        assert path in admin.page(base("running")).text, "the table of members leads there"
        page = admin.page(path)
        assert "subscribes Tuned" in page.part("told") and "Ask for the stacks" in page.part("stacks")
        assert "File " in admin.page(f"{path}?stacks=1").part("stacks")
    gone = admin.page(f"{base('running')}/members/nobody")
    assert "not online" in gone.part("held")


def test_unmanaged_group_shows_the_plan_it_would_have(
    tuned: mq.Admin, admin: Reader, cluster: LocalCluster
) -> None:
    assert "no member is online, so there is nothing to plan" in admin.page(
        f"{base('nobody-plans')}/plan"
    ).part("plan")
    settings = mq.ConsumerSettings(namesrv=cluster.namesrv, instance_name="first")
    with mq.PushConsumer("divides", settings=settings) as consumer:
        consumer.subscribe(ODD.topic, handler=lambda message: None)
        path = f"{base('divides')}/plan"
        until_sync(lambda: "stays" in admin.page(path).part("plan"))
        page = admin.page(path)
        read(page)
        assert "This group is not managed" in page.part("plan")
        assert "With 1 members, 0 queues would move" in page.part("plan")
        more = admin.page(f"{path}?join=1").part("plan")
        assert "With 2 members" in more and "moves" in more and "new-1" in more
        name = re.findall(r'<option value="([^"]+)">', page.text.partition("<main")[2])[0]
        assert "With 0 members" in admin.page(f"{path}?{urlencode({'without': name})}").part("plan")


def _is_settled(plan: str) -> bool:
    """Whether the group has become managed, and each of its queues has its member."""
    managed = "not managed" not in plan and "stays" in plan
    return managed and "With 1 members, 0 queues would move, and 0 unassigned" in plan


def test_plan_is_shown_for_one_member_more_and_one_less(
    tuned: mq.Admin, admin: Reader, cluster: LocalCluster
) -> None:
    settings = mq.ConsumerSettings(namesrv=cluster.namesrv, managed=True)
    with mq.PushConsumer("planned", settings=settings) as consumer:
        consumer.subscribe(ODD.topic, handler=lambda message: None)
        path = f"{base('planned')}/plan"
        until_sync(lambda: _is_settled(admin.page(path).part("plan")))
        more = admin.page(f"{path}?join=1").part("plan")
        assert "With 2 members, 2 queues would move" in more and "new-1" in more
        rows = admin.get(f"{path}?_csv=moves").text.splitlines()
        name = quote(rows[1].split(",")[4], safe="")
        assert "With 0 members" in admin.page(f"{path}?without={name}").part("plan")
        assert "1 of 1 managed members apply" in until_sync(
            lambda: (found := admin.page(base("planned")).part("set")) and "1 of 1" in found and found
        )
        unknown = admin.page(f"{path}?without=nobody").part("plan")
        assert "not a member of" in unknown


def test_viewers_cannot_change_groups(tuned: mq.Admin, console: Site, viewer: Reader) -> None:
    csrf = viewer.page("/").hidden("csrf")
    for name, fields in (
        ("setting", {"name": "threads", "value": "8", "place": "*"}),
        ("pause", {"place": "*"}),
        ("skip", {"topic": TOPIC, "typed": GROUP}),
        ("clone", {"source": "copied", "typed": GROUP}),
        ("undo", {"typed": GROUP}),
    ):
        path = f"{base()}/{name}"
        seen = viewer.post(path, fields | {"csrf": csrf, "step": "look"})
        stamp = seen.hidden("stamp") if 'name="stamp"' in seen.text else ""
        answer = viewer.post(path, fields | {"csrf": csrf, "step": "do", "reason": "x", "stamp": stamp})
        assert answer.status == 403 and "may not" in answer.words, (name, answer.words[-200:])
    assert "threads" not in console.call("GET", f"/groups/{GROUP}/settings").text


def test_group_page_shows_description_and_owner(
    tuned: mq.Admin, console: Site, viewer: Reader, cluster: LocalCluster
) -> None:
    alone = viewer.page(base("source")).part("summary")
    assert "nobody is online" in alone and "nothing was delivered" in alone
    body = {"name": "viewer", "kind": "group", "object": "described", "role": "operator", "reason": "hers"}
    tuned.groups.create("described")
    assert console.call("POST", "/grants", json.dumps(body).encode()).status == 200
    with mq.PushConsumer("described", namesrv=cluster.namesrv) as consumer:
        consumer.subscribe(TOPIC, "A || B", handler=lambda message: None)

        def known() -> Answer | None:
            page = viewer.page(base("described"))
            said = page.part("summary")
            return page if "Members online 1" in said and "dead letter 16" in said else None

        page = until_sync(known)
        read(page)
        said = page.part("summary")
        assert f"{TOPIC}: A || B" in said and "How members get messages push" in said
        assert "clustering" in said and "%RETRY%" not in said
    assert "viewer operator" in page.part("owners")
    del body["role"]
    assert console.call("POST", "/grants", json.dumps(body).encode()).status == 200


def test_members_unknown_to_brokers_are_found_by_their_pulls(
    tuned: mq.Admin, viewer: Reader, cluster: LocalCluster
) -> None:
    tuned.groups.create("unlisted")
    with mq.SimpleConsumer("unlisted", namesrv=cluster.namesrv) as consumer:
        consumer.subscribe(TOPIC)
        assert consumer.receive(1)
        page = until_sync(
            lambda: one if "though brokers list" in (one := viewer.page(base("unlisted"))).words else None
        )
    read(page)
    assert "nobody is online" in page.part("summary")
    assert "rmq_sys_" not in viewer.page("/waiting").words, "check points of POP are no delayed messages"
