import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Lite pull consumers, which poll subscribed or assigned queues, and classic ones, which pull by offset. */
final class PullConsumers {
    private static final Map<String, DefaultLitePullConsumer> CLIENTS = new ConcurrentHashMap<>();
    private static final Map<String, DefaultMQPullConsumer> CLASSIC = new ConcurrentHashMap<>();
    private static final Map<String, List<Object>> TOLD = new ConcurrentHashMap<>();
    private static final AtomicInteger COUNTER = new AtomicInteger();

    private PullConsumers() { }

    /** A consumer that commits by hand, subscribed to a topic, or assigned the queues given. */
    static Object start(JSONObject request) throws Exception {
        DefaultLitePullConsumer client = new DefaultLitePullConsumer(request.getString("group"));
        client.setNamesrvAddr(request.getString("namesrv"));
        String handle = "lite-" + COUNTER.incrementAndGet();
        List<Object> told = new CopyOnWriteArrayList<>();
        client.setInstanceName(handle);
        client.setAutoCommit(false);
        client.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        client.setHeartbeatBrokerInterval(1000);
        if (request.containsKey("queues")) {
            client.start();
            client.assign(queues(request));
        } else {
            client.subscribe(request.getString("topic"), request.getString("expression"),
                (topic, all, mine) -> told.add(Driver.queues(mine)));
            client.start();
        }
        TOLD.put(handle, told);
        CLIENTS.put(handle, client);
        return handle;
    }

    private static Collection<MessageQueue> queues(JSONObject request) {
        List<MessageQueue> found = new ArrayList<>();
        request.getJSONArray("queues").forEach(item -> found.add(Driver.queue((JSONObject) item)));
        return found;
    }

    /** Bodies of the messages of one poll. */
    static Object poll(JSONObject request) {
        JSONArray bodies = new JSONArray();
        for (MessageExt message : client(request).poll(request.getLongValue("millis"))) {
            bodies.add(Base64.getEncoder().encodeToString(message.getBody()));
        }
        return bodies;
    }

    /** Stores what was polled. */
    static Object commit(JSONObject request) throws Exception {
        client(request).commitSync();
        return client(request).committed(Driver.queue(request.getJSONObject("queue")));
    }

    static Object seek(JSONObject request) throws Exception {
        client(request).seek(Driver.queue(request.getJSONObject("queue")), request.getLongValue("offset"));
        return null;
    }

    static Object assignment(JSONObject request) throws Exception {
        JSONArray found = new JSONArray();
        client(request).assignment().forEach(queue -> found.add(Driver.describe(queue)));
        return found;
    }

    /** The own queues of every call of the listener. */
    static Object told(JSONObject request) {
        return new JSONArray(TOLD.get(request.getString("handle")));
    }

    static Object stop(JSONObject request) {
        DefaultLitePullConsumer client = CLIENTS.remove(request.getString("handle"));
        if (client != null) {
            client.shutdown();
        }
        return null;
    }

    private static DefaultLitePullConsumer client(JSONObject request) {
        return CLIENTS.get(request.getString("handle"));
    }

    // ---- classic -----------------------------------------------------------------------------------------------

    /** A consumer that has its share of a topic and reads what it is asked for. */
    static Object classicStart(JSONObject request) throws Exception {
        DefaultMQPullConsumer client = new DefaultMQPullConsumer(request.getString("group"));
        String handle = "classic-" + COUNTER.incrementAndGet();
        client.setNamesrvAddr(request.getString("namesrv"));
        client.setInstanceName(handle);
        client.setHeartbeatBrokerInterval(1000);
        client.setRegisterTopics(Set.of(request.getString("topic")));
        client.start();
        CLASSIC.put(handle, client);
        return handle;
    }

    static Object share(JSONObject request) throws Exception {
        return Driver.queues(classic(request).fetchMessageQueuesInBalance(request.getString("topic")));
    }

    /** Status, bodies and next offset of one pull. */
    static Object pull(JSONObject request) throws Exception {
        PullResult result = classic(request).pull(
            queue(request), request.getString("expression"), request.getLongValue("offset"), 32);
        JSONArray bodies = new JSONArray();
        if (result.getMsgFoundList() != null) {
            result.getMsgFoundList().forEach(one -> bodies.add(Base64.getEncoder().encodeToString(one.getBody())));
        }
        return JSONObject.of("status", result.getPullStatus().name(), "bodies", bodies,
            "next", result.getNextBeginOffset());
    }

    static Object note(JSONObject request) throws Exception {
        classic(request).updateConsumeOffset(queue(request), request.getLongValue("offset"));
        return null;
    }

    static Object offset(JSONObject request) throws Exception {
        return classic(request).fetchConsumeOffset(queue(request), request.getBooleanValue("stored"));
    }

    static Object classicStop(JSONObject request) {
        DefaultMQPullConsumer client = CLASSIC.remove(request.getString("handle"));
        if (client != null) {
            client.shutdown();
        }
        return null;
    }

    private static MessageQueue queue(JSONObject request) {
        return Driver.queue(request.getJSONObject("queue"));
    }

    private static DefaultMQPullConsumer classic(JSONObject request) {
        return CLASSIC.get(request.getString("handle"));
    }
}
