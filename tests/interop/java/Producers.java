import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** What producers do beyond plain sends: transactions, requests and replies, codecs, traces. */
public final class Producers {
    private static final Map<String, TransactionMQProducer> TRANSACTIONS = new ConcurrentHashMap<>();
    private static final Map<String, AtomicInteger> CHECKS = new ConcurrentHashMap<>();
    private static final Map<String, Runnable> SERVERS = new ConcurrentHashMap<>();
    private static final AtomicInteger COUNTER = new AtomicInteger();

    private Producers() { }

    private static <T extends ClientConfig> T configured(T client, JSONObject request) {
        client.setNamesrvAddr(request.getString("namesrv"));
        client.setInstanceName("producers" + COUNTER.incrementAndGet());
        client.setVipChannelEnabled(false);
        client.setPollNameServerInterval(1000);
        client.setHeartbeatBrokerInterval(1000);
        return client;
    }

    private static Message message(JSONObject request) {
        Message message = new Message(request.getString("topic"), Base64.getDecoder().decode(request.getString("body")));
        if (request.containsKey("tags")) {
            message.setTags(request.getString("tags"));
        }
        if (request.containsKey("keys")) {
            message.setKeys(request.getString("keys"));
        }
        if (request.containsKey("delay_ms")) {
            message.setDelayTimeMs(request.getLongValue("delay_ms"));
        }
        return message;
    }

    /** Starts a transaction producer whose listener gives fixed states. */
    static Object startTransactions(JSONObject request) throws Exception {
        TransactionMQProducer producer = configured(new TransactionMQProducer(request.getString("group")), request);
        producer.setSendMsgTimeout(10_000);
        LocalTransactionState local = LocalTransactionState.valueOf(request.getString("local"));
        LocalTransactionState check = LocalTransactionState.valueOf(request.getString("check"));
        AtomicInteger checks = new AtomicInteger();
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return local;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                checks.incrementAndGet();
                return check;
            }
        });
        producer.start();
        TRANSACTIONS.put(producer.getInstanceName(), producer);
        CHECKS.put(producer.getInstanceName(), checks);
        return producer.getInstanceName();
    }

    static Object sendInTransaction(JSONObject request) throws Exception {
        SendResult result = TRANSACTIONS.get(request.getString("handle")).sendMessageInTransaction(message(request), null);
        return result.getMsgId();
    }

    static Object checks(JSONObject request) {
        return CHECKS.get(request.getString("handle")).get();
    }

    static Object stopTransactions(JSONObject request) {
        TRANSACTIONS.remove(request.getString("handle")).shutdown();
        return true;
    }

    /** Sends one request and gives the body of its reply. */
    static Object request(JSONObject request) throws Exception {
        DefaultMQProducer producer = configured(new DefaultMQProducer(request.getString("group")), request);
        producer.start();
        try {
            Message reply = producer.request(message(request), request.getLongValue("timeout"));
            return Base64.getEncoder().encodeToString(reply.getBody());
        } finally {
            producer.shutdown();
        }
    }

    /** Answers every message of a topic with "re: " and its body. */
    static Object serve(JSONObject request) throws Exception {
        DefaultMQProducer producer = configured(new DefaultMQProducer(request.getString("group")), request);
        producer.start();
        DefaultMQPushConsumer consumer = configured(new DefaultMQPushConsumer(request.getString("group")), request);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(request.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            for (MessageExt message : batch) {
                try {
                    byte[] body = ("re: " + new String(message.getBody(), StandardCharsets.UTF_8)).getBytes(StandardCharsets.UTF_8);
                    producer.send(MessageUtil.createReplyMessage(message, body), 3000);
                } catch (Exception failure) {
                    failure.printStackTrace();
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        SERVERS.put(consumer.getInstanceName(), () -> {
            consumer.shutdown();
            producer.shutdown();
        });
        return consumer.getInstanceName();
    }

    static Object stopServing(JSONObject request) {
        SERVERS.remove(request.getString("handle")).run();
        return true;
    }

    /** Sends one message compressed in the way asked for. */
    static Object sendCompressed(JSONObject request) throws Exception {
        DefaultMQProducer producer = configured(new DefaultMQProducer(request.getString("group")), request);
        producer.setCompressType(CompressionType.valueOf(request.getString("kind")));
        producer.setCompressMsgBodyOverHowmuch(1);
        producer.start();
        try {
            return producer.send(message(request), 10_000).getMsgId();
        } finally {
            producer.shutdown();
        }
    }

    /** Sends one message with tracing on; shutting down sends the trace. */
    static Object sendTraced(JSONObject request) throws Exception {
        DefaultMQProducer producer = configured(new DefaultMQProducer(request.getString("group")), request);
        producer.setEnableTrace(true);
        producer.start();
        try {
            return producer.send(message(request), 10_000).getMsgId();
        } finally {
            Thread.sleep(200);
            producer.shutdown();
        }
    }

    /** Consumes one message with tracing on; shutting down sends the trace. Gives the message's id. */
    static Object consumeTraced(JSONObject request) throws Exception {
        DefaultMQPushConsumer consumer = configured(new DefaultMQPushConsumer(request.getString("group")), request);
        consumer.setEnableTrace(true);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(request.getString("topic"), "*");
        CompletableFuture<String> seen = new CompletableFuture<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            seen.complete(batch.get(0).getMsgId());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            return seen.get(30, TimeUnit.SECONDS);
        } finally {
            Thread.sleep(300);
            consumer.shutdown();
        }
    }

    /** Sends a timed message and recalls it; gives both ids. */
    static Object sendAndRecall(JSONObject request) throws Exception {
        DefaultMQProducer producer = configured(new DefaultMQProducer(request.getString("group")), request);
        producer.start();
        try {
            SendResult result = producer.send(message(request), 10_000);
            String recalled = producer.recallMessage(request.getString("topic"), result.getRecallHandle());
            return new JSONArray(List.of(result.getMsgId(), recalled, result.getRecallHandle()));
        } finally {
            producer.shutdown();
        }
    }

    /** What Java's own reader finds in the body of a trace message. */
    static Object readTrace(JSONObject request) {
        JSONArray found = new JSONArray();
        List<TraceContext> contexts = TraceDataEncoder.decoderFromTraceDataString(request.getString("text"));
        for (TraceContext context : contexts == null ? Collections.<TraceContext>emptyList() : contexts) {
            for (TraceBean bean : context.getTraceBeans()) {
                JSONObject value = new JSONObject();
                value.put("type", context.getTraceType().name());
                value.put("time", context.getTimeStamp());
                value.put("group", context.getGroupName());
                value.put("request_id", context.getRequestId());
                value.put("success", context.isSuccess());
                value.put("code", context.getContextCode());
                value.put("cost", context.getCostTime());
                value.put("topic", bean.getTopic());
                value.put("msg_id", bean.getMsgId());
                value.put("tags", bean.getTags());
                value.put("keys", bean.getKeys());
                value.put("store_host", bean.getStoreHost());
                value.put("offset_id", bean.getOffsetMsgId());
                value.put("body_bytes", bean.getBodyLength());
                value.put("retry_times", bean.getRetryTimes());
                found.add(value);
            }
        }
        return found;
    }
}
