"""For each request code the largest and most hostile requests it accepts. A code without an entry fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.hostile.pop_entries import pop_entries
from tests.hostile.shapes import Entry, Make, ext, filters, plain
from tests.hostile.wire import Ask, dumps
from tests.hostile.world import NAMES, PLAIN, USERS, World, broker_ext, registration, send_ext, v2

from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.codes import RequestCode as Code


def queue(topic: str, number: int = 0, **more: object) -> dict[str, str]:
    """A question about a queue."""
    return ext(topic=topic, queueId=number, **more)


def pull(
    world: World, *, topic: str = "Tiny", sql: str = "", count: int = 1 << 20, **more: object
) -> dict[str, str]:
    """A pull from the start, that is not held."""
    fields = ext(
        consumerGroup="pullers",
        topic=topic,
        queueId=0,
        queueOffset=0,
        maxMsgNums=count,
        sysFlag=4,
        commitOffset=0,
        suspendTimeoutMillis=0,
        subVersion=0,
        subscription=sql or "*",
        **more,
    )
    return {**fields, "expressionType": "SQL92"} if sql else fields


def pulls(world: World) -> list[Ask]:
    """Filters over all of a queue, bulk, held, and big answers."""
    found = [Ask(pull(world, sql=sql, bulkBytes=1)) for sql in filters(world)]
    found.append(Ask(pull(world, sql=filters(world)[0])))
    found.append(Ask(pull(world, bulkBytes=8 << 20)))
    found.append(Ask(pull(world, topic="Big", bulkBytes=8 << 20)))
    found.append(Ask(pull(world, topic="T00000", sql=filters(world)[0])))
    return found


def heartbeat(world: World, client: str, groups: int, *, topics: int = 1, first: int = 0) -> bytes:
    """A client with many groups; `first` is the number in the name of the first."""
    numbers = range(first, first + groups)
    consumers = [
        {
            "groupName": f"H{number:06}",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [{"topic": world.topic(one), "subString": "*"} for one in range(topics)],
        }
        for number in numbers
    ]
    producers = [{"groupName": f"P{number:06}"} for number in numbers]
    return dumps({"clientID": client, "consumerDataSet": consumers, "producerDataSet": producers})


def heartbeats(world: World) -> list[Ask]:
    """Many groups, many subscriptions, many clients, costly filters."""
    names = world.size.names
    subscription = {"topic": "Tiny", "subString": filters(world)[0], "expressionType": "SQL92"}
    sql = {
        "clientID": "s",
        "producerDataSet": [],
        "consumerDataSet": [{"groupName": "S", "subscriptionDataSet": [subscription]}],
    }
    return [
        Ask(body=heartbeat(world, "small", 1)),
        Ask(body=heartbeat(world, "many", min(900, names), topics=0)),
        Ask(body=heartbeat(world, "more", names)),
        Ask(body=heartbeat(world, "wide", 1, topics=min(900, names))),
        Ask(body=dumps(sql)),
    ]


def locks(world: World) -> list[Ask]:
    """Many queues in one request."""
    wanted = [
        {"topic": "Wide", "brokerName": "broker-a", "queueId": number} for number in range(world.size.names)
    ]
    whole = {"consumerGroup": "lockers", "clientId": "c", "mqSet": wanted}
    return [Ask(body=dumps({**whole, "mqSet": wanted[:1]})), Ask(body=dumps(whole))]


def topic_fields(name: str, queues: int) -> dict[str, str]:
    """A topic to make."""
    return ext(
        topic=name,
        defaultTopic="TBW102",
        readQueueNums=queues,
        writeQueueNums=queues,
        perm=6,
        topicFilterType="SINGLE_TAG",
        topicSysFlag=0,
        order=False,
    )


def topic_lists(world: World) -> list[Ask]:
    """Many topics in one request."""

    def some(count: int, mark: str) -> bytes:
        return dumps(
            {
                "topicConfigList": [
                    {"topicName": f"{mark}{number:06}", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
                    for number in range(count)
                ]
            }
        )

    return [Ask(body=some(1, "L")), Ask(body=some(world.size.names, "M"))]


def group_lists(world: World) -> list[Ask]:
    """Many groups in one request."""

    def some(count: int) -> bytes:
        return dumps({"groupConfigList": [{"groupName": f"L{number:06}"} for number in range(count)]})

    return [Ask(body=some(1)), Ask(body=some(world.size.names))]


def group_body(world: World) -> list[Ask]:
    """One group with much in it."""
    attributes = {f"+k{number}": "x" * 20 for number in range(world.size.names)}
    return [
        Ask(body=dumps({"groupName": "One"})),
        Ask(body=dumps({"groupName": "One", "attributes": attributes})),
    ]


def checks(world: World) -> list[Ask]:
    """Costly filters that have to be evaluated."""
    return [
        Ask(
            body=dumps(
                {
                    "clientId": "c",
                    "group": "g",
                    "subscriptionData": {"topic": "Tiny", "subString": sql, "expressionType": "SQL92"},
                }
            )
        )
        for sql in filters(world)
    ]


_MODES = [
    {"topic": topic, "consumerGroup": "G00000", "mode": "POP", "popShareQueueNum": 2**31 - 1}
    for topic in ("Wide", "Tiny")
]
"""A group's way to read a topic."""


