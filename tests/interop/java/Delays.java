import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.UUID;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Delayed and timed sends, recall, and a consumer that fails. */
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

    /** A consumer of "topic" in "group" that fails "count" times with delay level 1; what it was given. */
    static Object fail(JSONObject request) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.getString("group"));
        consumer.setNamesrvAddr(request.getString("namesrv"));
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(request.getIntValue("retries"));
        consumer.setPollNameServerInterval(1000);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.subscribe(request.getString("topic"), "*");
        JSONArray received = new JSONArray();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            synchronized (received) {
                messages.forEach(message -> received.add(Driver.describe(message)));
                received.notifyAll();
            }
            context.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        try {
            long end = System.currentTimeMillis() + 60000;
            synchronized (received) {
                while (received.size() < request.getIntValue("count") && System.currentTimeMillis() < end) {
                    received.wait(200);
                }
            }
            Thread.sleep(1000); // the last one goes back to the broker
            return new JSONArray(received);
        } finally {
            consumer.shutdown();
        }
    }
}
