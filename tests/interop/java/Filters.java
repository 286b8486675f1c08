import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.util.BloomFilter;

/** What the reference's own filter classes say of expressions and names. */
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
}
