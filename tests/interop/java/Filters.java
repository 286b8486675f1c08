import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.util.BloomFilter;

/** What the reference's own filter classes say of expressions and names, and consumers with a filter. */
final class Filters {
    private Filters() { }

    /** For each case the error of its expression, or what it is for each set of properties. */
    static Object evaluate(JSONObject request) {
        JSONArray answers = new JSONArray();
        for (Object item : request.getJSONArray("cases")) {
            JSONObject one = (JSONObject) item;
            answers.add(evaluate(one.getString("expression"), one.getJSONArray("properties")));
        }
        return answers;
    }

    private static JSONObject evaluate(String text, JSONArray properties) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
        } catch (Throwable refused) {
            return JSONObject.of("error", String.valueOf(refused.getCause() == null ? refused : refused.getCause()));
        }
        JSONArray results = new JSONArray();
        for (Object item : properties) {
            Map<String, String> values = new HashMap<>();
            ((JSONObject) item).forEach((name, value) -> values.put(name, (String) value));
            try {
                Object value = expression.evaluate(new MessageEvaluationContext(values));
                results.add(value == null ? "NULL" : String.valueOf(value).toUpperCase());
            } catch (Throwable failed) {
                results.add("ERROR");
            }
        }
        return JSONObject.of("results", results);
    }

    /** The bits of each name in a bloom filter. */
    static Object bloom(JSONObject request) {
        BloomFilter filter = BloomFilter.createByFn(request.getIntValue("percent"), request.getIntValue("groups"));
        JSONArray positions = new JSONArray();
        request.getJSONArray("names").forEach(name -> positions.add(filter.calcBitPositions((String) name)));
        return JSONObject.of("bits", filter.getM(), "hashes", filter.getK(), "positions", positions);
    }

    private static final Map<String, DefaultMQPushConsumer> CONSUMERS = new ConcurrentHashMap<>();
    private static final Map<String, List<String>> CONSUMED = new ConcurrentHashMap<>();

    /** Start a push consumer with a SQL92 filter that keeps the bodies it is given; its handle. */
    static Object consume(JSONObject request) throws Exception {
        DefaultMQPushConsumer client = Driver.configured(new DefaultMQPushConsumer(request.getString("group")), request);
        List<String> bodies = new CopyOnWriteArrayList<>();
        client.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        client.subscribe(request.getString("topic"), MessageSelector.bySql(request.getString("expression")));
        client.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            batch.forEach(message -> bodies.add(new String(message.getBody(), StandardCharsets.UTF_8)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        try {
            client.start();
        } catch (MQClientException refused) {
            client.shutdown();
            throw refused;
        }
        CONSUMERS.put(client.getInstanceName(), client);
        CONSUMED.put(client.getInstanceName(), bodies);
        return client.getInstanceName();
    }

    /** The bodies a consumer was given so far. */
    static Object consumed(JSONObject request) {
        return new JSONArray(CONSUMED.get(request.getString("handle")));
    }

    /** Shut a consumer down. */
    static Object stop(JSONObject request) {
        CONSUMERS.remove(request.getString("handle")).shutdown();
        CONSUMED.remove(request.getString("handle"));
        return true;
    }
}
