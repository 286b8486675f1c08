import com.google.gson.Gson;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * Load from RocketMQ's Java client for gRPC: operations `send` and `receive`, each with `in_flight` messages at one
 * time. It speaks with the harness as LoadGen does.
 */
public final class GrpcLoadGen {
    private static final int BATCH = 32;
    private static final int MOST = 4_000_000;
    private static final Gson GSON = new Gson();
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static PrintStream out;

    /** Counts what ends while it is open. */
    private static final class Window {
        final AtomicBoolean stop = new AtomicBoolean();
        final AtomicInteger count = new AtomicInteger();
        final AtomicLong failed = new AtomicLong();
        final int[] took = new int[MOST];
        volatile boolean open;

        void ended(long began, int messages) {
            if (open) {
                int micros = (int) ((System.nanoTime() - began) / 1000);
                int end = count.addAndGet(messages);
                for (int i = end - messages; i < Math.min(end, MOST); i++) {
                    took[i] = micros;
                }
            }
        }

        Map<String, Object> measure(JsonObject asked) throws Exception {
            Thread.sleep((long) (asked.get("warm").getAsDouble() * 1000));
            failed.set(0);
            tell("begin", Map.of());
            open = true;
            long began = System.nanoTime();
            Thread.sleep((long) (asked.get("seconds").getAsDouble() * 1000));
            open = false;
            double seconds = (System.nanoTime() - began) / 1e9;
            tell("end", Map.of());
            stop.set(true);
            int messages = Math.min(count.get(), MOST);
            Arrays.sort(took, 0, messages);
            Map<String, Object> found = new HashMap<>();
            found.put("messages", messages);
            found.put("acknowledged", messages);
            found.put("failed", failed.get());
            found.put("seconds", seconds);
            found.put("p50_ms", messages == 0 ? 0 : took[messages / 2] / 1e3);
            found.put("p99_ms", messages == 0 ? 0 : took[(int) (messages * 0.99)] / 1e3);
            return found;
        }
    }

    private static void tell(String event, Map<String, Object> values) {
        Map<String, Object> line = new HashMap<>(values);
        line.put("event", event);
        out.println(GSON.toJson(line));
    }

    private static ClientConfiguration configuration(JsonObject asked) {
        return ClientConfiguration.newBuilder()
                .setEndpoints(asked.get("endpoints").getAsString())
                .enableSsl(false)
                .build();
    }

    private static Map<String, Object> send(JsonObject asked) throws Exception {
        String topic = asked.get("topic").getAsString();
        int inFlight = asked.get("in_flight").getAsInt();
        byte[] body = new byte[asked.get("size").getAsInt()];
        Window window = new Window();
        Semaphore slots = new Semaphore(inFlight);
        try (Producer producer = PROVIDER.newProducerBuilder()
                .setClientConfiguration(configuration(asked)).setTopics(topic).build()) {
            Thread thread = new Thread(() -> {
                while (!window.stop.get()) {
                    slots.acquireUninterruptibly();
                    Message message = PROVIDER.newMessageBuilder().setTopic(topic).setBody(body).build();
                    long began = System.nanoTime();
                    producer.sendAsync(message).whenComplete((receipt, error) -> {
                        slots.release();
                        if (error == null) {
                            window.ended(began, 1);
                        } else {
                            window.failed.incrementAndGet();
                        }
                    });
                }
            });
            thread.start();
            Map<String, Object> found = window.measure(asked);
            thread.join();
            slots.tryAcquire(inFlight, 20, TimeUnit.SECONDS);
            return found;
        }
    }

    private static Map<String, Object> receive(JsonObject asked) throws Exception {
        int inFlight = asked.get("in_flight").getAsInt();
        int batch = Math.min(BATCH, inFlight);
        Window window = new Window();
        try (SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder()
                .setClientConfiguration(configuration(asked))
                .setConsumerGroup(asked.get("group").getAsString())
                .setAwaitDuration(Duration.ofSeconds(5))
                .setSubscriptionExpressions(
                        Collections.singletonMap(asked.get("topic").getAsString(), FilterExpression.SUB_ALL))
                .build()) {
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < Math.max(1, inFlight / BATCH); i++) {
                Thread thread = new Thread(() -> {
                    while (!window.stop.get()) {
                        long began = System.nanoTime();
                        try {
                            List<MessageView> got = consumer.receive(batch, Duration.ofSeconds(60));
                            List<CompletableFuture<Void>> acks = new ArrayList<>();
                            for (MessageView each : got) {
                                acks.add(consumer.ackAsync(each));
                            }
                            CompletableFuture.allOf(acks.toArray(new CompletableFuture[0])).get();
                            window.ended(began, got.size());
                        } catch (Exception error) {
                            window.failed.incrementAndGet();
                        }
                    }
                });
                thread.start();
                threads.add(thread);
            }
            Map<String, Object> found = window.measure(asked);
            for (Thread thread : threads) {
                thread.join();
            }
            return found;
        }
    }

    public static void main(String[] arguments) throws Exception {
        out = new PrintStream(System.out, true, "UTF-8");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        tell("ready", Map.of());
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonObject asked = GSON.fromJson(line, JsonObject.class);
            try {
                boolean sends = asked.get("op").getAsString().equals("send");
                tell("result", sends ? send(asked) : receive(asked));
            } catch (Exception error) {
                tell("error", Map.of("error", String.valueOf(error)));
            }
        }
        System.exit(0);
    }
}
