import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.ServiceState;
import org.apache.rocketmq.common.ServiceThread;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * The Java side of the interop tests: one long-lived process with any number of producers, consumers and admin
 * clients of the official client library.
 *
 * <p>Standard input: one JSON object a line, {@code {"id": 1, "op": "send", ...}}. Standard output: one JSON object
 * a line, {@code {"id": 1, "result": ...}} or {@code {"id": 1, "error": "...", "code": 17}}. Every request runs in
 * a thread of its own, so a waiting one holds nobody up. The process ends when standard input closes. An op that is
 * not listed here is {@code Class.method}, a static method of a feature's own class beside this one.
 */
public final class Driver {
    private interface Op {
        Object run(JSONObject request) throws Exception;
    }

    private static final long SEND_SECONDS_MAX = 30;
    private static final long PERSIST_MILLIS = 500;
    private static final long END_MILLIS = 50;
    private static final Map<String, Op> OPS = new HashMap<>();
    private static final Map<String, DefaultMQProducer> PRODUCERS = new ConcurrentHashMap<>();
    private static final Map<String, Consumer> CONSUMERS = new ConcurrentHashMap<>();
    private static final Map<String, DefaultMQAdminExt> ADMINS = new ConcurrentHashMap<>();
    private static final AtomicInteger COUNTER = new AtomicInteger();

    /** A push consumer and everything its listener was given, in order of arrival. */
    private static final class Consumer {
        final DefaultMQPushConsumer client;
        final List<JSONObject> received = new ArrayList<>();

        Consumer(DefaultMQPushConsumer client) {
            this.client = client;
        }

        synchronized ConsumeConcurrentlyStatus add(List<MessageExt> messages) {
            for (MessageExt message : messages) {
                received.add(describe(message));
            }
            notifyAll();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }

        synchronized int await(int count, double seconds) throws InterruptedException {
            long deadline = System.nanoTime() + (long) (seconds * 1e9);
            while (received.size() < count) {
                long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
                if (left <= 0) {
                    break;
                }
                wait(left);
            }
            return received.size();
        }

        synchronized JSONArray since(int position) {
            return new JSONArray(received.subList(Math.min(position, received.size()), received.size()));
        }
    }

    private Driver() { }

    // ---- values ------------------------------------------------------------------------------------------------

    static JSONObject describe(MessageQueue queue) {
        return JSONObject.of("topic", queue.getTopic(), "broker", queue.getBrokerName(), "id", queue.getQueueId());
    }

    static MessageQueue queue(JSONObject value) {
        return new MessageQueue(value.getString("topic"), value.getString("broker"), value.getIntValue("id"));
    }

    static JSONObject describe(SendResult result) {
        return JSONObject.of("status", result.getSendStatus().name(), "msg_id", result.getMsgId(),
                "offset_msg_id", result.getOffsetMsgId(), "queue", describe(result.getMessageQueue()),
                "queue_offset", result.getQueueOffset());
    }

    static JSONObject describe(MessageExt message) {
        JSONObject value = new JSONObject();
        value.put("topic", message.getTopic());
        value.put("broker", message.getBrokerName());
        value.put("queue_id", message.getQueueId());
        value.put("queue_offset", message.getQueueOffset());
        value.put("physical_offset", message.getCommitLogOffset());
        value.put("msg_id", message.getMsgId());
        value.put("offset_msg_id",
                message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : message.getMsgId());
        value.put("tags", message.getTags());
        value.put("keys", message.getKeys());
        value.put("flag", message.getFlag());
        value.put("sys_flag", message.getSysFlag());
        value.put("reconsume_times", message.getReconsumeTimes());
        value.put("born_timestamp", message.getBornTimestamp());
        value.put("store_timestamp", message.getStoreTimestamp());
        value.put("born_host", String.valueOf(message.getBornHost()));
        value.put("store_host", String.valueOf(message.getStoreHost()));
        value.put("properties", new JSONObject(message.getProperties()));
        value.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        return value;
    }

