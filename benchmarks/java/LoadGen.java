import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Load from the official Java client, one long-lived process so that its compiler warms up once for all peers.
 *
 * <p>Standard input: one JSON object a line, {@code {"op": "send", "namesrv": ..., ...}}. Standard output: one JSON
 * object a line: {@code {"event": "begin"}} and {@code {"event": "end"}} around what is measured, then
 * {@code {"event": "result", ...}} or {@code {"event": "error", ...}}. The process ends when standard input closes.
 */
public final class LoadGen {
    private static final AtomicLong COUNTER = new AtomicLong();
    private static PrintStream out;

    /** Counts of microseconds in buckets of about 1.5 %. */
    private static final class Histogram {
        private final AtomicLongArray buckets = new AtomicLongArray(64 * 64);

        private static int bucket(long us) {
            if (us < 64) {
                return (int) Math.max(0, us);
            }
            int exponent = 63 - Long.numberOfLeadingZeros(us);
            return (exponent - 5) * 64 + (int) ((us >> (exponent - 6)) & 63);
        }

        private static long lowest(int bucket) {
            int exponent = bucket / 64 + 5;
            return bucket < 64 ? bucket : (1L << exponent) + ((long) (bucket % 64) << (exponent - 6));
        }

        void since(long startNanos) {
            buckets.incrementAndGet(bucket((System.nanoTime() - startNanos) / 1000));
        }

        void clear() {
            for (int i = 0; i < buckets.length(); i++) {
                buckets.set(i, 0);
            }
        }

        double milliseconds(double share) {
            long total = 0;
            for (int i = 0; i < buckets.length(); i++) {
                total += buckets.get(i);
            }
            long wanted = (long) Math.ceil(total * share);
            long seen = 0;
            for (int i = 0; i < buckets.length(); i++) {
                seen += buckets.get(i);
                if (seen >= wanted && seen > 0) {
                    return lowest(i) / 1000.0;
                }
            }
            return 0;
        }
    }

    private LoadGen() { }

    private static void say(JSONObject event) {
        synchronized (out) {
            out.println(event.toJSONString());
            out.flush();
        }
    }

    private static void event(String name) {
        say(JSONObject.of("event", name));
    }

    private static <T extends ClientConfig> T configured(T client, JSONObject request) {
        client.setNamesrvAddr(request.getString("namesrv"));
        client.setInstanceName("load" + COUNTER.incrementAndGet());
        client.setVipChannelEnabled(false);
        return client;
    }

    /** A producer whose transactions all commit. */
    private static DefaultMQProducer committing() {
        TransactionMQProducer producer = new TransactionMQProducer("load_producer");
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        return producer;
    }

    private static DefaultMQProducer producer(JSONObject request) throws Exception {
        DefaultMQProducer producer = configured(
                request.getBooleanValue("transactions") ? committing() : new DefaultMQProducer("load_producer"), request);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        return producer;
    }

    // ---- sends -------------------------------------------------------------------------------------------------

    /** A closed loop of `threads` synchronous senders, or of `in_flight` asynchronous sends. */
    private static final class Sending {
        final DefaultMQProducer producer;
        final String topic;
        final byte[] body;
        final int batch;
        final boolean async;
        final boolean transactions;
        final Semaphore free;
        final int inFlight;
        final Histogram times = new Histogram();
        final LongAdder messages = new LongAdder();
        final LongAdder acknowledged = new LongAdder();
        final LongAdder failed = new LongAdder();
        final AtomicLong left;
        final AtomicBoolean stop = new AtomicBoolean();

        Sending(JSONObject request) throws Exception {
            producer = producer(request);
            topic = request.getString("topic");
            body = new byte[request.getIntValue("size", 100)];
            batch = request.getIntValue("batch", 1);
            async = request.getBooleanValue("async");
            transactions = request.getBooleanValue("transactions");
            inFlight = request.getIntValue("in_flight", 256);
            free = new Semaphore(inFlight);
            left = new AtomicLong(request.getLongValue("count", Long.MAX_VALUE));
            for (int i = 0; i < body.length; i++) {
                body[i] = (byte) ('a' + i % 26);
            }
        }

        void stored(long start) {
            times.since(start);
            messages.add(batch);
            acknowledged.add(batch);
        }

