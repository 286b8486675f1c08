import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.List;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.AccessChannel;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Clients that trace; shutting one down sends its records. With `cloud` they go where a cloud wants them. */
final class Traces {
    private Traces() { }

    /** Sends one message; gives its id. */
    static Object send(JSONObject request) throws Exception {
        DefaultMQProducer producer = configured(new DefaultMQProducer(request.getString("group")), request);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        try {
            byte[] body = "hi".getBytes(StandardCharsets.UTF_8);
            return producer.send(new Message(request.getString("topic"), "A", request.getString("keys"), body)).getMsgId();
        } finally {
            Thread.sleep(200);
            producer.shutdown();
        }
    }

    /** Polls until messages come; gives their ids. */
    static Object poll(JSONObject request) throws Exception {
        DefaultLitePullConsumer consumer =
            configured(new DefaultLitePullConsumer(request.getString("group")), request);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(request.getString("topic"), "*");
        consumer.start();
        JSONArray ids = new JSONArray();
        try {
            for (int tries = 0; ids.isEmpty() && tries < 60; tries++) {
                List<MessageExt> polled = consumer.poll(500);
                polled.forEach(message -> ids.add(message.getMsgId()));
            }
        } finally {
            Thread.sleep(300);
            consumer.shutdown();
        }
        return ids;
    }

    private static <T extends ClientConfig> T configured(T client, JSONObject request) {
        client.setNamesrvAddr(request.getString("namesrv"));
        client.setInstanceName("traces-" + request.getString("group"));
        client.setEnableTrace(true);
        if (request.containsKey("namespace")) {
            client.setNamespace(request.getString("namespace"));
        }
        if (request.getBooleanValue("cloud")) {
            client.setAccessChannel(AccessChannel.CLOUD);
        }
        return client;
    }
}