    static Message message(JSONObject value) {
        Message message = new Message(value.getString("topic"), Base64.getDecoder().decode(value.getString("body")));
        if (value.containsKey("tags")) {
            message.setTags(value.getString("tags"));
        }
        if (value.containsKey("keys")) {
            message.setKeys(value.getString("keys"));
        }
        message.setFlag(value.getIntValue("flag"));
        JSONObject properties = value.getJSONObject("properties");
        if (properties != null) {
            for (String name : properties.keySet()) {
                message.putUserProperty(name, properties.getString(name));
            }
        }
        return message;
    }

    private static List<Message> messages(JSONObject request) {
        List<Message> messages = new ArrayList<>();
        for (Object value : request.getJSONArray("messages")) {
            messages.add(message((JSONObject) value));
        }
        return messages;
    }

    private static Object json(RemotingSerializable value) {
        return withTextKeys(JSON.parse(value.toJson()));
    }

    /** The remoting protocol's JSON may have bare numbers as keys; ours may not. */
    private static Object withTextKeys(Object value) {
        if (value instanceof Map) {
            JSONObject copy = new JSONObject();
            ((Map<?, ?>) value).forEach((key, item) -> copy.put(String.valueOf(key), withTextKeys(item)));
            return copy;
        }
        if (value instanceof List) {
            JSONArray copy = new JSONArray();
            ((List<?>) value).forEach(item -> copy.add(withTextKeys(item)));
            return copy;
        }
        return value;
    }

    static <T extends ClientConfig> T configured(T client, JSONObject request) {
        client.setNamesrvAddr(request.getString("namesrv"));
        client.setInstanceName("driver" + ProcessHandle.current().pid() + "n" + COUNTER.incrementAndGet());
        client.setVipChannelEnabled(false);
        client.setPollNameServerInterval(1000);
        client.setHeartbeatBrokerInterval(1000);
        client.setPersistConsumerOffsetInterval(500);
        return client;
    }

    static <T> T known(Map<String, T> table, JSONObject request) {
        T found = table.get(request.getString("handle"));
        if (found == null) {
            throw new IllegalArgumentException("no such handle: " + request.getString("handle"));
        }
        return found;
    }

    // ---- producers ---------------------------------------------------------------------------------------------

    private static Object startProducer(JSONObject request) throws Exception {
        DefaultMQProducer producer = configured(new DefaultMQProducer(request.getString("group")), request);
        producer.setSendMsgTimeout(10_000);
        producer.setCompressMsgBodyOverHowmuch(4096);
        producer.start();
        String handle = producer.getInstanceName();
        PRODUCERS.put(handle, producer);
        return handle;
    }

    private static Object stopProducer(JSONObject request) {
        known(PRODUCERS, request).shutdown();
        PRODUCERS.remove(request.getString("handle"));
        return true;
    }

    private static Object send(JSONObject request) throws Exception {
        DefaultMQProducer producer = known(PRODUCERS, request);
        List<Message> messages = messages(request);
        String mode = request.getString("mode");
        MessageQueue target = request.containsKey("queue") ? queue(request.getJSONObject("queue")) : null;
        JSONArray results = new JSONArray();
        if (mode.equals("batch")) {
            results.add(describe(target == null ? producer.send(messages) : producer.send(messages, target)));
        } else if (mode.equals("async")) {
            results.addAll(sendAsync(producer, messages, target));
        } else {
            for (Message message : messages) {
                if (mode.equals("oneway")) {
                    producer.sendOneway(message);
                } else if (request.containsKey("hash_key")) {
                    results.add(describe(
                            producer.send(message, new SelectMessageQueueByHash(), request.getString("hash_key"))));
                } else {
                    results.add(describe(target == null ? producer.send(message) : producer.send(message, target)));
                }
            }
        }
        return results;
    }

