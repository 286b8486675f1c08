import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** What clients do with each other through a broker: transactions, order, retries, replies. Releases 4.9 and 5 run it. */
public final class Exchanges {
    private static final Map<String, Runnable> RUNNING = new ConcurrentHashMap<>();
    private static final Map<String, JSONArray> SEEN = new ConcurrentHashMap<>();

    private Exchanges() { }

    private static LocalTransactionState state(char letter) {
        switch (letter) {
            case 'C': return LocalTransactionState.COMMIT_MESSAGE;
            case 'R': return LocalTransactionState.ROLLBACK_MESSAGE;
            default: return LocalTransactionState.UNKNOW;
        }
    }

    /** Sends one message for each text; its first letter is the local state, its second what a check says. */
    static Object transactions(JSONObject request) throws Exception {
        TransactionMQProducer producer = Driver.configured(new TransactionMQProducer(request.getString("group")), request);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return state((char) message.getBody()[0]);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return state((char) message.getBody()[1]);
            }
        });
        producer.start();
        RUNNING.put(producer.getInstanceName(), producer::shutdown);
        for (Object text : request.getJSONArray("texts")) {
            Message message = new Message(request.getString("topic"), text.toString().getBytes(StandardCharsets.UTF_8));
            producer.sendMessageInTransaction(message, null);
        }
        return producer.getInstanceName();
    }

    /** Starts an ordered consumer that keeps queue and body of what it is given. */
    static Object orderly(JSONObject request) throws Exception {
        DefaultMQPushConsumer consumer = Driver.configured(new DefaultMQPushConsumer(request.getString("group")), request);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(request.getString("topic"), "*");
        JSONArray seen = new JSONArray();
        consumer.registerMessageListener((MessageListenerOrderly) (batch, context) -> {
            for (MessageExt message : batch) {
                synchronized (seen) {
                    seen.add(JSONArray.of(message.getQueueId(), new String(message.getBody(), StandardCharsets.UTF_8)));
                }
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        SEEN.put(consumer.getInstanceName(), seen);
        RUNNING.put(consumer.getInstanceName(), consumer::shutdown);
        return consumer.getInstanceName();
    }

    static Object seen(JSONObject request) {
        JSONArray seen = SEEN.get(request.getString("handle"));
        synchronized (seen) {
            return new JSONArray(seen);
        }
    }

    static Object stop(JSONObject request) {
        RUNNING.remove(request.getString("handle")).run();
        return true;
    }

    /** Answers the messages of a topic with "re: " and their body. */
    static Object serve(JSONObject request) throws Exception {
        DefaultMQProducer producer = Driver.configured(new DefaultMQProducer(request.getString("group")), request);
        producer.start();
        DefaultMQPushConsumer consumer = Driver.configured(new DefaultMQPushConsumer(request.getString("group")), request);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(request.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            for (MessageExt message : batch) {
                try {
                    String text = "re: " + new String(message.getBody(), StandardCharsets.UTF_8);
                    producer.send(MessageUtil.createReplyMessage(message, text.getBytes(StandardCharsets.UTF_8)), 3000);
                } catch (Exception failure) {
                    failure.printStackTrace();
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        RUNNING.put(consumer.getInstanceName(), () -> {
            consumer.shutdown();
            producer.shutdown();
        });
        return consumer.getInstanceName();
    }

    /** Asks with one producer, for each text; the replies. */
    static Object ask(JSONObject request) throws Exception {
        DefaultMQProducer producer = Driver.configured(new DefaultMQProducer(request.getString("group")), request);
        producer.start();
        try {
            JSONArray replies = new JSONArray();
            for (Object text : request.getJSONArray("texts")) {
                Message message = new Message(request.getString("topic"), text.toString().getBytes(StandardCharsets.UTF_8));
                replies.add(new String(producer.request(message, 30_000).getBody(), StandardCharsets.UTF_8));
            }
            return replies;
        } finally {
            producer.shutdown();
        }
    }

    /** A consumer of "topic" in "group" that fails "count" times with delay level 1; what it was given. */
    static Object fail(JSONObject request) throws Exception {
        DefaultMQPushConsumer consumer = Driver.configured(new DefaultMQPushConsumer(request.getString("group")), request);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(request.getIntValue("retries"));
        consumer.setAwaitTerminationMillisWhenShutdown(10_000); // the last one still goes back to the broker
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
        } finally {
            consumer.shutdown();
        }
        return new JSONArray(received);
    }
}
