import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/** Clients with accounts, TLS and name spaces: each call makes one, uses it and shuts it down. */
final class Security {
    private static final AtomicInteger COUNTER = new AtomicInteger();

    private Security() { }

    private static RPCHook signer(JSONObject request) {
        String accessKey = request.getString("access_key");
        return accessKey == null ? null
                : new AclClientRPCHook(new SessionCredentials(accessKey, request.getString("secret_key")));
    }

    @SuppressWarnings("deprecation")
    private static <T extends ClientConfig> T configured(T client, JSONObject request) {
        client.setNamesrvAddr(request.getString("namesrv"));
        client.setInstanceName("security" + COUNTER.incrementAndGet());
        client.setUseTLS(request.getBooleanValue("tls"));
        client.setPollNameServerInterval(1000);
        client.setHeartbeatBrokerInterval(1000);
        if (request.containsKey("namespace")) {
            client.setNamespace(request.getString("namespace"));
        }
        return client;
    }

    /** Sends the texts of {@code bodies}; the topics that the results name. A broker's refusal is thrown as it is. */
    static Object send(JSONObject request) throws Exception {
        DefaultMQProducer producer = configured(new DefaultMQProducer(request.getString("group"), signer(request)), request);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        try {
            JSONArray topics = new JSONArray();
            for (Object body : request.getJSONArray("bodies")) {
                Message message = new Message(request.getString("topic"), ((String) body).getBytes(StandardCharsets.UTF_8));
                topics.add(producer.send(message, 10_000).getMessageQueue().getTopic());
            }
            return topics;
        } catch (MQClientException failed) {
            throw failed.getCause() instanceof MQBrokerException ? (MQBrokerException) failed.getCause() : failed;
        } finally {
            producer.shutdown();
        }
    }

    /** Consumes {@code count} messages, fewer when the time is up: topic and text of each. */
    static Object consume(JSONObject request) throws Exception {
        DefaultMQPushConsumer consumer = configured(new DefaultMQPushConsumer(
                null, request.getString("group"), signer(request)), request);
        BlockingQueue<JSONObject> received = new LinkedBlockingQueue<>();
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(request.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                received.add(JSONObject.of("topic", message.getTopic(),
                        "body", new String(message.getBody(), StandardCharsets.UTF_8)));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            JSONArray found = new JSONArray();
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(request.getIntValue("within"));
            while (found.size() < request.getIntValue("count")) {
                JSONObject message = received.poll(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
                if (message == null) {
                    break;
                }
                found.add(message);
            }
            return found;
        } finally {
            consumer.shutdown();
        }
    }

    /** Sends {@code bodies} in transactions that stay open; how many were committed when the broker asked for them. */
    static Object transact(JSONObject request) throws Exception {
        TransactionMQProducer producer = configured(
                new TransactionMQProducer(request.getString("group"), signer(request)), request);
        JSONArray bodies = request.getJSONArray("bodies");
        CountDownLatch checks = new CountDownLatch(bodies.size());
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.UNKNOW;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                checks.countDown();
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        try {
            for (Object body : bodies) {
                byte[] text = ((String) body).getBytes(StandardCharsets.UTF_8);
                producer.sendMessageInTransaction(new Message(request.getString("topic"), text), null);
            }
            checks.await(request.getIntValue("within"), TimeUnit.SECONDS);
            Thread.sleep(500); // the last answer is on its way
            return bodies.size() - checks.getCount();
        } finally {
            producer.shutdown();
        }
    }

    /** One account asks with each of {@code bodies}, that of {@code answerer} answers with "re: " and the body; the replies. */
    static Object exchange(JSONObject request) throws Exception {
        JSONObject other = request.getJSONObject("answerer");
        String group = request.getString("group");
        DefaultMQProducer replier = configured(new DefaultMQProducer(group + "_r", signer(other)), request);
        DefaultMQPushConsumer consumer = configured(new DefaultMQPushConsumer(null, group, signer(other)), request);
        DefaultMQProducer asker = configured(new DefaultMQProducer(group + "_a", signer(request)), request);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(request.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    String text = "re: " + new String(message.getBody(), StandardCharsets.UTF_8);
                    replier.send(MessageUtil.createReplyMessage(message, text.getBytes(StandardCharsets.UTF_8)), 3000);
                } catch (Exception failure) {
                    failure.printStackTrace();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        replier.start();
        consumer.start();
        asker.start();
        try {
            JSONArray replies = new JSONArray();
            for (Object body : request.getJSONArray("bodies")) {
                byte[] text = ((String) body).getBytes(StandardCharsets.UTF_8);
                Message reply = asker.request(new Message(request.getString("topic"), text), 20_000);
                replies.add(new String(reply.getBody(), StandardCharsets.UTF_8));
            }
            return replies;
        } finally {
            asker.shutdown();
            consumer.shutdown();
            replier.shutdown();
        }
    }
}
