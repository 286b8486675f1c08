import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;
import org.apache.rocketmq.client.java.message.MessageViewImpl;

/** RocketMQ's Java client (gRPC): commands as JSON lines in, answers out; see tests/interop/foreign/README.md. */
public final class ClientDriver {
    private static final Gson GSON = new Gson();
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Pattern CODE = Pattern.compile("response-code=(\\d+)");
    private static final Duration AWAIT = Duration.ofSeconds(5);

    private final Map<String, Producer> producers = new HashMap<>();
    private final Map<String, Consumer> consumers = new HashMap<>();

    private interface Stop {
        void run() throws Exception;
    }

    private static final class Consumer {
        SimpleConsumer simple;
        final List<MessageView> kept = new ArrayList<>();
        final List<Map<String, Object>> got = Collections.synchronizedList(new ArrayList<>());
        Stop stop;
    }

    public static void main(String[] arguments) throws Exception {
        ClientDriver driver = new ClientDriver();
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonObject asked = GSON.fromJson(line, JsonObject.class);
            Map<String, Object> answer = new HashMap<>();
            answer.put("id", asked.get("id"));
            try {
                answer.put("result", driver.answer(asked));
            } catch (Throwable error) {
                StringBuilder causes = new StringBuilder(String.valueOf(error));
                for (Throwable each = error.getCause(); each != null; each = each.getCause()) {
                    causes.append("; ").append(each);
                }
                String said = causes.toString();
                Matcher code = CODE.matcher(said);
                answer.put("error", said);
                if (code.find()) {
                    answer.put("code", Integer.valueOf(code.group(1)));
                }
            }
            // The reader knows an answer by its first two characters.
            out.println(GSON.toJson(answer));
        }
        Runtime.getRuntime().halt(0); // the client's threads may still run
    }

    private Object answer(JsonObject asked) throws Exception {
        switch (text(asked, "op")) {
            case "send":
                return send(asked);
            case "transact":
                return transact(asked);
            case "recall":
                return producer(asked)
                    .recallMessage(text(asked, "topic"), text(asked, "handle")).getMessageId().toString();
            case "subscribe":
                return subscribe(asked);
            case "receive":
                return receive(asked);
            case "settle":
                return settle(asked);
            case "forge":
                return forge(asked);
            case "push":
                return push(asked);
            case "got":
                List<Map<String, Object>> got = consumers.get(text(asked, "consumer")).got;
                synchronized (got) {
                    return new ArrayList<>(got);
                }
            case "stop":
                consumers.remove(text(asked, "consumer")).stop.run();
                return null;
            default:
                throw new IllegalArgumentException("no operation " + text(asked, "op"));
        }
    }

    private static String text(JsonObject from, String name) {
        JsonElement found = from.get(name);
        return found == null || found.isJsonNull() ? "" : found.getAsString();
    }

    private static boolean flag(JsonObject from, String name) {
        JsonElement found = from.get(name);
        return found != null && found.getAsBoolean();
    }

    private static int number(JsonObject from, String name, int otherwise) {
        JsonElement found = from.get(name);
        return found == null ? otherwise : found.getAsInt();
    }

    private static ClientConfiguration configuration(JsonObject asked) {
        var builder = ClientConfiguration.newBuilder()
            .setEndpoints(text(asked, "endpoints")).enableSsl(flag(asked, "tls"));
        if (!text(asked, "accessKey").isEmpty()) {
            builder.setCredentialProvider(
                new StaticSessionCredentialsProvider(text(asked, "accessKey"), text(asked, "secretKey")));
        }
        return builder.build();
    }

    private Producer producer(JsonObject asked) throws Exception {
        String key = String.join(" ", text(asked, "endpoints"), text(asked, "topic"), text(asked, "accessKey"));
        Producer producer = producers.get(key);
        if (producer == null) {
            producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration(asked))
                .setTopics(text(asked, "topic"))
                .setTransactionChecker(message -> TransactionResolution.COMMIT).build();
            producers.put(key, producer);
        }
        return producer;
    }

    private static Message message(JsonObject asked, JsonObject each) {
        byte[] body = each.has("size")
            ? new byte[each.get("size").getAsInt()] : text(each, "body").getBytes(StandardCharsets.UTF_8);
        MessageBuilder builder = PROVIDER.newMessageBuilder().setTopic(text(asked, "topic")).setBody(body);
        if (!text(each, "tag").isEmpty()) {
            builder.setTag(text(each, "tag"));
        }
        if (each.has("keys")) {
            List<String> keys = new ArrayList<>();
            each.getAsJsonArray("keys").forEach(key -> keys.add(key.getAsString()));
            builder.setKeys(keys.toArray(new String[0]));
        }
        if (!text(each, "group").isEmpty()) {
            builder.setMessageGroup(text(each, "group"));
        }
        if (each.has("deliverAt")) {
            builder.setDeliveryTimestamp(each.get("deliverAt").getAsLong() * 1000);
        }
        if (each.has("properties")) {
            each.getAsJsonObject("properties").entrySet()
                .forEach(one -> builder.addProperty(one.getKey(), one.getValue().getAsString()));
        }
        return builder.build();
    }

    private List<Map<String, Object>> send(JsonObject asked) throws Exception {
        Producer producer = producer(asked);
        List<Map<String, Object>> receipts = new ArrayList<>();
        for (JsonElement each : asked.getAsJsonArray("messages")) {
            SendReceipt receipt = producer.send(message(asked, each.getAsJsonObject()));
            Map<String, Object> shown = new HashMap<>();
            shown.put("id", receipt.getMessageId().toString());
            shown.put("recallHandle", receipt.getRecallHandle());
            receipts.add(shown);
        }
        return receipts;
    }

    private String transact(JsonObject asked) throws Exception {
        Producer producer = producer(asked);
        Transaction transaction = producer.beginTransaction();
        JsonObject only = new JsonObject();
        only.add("body", asked.get("body"));
        SendReceipt receipt = producer.send(message(asked, only), transaction);
        if (text(asked, "how").equals("commit")) {
            transaction.commit();
        } else if (text(asked, "how").equals("rollback")) {
            transaction.rollback();
        }
        return receipt.getMessageId().toString();
    }

    private static FilterExpression expression(JsonObject asked) {
        if (!text(asked, "sql").isEmpty()) {
            return new FilterExpression(text(asked, "sql"), FilterExpressionType.SQL92);
        }
        return asked.has("expression") ? new FilterExpression(text(asked, "expression")) : FilterExpression.SUB_ALL;
    }

    private static Map<String, Object> shown(MessageView message) {
        Map<String, Object> shown = new HashMap<>();
        shown.put("body", StandardCharsets.UTF_8.decode(message.getBody()).toString());
        shown.put("tag", message.getTag().orElse(""));
        shown.put("keys", new TreeSet<>(message.getKeys()));
        shown.put("id", message.getMessageId().toString());
        shown.put("group", message.getMessageGroup().orElse(""));
        shown.put("properties", message.getProperties());
        shown.put("attempt", message.getDeliveryAttempt());
        return shown;
    }

    private Object subscribe(JsonObject asked) throws Exception {
        Consumer consumer = new Consumer();
        consumer.simple = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration(asked))
            .setConsumerGroup(text(asked, "group")).setAwaitDuration(AWAIT)
            .setSubscriptionExpressions(Map.of(text(asked, "topic"), expression(asked))).build();
        consumer.stop = consumer.simple::close;
        consumers.put(text(asked, "consumer"), consumer);
        return null;
    }

    /** One receive; each message is acknowledged, or hidden for `hide` seconds, or kept for `settle`. */
    private List<Map<String, Object>> receive(JsonObject asked) throws Exception {
        Consumer consumer = consumers.get(text(asked, "consumer"));
        Duration invisible = Duration.ofSeconds(number(asked, "invisible", 30));
        List<Map<String, Object>> found = new ArrayList<>();
        for (MessageView message : consumer.simple.receive(number(asked, "most", 32), invisible)) {
            if (asked.has("hide")) {
                consumer.simple.changeInvisibleDuration(message, Duration.ofSeconds(number(asked, "hide", 0)));
            } else if (flag(asked, "keep")) {
                consumer.kept.add(message);
            } else {
                consumer.simple.ack(message);
            }
            found.add(shown(message));
        }
        return found;
    }

    private Object settle(JsonObject asked) throws Exception {
        Consumer consumer = consumers.get(text(asked, "consumer"));
        for (MessageView message : consumer.kept) {
            consumer.simple.ack(message);
        }
        consumer.kept.clear();
        return null;
    }

    /** Acknowledges what is kept with another handle. */
    private Object forge(JsonObject asked) throws Exception {
        Consumer consumer = consumers.get(text(asked, "consumer"));
        for (MessageView message : consumer.kept) {
            ((MessageViewImpl) message).setReceiptHandle(text(asked, "handle"));
        }
        return settle(asked);
    }

    private Object push(JsonObject asked) throws Exception {
        Consumer consumer = new Consumer();
        Set<String> failed = ConcurrentHashMap.newKeySet();
        boolean first = flag(asked, "failFirst");
        boolean always = flag(asked, "failAlways");
        PushConsumer push = PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration(asked))
            .setConsumerGroup(text(asked, "group")).setConsumptionThreadCount(4)
            .setSubscriptionExpressions(Map.of(text(asked, "topic"), expression(asked)))
            .setMessageListener(message -> {
                boolean fails = always || first && failed.add(message.getMessageId().toString());
                if (always || !fails) {
                    consumer.got.add(shown(message));
                }
                return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();
        consumer.stop = push::close;
        consumers.put(text(asked, "consumer"), consumer);
        return null;
    }
}
