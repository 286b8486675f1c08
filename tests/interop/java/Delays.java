import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.UUID;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Delayed and timed sends, and recall. */
final class Delays {
    private Delays() { }

    private static DefaultMQProducer producer(JSONObject request) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(request.getString("topic") + "_delays");
        producer.setNamesrvAddr(request.getString("namesrv"));
        producer.setInstanceName(UUID.randomUUID().toString());
        producer.setSendMsgTimeout(10000);
        producer.start();
        return producer;
    }

    /** Sends each of "messages" ("body" and one of "level", "delay_ms", "deliver_ms"); their recall handles. */
    static Object send(JSONObject request) throws Exception {
        DefaultMQProducer producer = producer(request);
        try {
            JSONArray handles = new JSONArray();
            for (Object item : request.getJSONArray("messages")) {
                JSONObject one = (JSONObject) item;
                byte[] body = one.getString("body").getBytes(StandardCharsets.UTF_8);
                Message message = new Message(request.getString("topic"), body);
                if (one.containsKey("level")) {
                    message.setDelayTimeLevel(one.getIntValue("level"));
                } else if (one.containsKey("delay_ms")) {
                    message.setDelayTimeMs(one.getLongValue("delay_ms"));
                } else {
                    message.setDeliverTimeMs(one.getLongValue("deliver_ms"));
                }
                SendResult result = producer.send(message);
                handles.add(String.valueOf(result.getRecallHandle()));
            }
            return handles;
        } finally {
            producer.shutdown();
        }
    }

    /** Takes the message of "handle" back; its id. */
    static Object recall(JSONObject request) throws Exception {
        DefaultMQProducer producer = producer(request);
        try {
            return producer.recallMessage(request.getString("topic"), request.getString("handle"));
        } finally {
            producer.shutdown();
        }
    }
}