    private static List<JSONObject> sendAsync(DefaultMQProducer producer, List<Message> messages, MessageQueue target)
            throws Exception {
        JSONObject[] results = new JSONObject[messages.size()];
        List<Throwable> failures = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch left = new CountDownLatch(results.length);
        for (int i = 0; i < results.length; i++) {
            final int position = i;
            SendCallback callback = new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    results[position] = describe(result);
                    left.countDown();
                }

                @Override
                public void onException(Throwable failure) {
                    failures.add(failure);
                    left.countDown();
                }
            };
            if (target == null) {
                producer.send(messages.get(i), callback);
            } else {
                producer.send(messages.get(i), target, callback);
            }
        }
        if (!left.await(SEND_SECONDS_MAX, TimeUnit.SECONDS)) {
            throw new IllegalStateException(left.getCount() + " asynchronous sends had no answer");
        }
        if (!failures.isEmpty()) {
            throw new IllegalStateException(failures.size() + " asynchronous sends failed: " + failures.get(0));
        }
        return List.of(results);
    }

    // ---- consumers ---------------------------------------------------------------------------------------------

    private static Object startConsumer(JSONObject request) throws Exception {
        DefaultMQPushConsumer client = configured(new DefaultMQPushConsumer(request.getString("group")), request);
        client.setConsumeFromWhere(request.getBooleanValue("from_last")
            ? ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET : ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        client.setConsumeThreadMin(4);
        client.setConsumeThreadMax(4);
        client.setAwaitTerminationMillisWhenShutdown(2000);
        if (request.getBooleanValue("broadcasting")) {
            // The model is of another package in 4.9.
            Class<?> model = client.getMessageModel().getClass();
            client.getClass().getMethod("setMessageModel", model).invoke(client, model.getField("BROADCASTING").get(null));
        }
        if (request.getBooleanValue("asks_broker")) {
            // 4.9 has no such method.
            client.getClass().getMethod("setClientRebalance", boolean.class).invoke(client, false);
            client.getClass().getMethod("setPopInvisibleTime", long.class).invoke(client, 5000L);
        }
        JSONObject subscriptions = request.getJSONObject("subscriptions");
        for (String topic : subscriptions.keySet()) {
            client.subscribe(topic, subscriptions.getString(topic));
        }
        Consumer consumer = new Consumer(client);
        client.registerMessageListener((MessageListenerConcurrently) (batch, context) -> consumer.add(batch));
        client.start();
        CONSUMERS.put(client.getInstanceName(), consumer);
        return client.getInstanceName();
    }

    /** Consumers tell their offsets often, as ours do in these tests; by themselves they would begin after ten seconds. */
    private static void persistOffsets() {
        for (Consumer consumer : CONSUMERS.values()) {
            DefaultMQPushConsumerImpl inner = consumer.client.getDefaultMQPushConsumerImpl();
            if (inner.getServiceState() == ServiceState.RUNNING) {
                inner.persistConsumerOffset();
            }
        }
    }

    /** A client that shuts down waits up to three seconds for a thread that polls for events: wake it. */
    private static void endEventThreads() {
        Thread[] found = new Thread[2 * Thread.activeCount()];
        for (int i = Thread.enumerate(found) - 1; i >= 0; i--) {
            if (found[i].getName().equals("NettyEventExecutor") && isStopped(found[i])) {
                found[i].interrupt();
            }
        }
    }

    /** Whether the service that a thread runs was told to stop; false where this Java does not say what it runs. */
    private static boolean isStopped(Thread thread) {
        try {
            boolean isOld = Runtime.version().feature() < 19;
            Object owner = isOld ? thread : field(Thread.class, "holder").get(thread);
            Object run = isOld ? field(Thread.class, "target").get(owner) : field(owner.getClass(), "task").get(owner);
            return run instanceof ServiceThread && ((ServiceThread) run).isStopped();
        } catch (ReflectiveOperationException | RuntimeException unknown) {
            return false;
        }
    }

    private static Field field(Class<?> type, String name) throws ReflectiveOperationException {
        Field found = type.getDeclaredField(name);
        found.setAccessible(true);
        return found;
    }

    private static Object stopConsumer(JSONObject request) {
        DefaultMQPushConsumer client = known(CONSUMERS, request).client;
        // Apache's broker may lose one of two first commits at once; those of the shutdown are the second ones then.
        client.getDefaultMQPushConsumerImpl().persistConsumerOffset();
        client.shutdown();
        return known(CONSUMERS, request).since(0).size();
    }

    private static Object paused(JSONObject request, boolean paused) {
        DefaultMQPushConsumer client = known(CONSUMERS, request).client;
        if (paused) {
            client.suspend();
        } else {
            client.resume();
        }
        return paused;
    }

    /** The queues that this member of the group holds now; retry topics are left out. */
    private static Object assigned(JSONObject request) {
        Set<MessageQueue> held = new TreeSet<>(known(CONSUMERS, request)
                .client.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet());
        JSONArray queues = new JSONArray();
        for (MessageQueue queue : held) {
            if (!queue.getTopic().startsWith("%RETRY%")) {
                queues.add(describe(queue));
            }
        }
        return queues;
    }

    /** Every message of every queue of a topic, by pulls, without touching a group's offsets. */
    private static Object dump(JSONObject request) throws Exception {
        DefaultMQPullConsumer client = configured(new DefaultMQPullConsumer("driver_dump"), request);
        client.start();
        try {
            JSONArray found = new JSONArray();
            for (MessageQueue queue : client.fetchSubscribeMessageQueues(request.getString("topic"))) {
                long offset = client.minOffset(queue);
                long end = client.maxOffset(queue);
                while (offset < end) {
                    PullResult result = client.pull(queue, "*", offset, 32);
                    if (result.getPullStatus() != PullStatus.FOUND) {
                        throw new IllegalStateException(queue + " at " + offset + ": " + result);
                    }
                    result.getMsgFoundList().forEach(message -> found.add(describe(message)));
                    offset = result.getNextBeginOffset();
                }
            }
            return found;
        } finally {
            client.shutdown();
        }
    }

    // ---- admin -------------------------------------------------------------------------------------------------

    static synchronized DefaultMQAdminExt admin(JSONObject request) throws Exception {
        String namesrv = request.getString("namesrv");
        DefaultMQAdminExt admin = ADMINS.get(namesrv);
        if (admin == null) {
            admin = configured(new DefaultMQAdminExt(10_000L), request);
            admin.setAdminExtGroup("driver_admin" + COUNTER.incrementAndGet());
            admin.start();
            ADMINS.put(namesrv, admin);
        }
        return admin;
    }

    private static Object createTopic(JSONObject request) throws Exception {
        TopicConfig config = new TopicConfig(request.getString("topic"));
        config.setReadQueueNums(request.getIntValue("queues"));
        config.setWriteQueueNums(request.getIntValue("queues"));
        config.setPerm(request.getIntValue("perm", 6));
        admin(request).createAndUpdateTopicConfig(request.getString("broker_addr"), config);
        return true;
    }

    private static Object topicStatus(JSONObject request) throws Exception {
        JSONArray rows = new JSONArray();
        admin(request).examineTopicStats(request.getString("topic")).getOffsetTable().forEach((queue, offset) ->
                rows.add(JSONObject.of("queue", describe(queue), "min", offset.getMinOffset(), "max", offset.getMaxOffset(),
                        "last_update", offset.getLastUpdateTimestamp())));
        return rows;
    }

    private static Object groupProgress(JSONObject request) throws Exception {
        JSONArray rows = new JSONArray();
        admin(request).examineConsumeStats(request.getString("group")).getOffsetTable().forEach((queue, offset) ->
                rows.add(JSONObject.of("queue", describe(queue), "broker_offset", offset.getBrokerOffset(),
                        "consumer_offset", offset.getConsumerOffset(), "last_timestamp", offset.getLastTimestamp())));
        return rows;
    }

    private static Object offsets(JSONObject request) throws Exception {
        MessageQueue queue = queue(request.getJSONObject("queue"));
        DefaultMQAdminExt admin = admin(request);
        return JSONObject.of("min", admin.minOffset(queue), "max", admin.maxOffset(queue), "earliest",
                admin.earliestMsgStoreTime(queue), "at", admin.searchOffset(queue, request.getLongValue("timestamp")));
    }

    static {
        OPS.put("producer.start", Driver::startProducer);
        OPS.put("producer.stop", Driver::stopProducer);
        OPS.put("producer.send", Driver::send);
        OPS.put("producer.queues", request -> queues(known(PRODUCERS, request).fetchPublishMessageQueues(request.getString("topic"))));
        OPS.put("consumer.start", Driver::startConsumer);
        OPS.put("consumer.stop", Driver::stopConsumer);
        OPS.put("consumer.pause", request -> paused(request, true));
        OPS.put("consumer.resume", request -> paused(request, false));
        OPS.put("consumer.await", request -> known(CONSUMERS, request).await(request.getIntValue("count"), request.getDoubleValue("within")));
        OPS.put("consumer.received", request -> known(CONSUMERS, request).since(request.getIntValue("since")));
        OPS.put("consumer.assigned", Driver::assigned);
        OPS.put("dump", Driver::dump);
        OPS.put("admin.create_topic", Driver::createTopic);
        OPS.put("admin.topic_list", request -> new TreeSet<>(admin(request).fetchAllTopicList().getTopicList()));
        OPS.put("admin.topic_route", request -> json(admin(request).examineTopicRouteInfo(request.getString("topic"))));
        OPS.put("admin.topic_status", Driver::topicStatus);
        OPS.put("admin.cluster", request -> json(admin(request).examineBrokerClusterInfo()));
        OPS.put("admin.group_progress", Driver::groupProgress);
        OPS.put("admin.consumers", request -> json(admin(request).examineConsumerConnectionInfo(request.getString("group"))));
        OPS.put("admin.producers", request -> json(admin(request).examineProducerConnectionInfo(request.getString("group"), request.getString("topic"))));
        OPS.put("admin.groups_of_topic", request -> new TreeSet<>(admin(request).queryTopicConsumeByWho(request.getString("topic")).getGroupList()));
        OPS.put("admin.offsets", Driver::offsets);
    }

    static JSONArray queues(Collection<MessageQueue> queues) {
        JSONArray values = new JSONArray();
        new TreeSet<>(queues).forEach(queue -> values.add(describe(queue)));
        return values;
    }

    // ---- the loop ----------------------------------------------------------------------------------------------

    private static JSONObject failure(Throwable thrown) {
        Throwable cause = thrown instanceof InvocationTargetException && thrown.getCause() != null ? thrown.getCause() : thrown;
        JSONObject answer = JSONObject.of("error", cause.toString());
        if (cause instanceof MQBrokerException) {
            answer.put("code", ((MQBrokerException) cause).getResponseCode());
        } else if (cause instanceof MQClientException) {
            answer.put("code", ((MQClientException) cause).getResponseCode());
        }
        return answer;
    }

    /** {@code Class.method} names a static method of a feature's own class: it takes the request and gives the result. */
    private static Op feature(String name) throws ReflectiveOperationException {
        int dot = name.indexOf('.');
        if (dot < 0) {
            throw new IllegalArgumentException("unknown op: " + name);
        }
        Method method = Class.forName(name.substring(0, dot)).getDeclaredMethod(name.substring(dot + 1), JSONObject.class);
        return request -> method.invoke(null, request);
    }

    private static void answer(PrintStream out, JSONObject request) {
        JSONObject answer;
        try {
            String name = request.getString("op");
            Op op = OPS.containsKey(name) ? OPS.get(name) : feature(name);
            answer = new JSONObject();
            answer.put("result", op.run(request));
        } catch (Throwable thrown) {
            thrown.printStackTrace();
            answer = failure(thrown);
        }
        answer.put("id", request.getLongValue("id"));
        String line = answer.toJSONString();
        synchronized (out) {
            out.println(line);
            out.flush();
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        ExecutorService threads = Executors.newCachedThreadPool();
        ScheduledExecutorService timer = Executors.newScheduledThreadPool(2);
        timer.scheduleWithFixedDelay(Driver::persistOffsets, PERSIST_MILLIS, PERSIST_MILLIS, TimeUnit.MILLISECONDS);
        timer.scheduleWithFixedDelay(Driver::endEventThreads, END_MILLIS, END_MILLIS, TimeUnit.MILLISECONDS);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        synchronized (out) {
            out.println("{\"ready\":true}");
            out.flush();
        }
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject request = JSON.parseObject(line);
            threads.execute(() -> answer(out, request));
        }
        System.exit(0);
    }
}