def assignments(world: World) -> list[Ask]:
    """Shares of the widest topic, by each way of sharing."""
    return [
        Ask(
            body=dumps(
                {
                    "clientId": "many",
                    "consumerGroup": "H000000",
                    "strategyName": name,
                    "topic": topic,
                    "messageModel": "CLUSTERING",
                }
            )
        )
        for name in ("AVG", "CONSISTENT_HASH")
        for topic in ("Wide", "T00000")
    ]


def sends(*, letters: bool, reply: bool = False) -> Make:
    """The biggest message, one with the longest properties, and batches of many."""

    def make(world: World) -> list[Ask]:
        def one(topic: str, body: bytes, properties: str = "", *, batch: bool = False) -> Ask:
            fields = send_ext(topic, properties=properties, batch=batch)
            return Ask(v2(fields) if letters else fields, body)

        longest = "".join(f"k{number}\x01{'v' * 20}\x02" for number in range(1200))
        target = "DefaultCluster_REPLY_TOPIC" if reply else "Sent"
        found = [
            one(target, b"x", f"KEYS\x01{' '.join(f'k{number}' for number in range(5000))}\x02"),
            one(target, b"x" * min(4 << 20, world.size.body)),
            one(target, b"x", longest),
            one(target, b"x", "\x01\x02" * 15_000),
        ]
        if not reply:
            items = [(0, b"x", b"KEYS\x01k\x02")] * min(world.size.messages, 30_000)
            found.append(one("Sent", encode_batch(items), batch=True))
        return found

    return make


def policies(world: World) -> list[Ask]:
    """A policy with many members, grants and pauses."""
    many = world.size.names
    body = {
        "group": "policed",
        "epoch": 0,
        "revision": 1,
        "members": [f"member-{number:06}" for number in range(many)],
        "queues": [
            {
                "topic": "Wide",
                "queueId": number % world.size.queues,
                "client": f"member-{number:06}",
                "generation": 1,
            }
            for number in range(many)
        ],
        "pauses": [{"topic": f"T{number:06}"} for number in range(many)],
    }
    return [
        Ask(body=dumps({"group": "policed", "epoch": 0, "revision": 1, "members": []})),
        Ask(body=dumps(body)),
        Ask(body=dumps({**body, "queues": []})),
    ]


def joins(world: World) -> list[Ask]:
    """What a coordinator passes on to hear whether its sender may consume."""

    def body(count: int) -> bytes:
        topics = [f"T{number:06}" for number in range(count)]
        return dumps({"group": "joined", "clientId": "c", "member": "c", "topics": topics})

    return [Ask(ext(consumerGroup="joined"), body(count)) for count in (1, world.size.names)]