        void once() throws Exception {
            if (!async) {
                long start = System.nanoTime();
                if (transactions) {
                    producer.sendMessageInTransaction(new Message(topic, body), null);
                } else if (batch == 1) {
                    producer.send(new Message(topic, body));
                } else {
                    List<Message> list = new ArrayList<>(batch);
                    for (int i = 0; i < batch; i++) {
                        list.add(new Message(topic, body));
                    }
                    producer.send(list);
                }
                stored(start);
                return;
            }
            free.acquire();
            long start = System.nanoTime();
            producer.send(new Message(topic, body), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    stored(start);
                    free.release();
                }

                @Override
                public void onException(Throwable failure) {
                    failed.increment();
                    free.release();
                }
            });
        }

        void loop() {
            while (!stop.get() && left.getAndAdd(-batch) > 0) {
                try {
                    once();
                } catch (Exception failure) {
                    failed.increment();
                }
            }
        }
    }

    private static JSONObject send(JSONObject request) throws Exception {
        Sending sending = new Sending(request);
        try {
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < request.getIntValue("threads", 1); i++) {
                Thread thread = new Thread(sending::loop, "sender-" + i);
                thread.start();
                threads.add(thread);
            }
            long start = System.nanoTime();
            if (!request.containsKey("count")) {
                Thread.sleep((long) (request.getDoubleValue("warm") * 1000));
                sending.times.clear();
                sending.messages.reset();
                event("begin");
                start = System.nanoTime();
                Thread.sleep((long) (request.getDoubleValue("seconds") * 1000));
                sending.stop.set(true);
            }
            double seconds = (System.nanoTime() - start) / 1e9;
            long messages = sending.messages.sum();
            if (!request.containsKey("count")) {
                event("end");
            }
            for (Thread thread : threads) {
                thread.join();
            }
            sending.free.acquire(sending.inFlight);
            return JSONObject.of("messages", messages, "seconds", seconds, "p50_ms", sending.times.milliseconds(.5),
                    "p99_ms", sending.times.milliseconds(.99)).fluentPut("acknowledged", sending.acknowledged.sum())
                    .fluentPut("failed", sending.failed.sum());
        } finally {
            sending.producer.shutdown();
        }
    }

    // ---- consumption -------------------------------------------------------------------------------------------

    /** Reads a backlog of `count` messages; the sums of queue offsets prove that each came once. */
    private static JSONObject consume(JSONObject request) throws Exception {
        long count = request.getLongValue("count");
        LongAdder got = new LongAdder();
        LongAdder offsets = new LongAdder();
        LongAdder disordered = new LongAdder();
        AtomicLong first = new AtomicLong();
        CountDownLatch begun = new CountDownLatch(1);
        AtomicLongArray following = new AtomicLongArray(1024); // by queue id: one broker
        DefaultMQPushConsumer consumer = configured(new DefaultMQPushConsumer(request.getString("group")), request);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(request.getString("topic"), "*");
        Consumer<List<MessageExt>> take = messages -> {
            if (first.get() == 0 && first.compareAndSet(0, System.nanoTime())) {
                event("begin");
                begun.countDown();
            }
            for (MessageExt message : messages) {
                offsets.add(message.getQueueOffset());
            }
            got.add(messages.size());
        };
        if (request.getBooleanValue("ordered")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                for (MessageExt message : messages) {
                    long offset = message.getQueueOffset();
                    if (following.getAndSet(message.getQueueId(), offset + 1) != offset) {
                        disordered.increment();
                    }
                }
                take.accept(messages);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                take.accept(messages);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        try {
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(request.getLongValue("seconds_max"));
            while (got.sum() < count && System.nanoTime() < deadline) {
                Thread.sleep(1);
            }
            double seconds = (System.nanoTime() - first.get()) / 1e9;
            event("end");
            return JSONObject.of("messages", got.sum(), "seconds", seconds, "offsets", offsets.sum(),
                    "disordered", disordered.sum());
        } finally {
            consumer.shutdown();
        }
    }

    /** Producer and push consumer in this process at a fixed rate; times run from the call of send to the listener. */
    private static JSONObject endToEnd(JSONObject request) throws Exception {
        String topic = request.getString("topic");
        Histogram times = new Histogram();
        LongAdder got = new LongAdder();
        LongAdder failed = new LongAdder();
        DefaultMQPushConsumer consumer = configured(new DefaultMQPushConsumer(request.getString("group")), request);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                times.since(ByteBuffer.wrap(message.getBody()).getLong());
                got.increment();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        DefaultMQProducer producer = producer(request);
        consumer.start();
        try {
            int size = request.getIntValue("size", 100);
            long begun = System.nanoTime();
            producer.send(new Message(topic, ByteBuffer.allocate(size).putLong(begun).array()));
            long sent = 1;
            while (got.sum() < sent) { // up to 30 s when its first rebalance coincides with its heartbeat
                if (System.nanoTime() - begun > TimeUnit.SECONDS.toNanos(60)) {
                    throw new IllegalStateException("the consumer gets nothing");
                }
                Thread.sleep(10);
            }
            long step = 1_000_000_000L / request.getIntValue("rate");
            long next = System.nanoTime() + 500_000_000L;
            long warmEnd = next + (long) (request.getDoubleValue("warm") * 1e9);
            long end = warmEnd + (long) (request.getDoubleValue("seconds") * 1e9);
            boolean measuring = false;
            for (; next < end; next += step) {
                if (!measuring && next >= warmEnd) {
                    measuring = true;
                    times.clear();
                    event("begin");
                }
                for (long wait = next - System.nanoTime(); wait > 0; wait = next - System.nanoTime()) {
                    LockSupport.parkNanos(wait);
                }
                byte[] body = new byte[size];
                ByteBuffer.wrap(body).putLong(System.nanoTime());
                sent++;
                producer.send(new Message(topic, body), new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) { }

                    @Override
                    public void onException(Throwable failure) {
                        failed.increment();
                    }
                });
            }
            event("end");
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
            while (got.sum() < sent && System.nanoTime() < deadline) {
                Thread.sleep(5);
            }
            return JSONObject.of("messages", (long) (request.getDoubleValue("seconds") * request.getIntValue("rate")),
                    "seconds", request.getDoubleValue("seconds"), "acknowledged", sent - failed.sum(), "received", got.sum(),
                    "failed", failed.sum()).fluentPut("p50_ms", times.milliseconds(.5)).fluentPut("p99_ms", times.milliseconds(.99));
        } finally {
            consumer.shutdown();
            producer.shutdown();
        }
    }

    /**
     * `threads` ask and wait for their reply, then ask again; the answering consumer is in this process. A reply
     * that is not the echo of its question counts as failed.
     */
    private static JSONObject requests(JSONObject request) throws Exception {
        String topic = request.getString("topic");
        int size = request.getIntValue("size", 100);
        DefaultMQProducer replier = producer(request);
        DefaultMQProducer asker = producer(request);
        DefaultMQPushConsumer server = configured(new DefaultMQPushConsumer(request.getString("group")), request);
        server.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        server.subscribe(topic, "*");
        server.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    replier.send(MessageUtil.createReplyMessage(message, message.getBody()), 3000);
                } catch (Exception failure) {
                    failure.printStackTrace();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        server.start();
        Histogram times = new Histogram();
        LongAdder replies = new LongAdder();
        LongAdder failed = new LongAdder();
        AtomicLong questions = new AtomicLong();
        AtomicBoolean stop = new AtomicBoolean();
        List<Thread> threads = new ArrayList<>();
        try {
            asker.request(new Message(topic, new byte[size]), 60_000); // until the consumer has its queues
            for (int i = 0; i < request.getIntValue("threads", 1); i++) {
                Thread thread = new Thread(() -> {
                    while (!stop.get()) {
                        long start = System.nanoTime();
                        try {
                            byte[] body = ByteBuffer.allocate(size).putLong(questions.incrementAndGet()).array();
                            Message reply = asker.request(new Message(topic, body), 10_000);
                            if (!Arrays.equals(reply.getBody(), body)) {
                                throw new IllegalStateException("the reply to another question");
                            }
                            times.since(start);
                            replies.increment();
                        } catch (Exception failure) {
                            failed.increment();
                        }
                    }
                });
                thread.start();
                threads.add(thread);
            }
            Thread.sleep((long) (request.getDoubleValue("warm") * 1000));
            times.clear();
            replies.reset();
            event("begin");
            long start = System.nanoTime();
            Thread.sleep((long) (request.getDoubleValue("seconds") * 1000));
            double seconds = (System.nanoTime() - start) / 1e9;
            long messages = replies.sum();
            event("end");
            stop.set(true);
            for (Thread thread : threads) {
                thread.join();
            }
            return JSONObject.of("messages", messages, "seconds", seconds, "acknowledged", questions.get(), "failed", failed.sum(),
                    "p50_ms", times.milliseconds(.5)).fluentPut("p99_ms", times.milliseconds(.99));
        } finally {
            stop.set(true);
            server.shutdown();
            asker.shutdown();
            replier.shutdown();
        }
    }

    // ---- members that come and go -------------------------------------------------------------------------------

    private static DefaultMQPushConsumer member(JSONObject request, Map<String, LongAdder> handled) throws Exception {
        DefaultMQPushConsumer consumer = configured(new DefaultMQPushConsumer(request.getString("group")), request);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        consumer.subscribe(request.getString("topic"), "*");
        long rest = request.getLongValue("handler_ms");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            try {
                Thread.sleep(rest);
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
            }
            for (MessageExt message : messages) {
                LongAdder count = handled.get(new String(message.getBody(), StandardCharsets.UTF_8));
                if (count != null) {
                    count.increment();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static void reads(DefaultMQPushConsumer consumer, String topic, long count, long deadline) throws Exception {
        while (consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
                .filter(queue -> queue.getTopic().equals(topic)).count() < count) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("a member has fewer than " + count + " queues");
            }
            Thread.sleep(20);
        }
    }

    /** One member stays while others come and go, one after the other; how many messages were handled twice. */
    private static JSONObject churn(JSONObject request) throws Exception {
        String topic = request.getString("topic");
        long queues = request.getLongValue("queues");
        long patience = TimeUnit.SECONDS.toNanos(request.getLongValue("seconds_max"));
        Map<String, LongAdder> handled = new ConcurrentHashMap<>();
        String run = request.getString("group") + "-" + System.nanoTime() + "-";
        AtomicBoolean stop = new AtomicBoolean();
        AtomicLong failed = new AtomicLong();
        DefaultMQProducer producer = producer(request);
        DefaultMQPushConsumer first = member(request, handled);
        Thread sender = new Thread(() -> {
            long step = 1_000_000_000L / request.getIntValue("rate");
            for (long number = 0; !stop.get(); number++) {
                String text = run + number;
                handled.put(text, new LongAdder());
                try {
                    producer.send(new Message(topic, text.getBytes(StandardCharsets.UTF_8)));
                } catch (Exception failure) {
                    handled.remove(text);
                    failed.incrementAndGet();
                }
                LockSupport.parkNanos(step);
            }
        });
        try {
            reads(first, topic, queues, System.nanoTime() + patience);
            event("begin");
            long start = System.nanoTime();
            sender.start();
            for (int i = 0; i < request.getIntValue("guests"); i++) {
                DefaultMQPushConsumer guest = member(request, handled);
                try {
                    reads(guest, topic, queues / 2, System.nanoTime() + patience);
                    Thread.sleep(request.getLongValue("stay_ms"));
                } finally {
                    guest.shutdown();
                }
            }
            stop.set(true);
            sender.join();
            double seconds = (System.nanoTime() - start) / 1e9;
            long deadline = System.nanoTime() + patience;
            while (handled.values().stream().anyMatch(count -> count.sum() == 0) && System.nanoTime() < deadline) {
                Thread.sleep(20);
            }
            event("end");
            long got = handled.values().stream().filter(count -> count.sum() > 0).count();
            long all = handled.values().stream().mapToLong(LongAdder::sum).sum();
            return JSONObject.of("messages", handled.size(), "seconds", seconds, "acknowledged", handled.size(),
                    "failed", failed.get(), "handled", got).fluentPut("twice", all - got);
        } finally {
            stop.set(true);
            first.shutdown();
            producer.shutdown();
        }
    }

    private static JSONObject run(JSONObject request) throws Exception {
        switch (request.getString("op")) {
            case "send":
                return send(request);
            case "consume":
                return consume(request);
            case "requests":
                return requests(request);
            case "e2e":
                return endToEnd(request);
            case "churn":
                return churn(request);
            default:
                throw new IllegalArgumentException("unknown op: " + request.getString("op"));
        }
    }

    public static void main(String[] arguments) throws Exception {
        out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        event("ready");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                say(run(JSON.parseObject(line)).fluentPut("event", "result"));
            } catch (Throwable failure) {
                failure.printStackTrace();
                say(JSONObject.of("event", "error", "error", failure.toString()));
            }
        }
        System.exit(0);
    }
}
