import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** A consumer whose listener hangs at messages `hang` until it is stopped, and fails with all others at once for good. */
final class Stuck {
    private static final Map<String, DefaultMQPushConsumer> CONSUMERS = new ConcurrentHashMap<>();
    private static final Map<String, CountDownLatch> LATCHES = new ConcurrentHashMap<>();
    private static final AtomicInteger COUNTER = new AtomicInteger();

    private Stuck() { }

    static Object start(JSONObject request) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.getString("group"));
        String handle = "stuck-" + COUNTER.incrementAndGet();
        CountDownLatch end = new CountDownLatch(1);
        consumer.setNamesrvAddr(request.getString("namesrv"));
        consumer.setInstanceName(handle);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(0);
        consumer.subscribe(request.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            for (MessageExt message : batch) {
                if (!"hang".equals(new String(message.getBody(), StandardCharsets.UTF_8))) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                try {
                    end.await();
                } catch (InterruptedException interrupted) {
                    Thread.currentThread().interrupt();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        CONSUMERS.put(handle, consumer);
        LATCHES.put(handle, end);
        return handle;
    }

    static Object stop(JSONObject request) {
        LATCHES.remove(request.getString("handle")).countDown();
        CONSUMERS.remove(request.getString("handle")).shutdown();
        return null;
    }
}
