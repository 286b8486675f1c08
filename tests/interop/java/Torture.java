import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Producers and consumers that note down all they do, one JSON object a line, as the checker of histories reads them.
 *
 * <p>Times are those of the machine's monotonic clock, which Python's {@code time.monotonic} reads, too.
 */
final class Torture {
    private static final int SEND_MILLIS = 1500;
    private static final long PAUSE_MILLIS_MAX = 30;
    private static final long AFTER_ERROR_MILLIS = 50;
    private static final int PADDING_MAX = 2000;
    private static final Map<String, Torture> ALL = new ConcurrentHashMap<>();

    private final BufferedWriter file;
    private final String topic;
    private final List<DefaultMQPushConsumer> consumers = new ArrayList<>();
    private final List<DefaultMQProducer> producers = new ArrayList<>();
    private final List<Thread> senders = new ArrayList<>();
    private volatile boolean isSending = true;

    private Torture(JSONObject request) throws IOException {
        topic = request.getString("topic");
        file = Files.newBufferedWriter(Path.of(request.getString("file")), StandardCharsets.UTF_8);
    }

    /** Begin to read with one consumer for each group, and to send; {@code file} gets the notes. */
    static Object start(JSONObject request) throws Exception {
        Torture made = new Torture(request);
        ALL.put(request.getString("file"), made);
        made.read(request, request.getString("group"), false);
        made.read(request, request.getString("ordered_group"), true);
        made.send(request, "java-single", 0, 2);
        made.send(request, "java-retrying", 2, 2);
        return true;
    }

    static Object stopSending(JSONObject request) throws Exception {
        Torture made = ALL.get(request.getString("file"));
        made.isSending = false;
        for (Thread sender : made.senders) {
            sender.join();
        }
        for (DefaultMQProducer producer : made.producers) {
            producer.shutdown();
        }
        return true;
    }

    static Object stop(JSONObject request) throws Exception {
        Torture made = ALL.remove(request.getString("file"));
        for (DefaultMQPushConsumer consumer : made.consumers) {
            consumer.shutdown();
        }
        made.file.close();
        return true;
    }

    private void read(JSONObject request, String group, boolean isOrdered) throws Exception {
        DefaultMQPushConsumer consumer = Driver.configured(new DefaultMQPushConsumer(group), request);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.setAwaitTerminationMillisWhenShutdown(2000);
        consumer.subscribe(topic, "*");
        if (isOrdered) {
            consumer.registerMessageListener((MessageListenerOrderly) (batch, context) -> {
                note(group, batch, true);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
                note(group, batch, false);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        consumers.add(consumer);
    }

    private void send(JSONObject request, String name, int retries, int count) throws Exception {
        DefaultMQProducer producer = Driver.configured(new DefaultMQProducer(name), request);
        producer.setSendMsgTimeout(SEND_MILLIS);
        producer.setRetryTimesWhenSendFailed(retries);
        producer.start();
        producers.add(producer);
        for (int number = 0; number < count; number++) {
            String client = name + "-" + number;
            Thread sender = new Thread(() -> sendAll(producer, client, retries == 0), client);
            sender.start();
            senders.add(sender);
        }
    }

    private void sendAll(DefaultMQProducer producer, String client, boolean isOnce) {
        for (int number = 1; isSending; number++) {
            String id = client + "-" + number;
            note("send", client, "id", id, "once", isOnce);
            long pause = ThreadLocalRandom.current().nextLong(1, PAUSE_MILLIS_MAX);
            try {
                String padding = "x".repeat(ThreadLocalRandom.current().nextInt(PADDING_MAX));
                Message message = new Message(topic, (id + " " + padding).getBytes(StandardCharsets.UTF_8));
                SendResult result = producer.send(message);
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    note("acknowledged", client, "id", id, "queue", queue(result.getMessageQueue().getBrokerName(),
                            result.getMessageQueue().getQueueId()), "offset", result.getQueueOffset());
                } else {
                    note("unknown", client, "id", id, "reason", result.getSendStatus().name());
                }
            } catch (Exception failure) {
                note("unknown", client, "id", id, "reason", String.valueOf(failure.getMessage()));
                pause = AFTER_ERROR_MILLIS;
            }
            try {
                Thread.sleep(pause);
            } catch (InterruptedException interrupted) {
                return;
            }
        }
    }

    private void note(String group, List<MessageExt> batch, boolean isOrdered) {
        for (MessageExt message : batch) {
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            note("received", group, "group", group, "id", body.substring(0, body.indexOf(' ')),
                    "queue", queue(message.getBrokerName(), message.getQueueId()),
                    "offset", message.getQueueOffset(), "in_order", isOrdered);
        }
    }

    private String queue(String broker, int number) {
        return topic + "/" + broker + "/" + number;
    }

    private void note(String event, String client, Object... fields) {
        JSONObject value = JSONObject.of("event", event, "client", client);
        for (int i = 0; i < fields.length; i += 2) {
            value.put((String) fields[i], fields[i + 1]);
        }
        synchronized (file) {
            // Under the lock, so that the lines have the order of their times.
            value.put("at", System.nanoTime() / 1e9);
            try {
                file.write(JSON.toJSONString(value));
                file.newLine();
            } catch (IOException failure) {
                throw new UncheckedIOException(failure);
            }
        }
    }
}
