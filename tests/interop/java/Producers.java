import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** What producers do beyond plain sends: codecs, traces, recalls. */
public final class Producers {
    private Producers() { }

    private static Message message(JSONObject request) {
        Message message = Driver.message(request);
        if (request.containsKey("delay_ms")) {
            message.setDelayTimeMs(request.getLongValue("delay_ms"));
        }
        return message;
    }

    /** Sends one message compressed in the way asked for. */
    static Object sendCompressed(JSONObject request) throws Exception {
        DefaultMQProducer producer = Driver.configured(new DefaultMQProducer(request.getString("group")), request);
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
        DefaultMQProducer producer = Driver.configured(new DefaultMQProducer(request.getString("group")), request);
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
        DefaultMQPushConsumer consumer = Driver.configured(new DefaultMQPushConsumer(request.getString("group")), request);
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
        DefaultMQProducer producer = Driver.configured(new DefaultMQProducer(request.getString("group")), request);
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
