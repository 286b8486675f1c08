import com.alibaba.fastjson2.JSONObject;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/** Consumers whose heartbeats leave out what did not change, which is version 2 of them. */
final class Heartbeats {
    private static final Map<String, DefaultMQPushConsumer> CLIENTS = new ConcurrentHashMap<>();
    private static final Map<String, AtomicInteger> SEEN = new ConcurrentHashMap<>();

    private Heartbeats() { }

    static Object start(JSONObject request) throws Exception {
        DefaultMQPushConsumer client = Driver.configured(new DefaultMQPushConsumer(request.getString("group")), request);
        String handle = client.getInstanceName();
        AtomicInteger seen = new AtomicInteger();
        client.setUseHeartbeatV2(true);
        client.setHeartbeatBrokerInterval(200);
        client.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        client.subscribe(request.getString("topic"), "*");
        client.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            seen.addAndGet(batch.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        client.start();
        SEEN.put(handle, seen);
        CLIENTS.put(handle, client);
        return handle;
    }

    /** How many messages came. */
    static Object seen(JSONObject request) {
        return SEEN.get(request.getString("handle")).get();
    }

    static Object subscribe(JSONObject request) throws Exception {
        CLIENTS.get(request.getString("handle")).subscribe(request.getString("topic"), "*");
        return null;
    }

    static Object stop(JSONObject request) {
        CLIENTS.remove(request.getString("handle")).shutdown();
        return null;
    }
}
