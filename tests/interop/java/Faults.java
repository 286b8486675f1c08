import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.hook.SendMessageContext;
import org.apache.rocketmq.client.hook.SendMessageHook;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** A producer that avoids slow brokers unless it is plain, and tells which it tried. */
final class Faults {
    private static final Map<String, DefaultMQProducer> PRODUCERS = new ConcurrentHashMap<>();
    private static final Map<String, List<String>> TRIED = new ConcurrentHashMap<>();
    private static final AtomicInteger COUNTER = new AtomicInteger();

    private Faults() { }

    /** A started producer; a try may take `try_ms`. A broker that failed rests `rest_ms`; with `plain` it does not. */
    static Object start(JSONObject request) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(request.getString("group"));
        String handle = "faults-" + COUNTER.incrementAndGet();
        producer.setNamesrvAddr(request.getString("namesrv"));
        producer.setInstanceName(handle);
        producer.setSendMsgTimeout(15_000);
        producer.setSendMsgMaxTimeoutPerRequest(request.getIntValue("try_ms"));
        if (!request.getBooleanValue("plain")) {
            producer.setSendLatencyFaultEnable(true);
            producer.setLatencyMax(new long[] {0, 9000});
            producer.setNotAvailableDuration(new long[] {0, request.getLongValue("rest_ms")});
        }
        List<String> tried = new CopyOnWriteArrayList<>();
        producer.getDefaultMQProducerImpl().registerSendMessageHook(new SendMessageHook() {
            @Override
            public String hookName() {
                return "tried";
            }

            @Override
            public void sendMessageBefore(SendMessageContext context) {
                tried.add(context.getMq().getBrokerName());
            }

            @Override
            public void sendMessageAfter(SendMessageContext context) { }
        });
        producer.start();
        PRODUCERS.put(handle, producer);
        TRIED.put(handle, tried);
        return handle;
    }

    /** Sends so many messages; gives the broker that took each. */
    static Object send(JSONObject request) throws Exception {
        DefaultMQProducer producer = PRODUCERS.get(request.getString("handle"));
        JSONArray brokers = new JSONArray();
        for (int number = 0; number < request.getIntValue("count"); number++) {
            Message message = new Message(request.getString("topic"), "x".getBytes(StandardCharsets.UTF_8));
            brokers.add(producer.send(message).getMessageQueue().getBrokerName());
        }
        return brokers;
    }

    /** The brokers of all tries since the last call. */
    static Object tried(JSONObject request) {
        List<String> tried = TRIED.get(request.getString("handle"));
        JSONArray found = new JSONArray(tried);
        tried.clear();
        return found;
    }

    static Object stop(JSONObject request) {
        PRODUCERS.remove(request.getString("handle")).shutdown();
        return null;
    }
}