def roles(world: World) -> list[Ask]:
    """Orders for another broker, which are refused: this one keeps its role."""

    def body(count: int) -> bytes:
        members = [f"10.0.0.1:{number}" for number in range(count)]
        who = {"clusterName": "elsewhere", "brokerName": "x", "epoch": 1, "role": "SLAVE", "brokerId": 1}
        return dumps({**who, "inSync": members})

    return [Ask(body=body(count)) for count in (1, world.size.names)]


def followers(world: World) -> list[Ask]:
    """Slaves that claim to know many reigns."""

    def body(count: int) -> bytes:
        epochs = [{"epoch": number, "startOffset": number} for number in range(count)]
        return dumps(
            {"clusterName": "DefaultCluster", "brokerName": "broker-a", "address": "h:1", "epochs": epochs}
        )

    return [Ask(body=body(count)) for count in (1, world.size.names // 10)]


def message_id(position: int) -> str:
    """An offset message id."""
    return f"7F00000100002A9F{position:016X}"


def properties(world: World) -> list[Ask]:
    """Settings as text: many lines, one long one."""
    lines = "".join(f"name{number}=value\n" for number in range(world.size.names)).encode()
    return [Ask(body=b"fileReservedTime=72\n"), Ask(body=lines), Ask(body=b"a=" + b"x" * world.size.body)]


def entries() -> list[Entry]:
    """All of them."""
    return [*pop_entries(), *_broker(), *_asking(), *_access(), *_names()]


def _broker() -> list[Entry]:
    def entry(code: int, said: str, make: Make, *, bombs: bool = False, repeats: bool = True) -> Entry:
        return Entry(PLAIN, code, said, make, bombs, repeats)

    group_topic = ext(topic="Tiny", group="G00000")
    return [
        entry(Code.SEND_MESSAGE, "biggest message, longest properties, batches", sends(letters=False)),
        entry(Code.SEND_MESSAGE_V2, "biggest message, longest properties, batches", sends(letters=True)),
        entry(Code.SEND_BATCH_MESSAGE, "batches of tiny messages", sends(letters=True)),
        entry(Code.SEND_REPLY_MESSAGE, "biggest reply", sends(letters=False, reply=True)),
        entry(Code.SEND_REPLY_MESSAGE_V2, "biggest reply", sends(letters=True, reply=True)),
        entry(
            Code.PULL_MESSAGE, "bulk pulls of a whole queue with a long SQL92 filter", pulls, repeats=False
        ),
        entry(Code.LITE_PULL_MESSAGE, "the same", pulls, repeats=False),
        entry(Code.HEART_BEAT, "many groups, many subscriptions, costly JSON", heartbeats, bombs=True),
        entry(
            Code.UNREGISTER_CLIENT,
            "clients with many groups leave",
            plain(*(ext(clientID=name) for name in ("many", "wide", "small"))),
        ),
        entry(
            Code.REGISTER_PROXIED_CLIENT,
            "members with many groups and subscriptions",
            heartbeats,
            bombs=True,
        ),
        entry(
            Code.UNREGISTER_PROXIED_CLIENT,
            "a member leaves",
            plain(ext(clientID="small", consumerGroup="G000000")),
        ),
        entry(Code.CHECK_TOPIC_RIGHT, "a topic", plain(ext(topic="Wide"))),
        entry(Code.CHECK_CLIENT_CONFIG, "long and deep SQL92", checks, bombs=True),
        entry(Code.LOCK_BATCH_MQ, "many queues", locks, bombs=True),
        entry(Code.UNLOCK_BATCH_MQ, "many queues", locks, bombs=True),
        entry(Code.QUERY_ASSIGNMENT, "shares of the widest topic", assignments, bombs=True),
        entry(
            Code.CONSUMER_SEND_MSG_BACK,
            "send-back of the biggest message",
            plain(ext(offset=0, group="G00000", delayLevel=0, originTopic="Tiny")),
        ),
        entry(
            Code.END_TRANSACTION,
            "positions without a half message",
            plain(ext(producerGroup="p", tranStateTableOffset=0, commitLogOffset=0, commitOrRollback=8)),
        ),
        entry(Code.RECALL_MESSAGE, "a long handle", plain(ext(topic="Tiny", recallHandle="v1 broker-a 1 x"))),
        entry(
            Code.RESUME_CHECK_HALF_MESSAGE,
            "a position without a half message",
            plain(ext(msgId=message_id(0), topic="Tiny")),
        ),
        entry(
            Code.QUERY_MESSAGE,
            "a key that all messages share",
            plain(
                *(
                    ext(topic="Keyed", key=key, maxNum=1 << 20, beginTimestamp=0, endTimestamp=1 << 50)
                    for key in ("same", "none")
                ),
                ext(topic="Tiny", key="same", maxNum=64, beginTimestamp=0, endTimestamp=1 << 50),
                ext(topic="Big", key="big", maxNum=64, beginTimestamp=0, endTimestamp=1 << 50),
            ),
        ),
        entry(
            Code.VIEW_MESSAGE_BY_ID,
            "invalid positions in the log",
            plain(ext(offset=1), ext(offset=0), ext(offset=1 << 50)),
        ),
        entry(
            Code.QUERY_CONSUME_QUEUE,
            "the maximum of entries",
            plain(queue("Tiny", index=0, count=1 << 30, consumerGroup="G00000")),
        ),
        entry(Code.QUERY_CONSUMER_OFFSET, "unknown groups", plain(queue("Tiny", consumerGroup="nobody"))),
        entry(
            Code.UPDATE_CONSUMER_OFFSET,
            "offsets of many queues",
            lambda world: [
                Ask(queue(world.topic(number), consumerGroup="G00001", commitOffset=0))
                for number in range(20)
            ],
        ),
        entry(
            Code.SEARCH_OFFSET_BY_TIMESTAMP,
            "times before, in and after a queue",
            plain(
                *(
                    queue("Tiny", timestamp=time, boundaryType=kind)
                    for time in (0, 1 << 50, 1_700_000_000_000)
                    for kind in ("LOWER", "UPPER")
                )
            ),
        ),
        entry(Code.GET_MAX_OFFSET, "a queue", plain(queue("Tiny"))),
        entry(Code.GET_MIN_OFFSET, "a queue", plain(queue("Tiny"))),
        entry(Code.GET_EARLIEST_MSG_STORETIME, "a queue", plain(queue("Tiny"))),
        entry(
            Code.UPDATE_AND_CREATE_TOPIC,
            "a topic with many queues",
            lambda world: [
                Ask(topic_fields("Made", 1)),
                Ask(topic_fields("Broad", world.size.queues)),
                Ask({**topic_fields("Made", 1), "attributes": "+a=b," * 5000}),
            ],
        ),
        entry(Code.UPDATE_AND_CREATE_TOPIC_LIST, "many topics", topic_lists, bombs=True, repeats=False),
        entry(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, "many attributes", group_body, bombs=True),
        entry(
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            "many groups",
            group_lists,
            bombs=True,
            repeats=False,
        ),
        entry(Code.GET_TOPIC_CONFIG, "a topic", plain(ext(topic="Wide"))),
        entry(Code.GET_ALL_TOPIC_CONFIG, "all topics", plain({})),
        entry(Code.GET_TOPIC_STATS_INFO, "the widest topic", plain(ext(topic="Wide"))),
        entry(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, "", plain({})),
        entry(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "all groups", plain({})),
        entry(Code.GET_SUBSCRIPTIONGROUP_CONFIG, "a group", plain(ext(group="G00000"))),
        entry(
            Code.GET_CONSUME_STATS,
            "a group with many topics",
            plain(ext(consumerGroup="G00000"), ext(consumerGroup="G00000", topic="Wide")),
        ),
        entry(Code.GET_BROKER_CONSUME_STATS, "all groups", plain(ext(isOrder=False))),
        entry(Code.GET_ALL_CONSUMER_OFFSET, "all offsets", plain({})),
        entry(Code.GET_ALL_DELAY_OFFSET, "", plain({})),
        entry(Code.GET_TIMER_CHECK_POINT, "", plain({})),
        entry(Code.GET_TIMER_METRICS, "", plain({})),
        entry(Code.GET_ALL_MESSAGE_REQUEST_MODE, "all modes", plain({})),
        entry(
            Code.SET_MESSAGE_REQUEST_MODE,
            "a mode, hostile JSON",
            lambda world: [Ask(body=dumps(mode)) for mode in _MODES],
            bombs=True,
        ),
        entry(Code.GET_BROKER_HA_STATUS, "", plain({})),
        entry(Code.QUERY_TOPIC_CONSUME_BY_WHO, "a topic among many offsets", plain(ext(topic="T00000"))),
        entry(Code.QUERY_TOPICS_BY_CONSUMER, "a group with many topics", plain(ext(group="G00000"))),
        entry(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, "a group", plain(group_topic)),
        entry(Code.QUERY_CONSUME_TIME_SPAN, "the widest topic", plain(ext(topic="Wide", group="G00000"))),
        entry(
            Code.QUERY_CORRECTION_OFFSET,
            "many groups to leave out",
            plain(
                ext(
                    topic="Wide",
                    compareGroup="G00000",
                    filterGroups=",".join(f"G{n:05}" for n in range(5000)),
                )
            ),
        ),
        entry(
            Code.INVOKE_BROKER_TO_RESET_OFFSET,
            "the widest topic, by time",
            plain(
                ext(topic="Wide", group="G00000", timestamp=0, isForce=True),
                ext(topic="Tiny", group="G00000", timestamp=-1, isForce=True),
            ),
        ),
        entry(
            Code.CLONE_GROUP_OFFSET,
            "a group with many topics",
            plain(ext(srcGroup="G00000", destGroup="G00002", offline=True)),
        ),
        entry(
            Code.UPDATE_AND_GET_GROUP_FORBIDDEN,
            "forbid and allow",
            plain(
                ext(group="G00000", topic="Tiny", readable=False),
                ext(group="G00000", topic="Tiny", readable=True),
            ),
        ),
        entry(Code.UPDATE_BROKER_CONFIG, "many settings, a long one", properties),
        entry(Code.GET_BROKER_CONFIG, "", plain({})),
        entry(Code.GET_BROKER_RUNTIME_INFO, "", plain({})),
        entry(
            Code.VIEW_BROKER_STATS_DATA,
            "known and unknown counters",
            plain(ext(statsName="TOPIC_PUT_NUMS", statsKey="Tiny"), ext(statsName="none", statsKey="none")),
        ),
        entry(Code.CLEAN_EXPIRED_CONSUMEQUEUE, "many topics to check", plain({})),
        entry(Code.CLEAN_UNUSED_TOPIC, "many topics to check", plain({})),
        entry(Code.DELETE_EXPIRED_COMMITLOG, "", plain({})),
        entry(
            Code.PUT_RETENTION_HOLD,
            "holds of many topics",
            lambda world: [
                Ask(ext(topic=world.topic(number), group="G00000", hours=1)) for number in range(20)
            ],
        ),
        entry(Code.GET_RETENTION_HOLDS, "all holds", plain({})),
        entry(Code.DELETE_RETENTION_HOLD, "a hold", plain(ext(topic="T00000"))),
        entry(Code.PUT_GROUP_POLICY, "many members, grants and pauses", policies, bombs=True, repeats=False),
        entry(Code.GET_GROUP_POLICIES, "all policies", plain(ext(group=""))),
        entry(Code.DELETE_GROUP_POLICY, "a big policy", plain(ext(group="policed"))),
        entry(
            Code.JOIN_MANAGED_GROUP,
            "a join with many topics, whose permissions are checked",
            joins,
            bombs=True,
        ),
        entry(
            Code.REPORT_MANAGED_MEMBER,
            "a report with many topics, whose permissions are checked",
            joins,
            bombs=True,
        ),
        entry(Code.GET_BROKER_EPOCH_CACHE, "", plain({})),
        entry(Code.GET_REPLICA_STATE, "", plain({})),
        entry(Code.SET_REPLICA_ROLE, "a large in-sync set", roles, bombs=True),
        entry(Code.FOLLOW_MASTER, "many epochs", followers, bombs=True),
        entry(
            Code.END_PRODUCERS,
            "the ends of many families",
            plain(*(ext(topic="Tiny", family=f"f{number}", epoch=1, note="x" * 200) for number in range(50))),
        ),
        # What takes something away comes last.
        entry(
            Code.DELETE_SUBSCRIPTIONGROUP,
            "a group with many offsets",
            plain(ext(groupName="G00000", cleanOffset=True)),
        ),
        entry(
            Code.DELETE_TOPIC_IN_BROKER,
            "the widest topic, the longest queue",
            plain(ext(topic="Wide"), ext(topic="Tiny"), ext(topic="Broad")),
        ),
    ]


def _asking() -> list[Entry]:
    """What brokers ask their clients: the client is the same connection, with a heartbeat before."""

    def members(world: World, fields: dict[str, str]) -> list[Ask]:
        return [Ask(fields)]

    def entry(code: int, said: str, **fields: object) -> Entry:
        made = ext(**fields)
        return Entry(PLAIN, code, said, lambda world: members(world, made))

    return [
        entry(Code.GET_CONSUMER_LIST_BY_GROUP, "a group", consumerGroup="H000000"),
        entry(Code.GET_CONSUMER_CONNECTION_LIST, "a member with many subscriptions", consumerGroup="H000000"),
        entry(Code.GET_PRODUCER_CONNECTION_LIST, "a group", producerGroup="P000000"),
        entry(Code.GET_ALL_PRODUCER_INFO, "all producers"),
        entry(
            Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, "a member that has left", topic="Tiny", group="H000000"
        ),
        entry(
            Code.GET_CONSUMER_RUNNING_INFO,
            "a member that has left",
            consumerGroup="H000000",
            clientId="nobody",
            jstackEnable=True,
        ),
        entry(
            Code.CONSUME_MESSAGE_DIRECTLY,
            "a member that has left",
            consumerGroup="H000000",
            clientId="nobody",
            msgId=message_id(0),
            topic="Tiny",
        ),
    ]


def _access() -> list[Entry]:
    def user(world: World) -> list[Ask]:
        return [
            Ask(
                ext(username="somebody"),
                dumps({"username": "somebody", "password": "12345678", "userType": "Normal"}),
            )
        ]

    def acl(world: World) -> list[Ask]:
        rows = [
            {
                "resource": f"Topic:T{number:06}",
                "actions": ["Pub"],
                "sourceIps": ["10.0.0.0/8"],
                "decision": "Allow",
            }
            for number in range(world.size.names)
        ]

        def body(entries: Sequence[Mapping[str, object]]) -> bytes:
            return dumps(
                {"subject": "User:somebody", "policies": [{"policyType": "Custom", "entries": entries}]}
            )

        return [
            Ask(ext(subject="User:somebody"), body(rows[:1])),
            Ask(ext(subject="User:somebody"), body(rows)),
        ]

    user_codes = [
        (Code.AUTH_CREATE_USER, "a user", user, True),
        (Code.AUTH_UPDATE_USER, "a user", user, True),
        (Code.AUTH_GET_USER, "a user", plain(ext(username="somebody")), False),
        (Code.AUTH_LIST_USER, "all users", plain({}), False),
        (Code.AUTH_CREATE_ACL, "many policies", acl, True),
        (Code.AUTH_UPDATE_ACL, "many policies", acl, True),
        (Code.AUTH_GET_ACL, "many policies", plain(ext(subject="User:somebody")), False),
        (Code.AUTH_LIST_ACL, "all policies", plain({}), False),
        (Code.AUTH_DELETE_ACL, "many policies", plain(ext(subject="User:somebody")), False),
        (Code.AUTH_DELETE_USER, "a user", plain(ext(username="somebody")), False),
    ]
    return [Entry(USERS, code, said, make, hostile, False) for code, said, make, hostile in user_codes]


def _names() -> list[Entry]:
    def entry(code: int, said: str, make: Make, *, bombs: bool = False, repeats: bool = True) -> Entry:
        return Entry(NAMES, code, said, make, bombs, repeats)

    def value(number: int, text: str = "x") -> dict[str, str]:
        return ext(namespace="SPACE", key=f"k{number}", value=text)

    def registrations(world: World) -> list[Ask]:
        return [
            Ask(broker_ext("b9"), registration(1)),
            Ask(broker_ext("b9"), registration(world.size.names)),
            Ask(broker_ext("b9"), registration(world.size.names, prefix="U")),
        ]

    def routes(world: World) -> list[Ask]:
        queues = [
            {"brokerName": "b0", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": 0}
            for _ in range(world.size.names)
        ]
        return [
            Ask(ext(topic="R"), dumps({"queueDatas": some, "brokerDatas": [], "filterServerTable": {}}))
            for some in (queues[:1], queues)
        ]

    listed = (
        Code.GET_BROKER_CLUSTER_INFO,
        Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        Code.GET_UNIT_TOPIC_LIST,
        Code.GET_HAS_UNIT_SUB_TOPIC_LIST,
        Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        Code.GET_NAMESRV_CONFIG,
        Code.GET_BROKER_RUNTIME_INFO,
    )
    return [
        entry(
            Code.PUT_KV_CONFIG,
            "many values, and long ones",
            lambda world: [
                *(Ask(value(number)) for number in range(5)),
                Ask(value(9, "x" * (world.size.body // 4))),
            ],
        ),
        entry(Code.GET_KV_CONFIG, "a value", plain(ext(namespace="SPACE", key="k1"))),
        entry(Code.GET_KVLIST_BY_NAMESPACE, "all values", plain(ext(namespace="SPACE"))),
        entry(Code.DELETE_KV_CONFIG, "a value", plain(ext(namespace="SPACE", key="k1"))),
        entry(Code.REGISTER_BROKER, "many topics", registrations, bombs=True, repeats=False),
        entry(
            Code.QUERY_DATA_VERSION,
            "a broker",
            lambda world: [Ask(broker_ext("b9"), dumps({"counter": 1}))],
            bombs=True,
        ),
        entry(Code.BROKER_HEARTBEAT, "a broker", plain(broker_ext("b9"))),
        entry(Code.REGISTER_TOPIC_IN_NAMESRV, "many queues", routes, bombs=True, repeats=False),
        entry(Code.GET_ROUTEINFO_BY_TOPIC, "the widest route", plain(ext(topic="R"), ext(topic="T00000"))),
        *(entry(code, "with many topics registered", plain({})) for code in listed),
        entry(Code.GET_TOPICS_BY_CLUSTER, "many topics", plain(ext(cluster="C"))),
        entry(Code.GET_BROKER_MEMBER_GROUP, "a broker", plain(ext(clusterName="C", brokerName="b9"))),
        entry(Code.WIPE_WRITE_PERM_OF_BROKER, "many topics", plain(ext(brokerName="b9"))),
        entry(Code.ADD_WRITE_PERM_OF_BROKER, "many topics", plain(ext(brokerName="b9"))),
        entry(Code.UPDATE_NAMESRV_CONFIG, "many settings, a long one", properties),
        entry(
            Code.DELETE_TOPIC_IN_NAMESRV,
            "the widest route",
            plain(ext(topic="R"), ext(topic="T00000", clusterName="C")),
        ),
        entry(Code.UNREGISTER_BROKER, "a broker with many topics", plain(broker_ext("b9"))),
    ]
