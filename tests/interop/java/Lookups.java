import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Messages by key and id, and the commands of mqadmin themselves. */
final class Lookups {
    private Lookups() { }

    static Object byKey(JSONObject request) throws Exception {
        QueryResult found = Driver.admin(request).queryMessage(request.getString("topic"), request.getString("key"),
                request.getIntValue("count"), 0, Long.MAX_VALUE);
        JSONArray messages = new JSONArray();
        for (MessageExt message : found.getMessageList()) {
            messages.add(Driver.describe(message));
        }
        return messages;
    }

    /** By unique key, or by offset id: the client tells them apart by their form. */
    static Object byId(JSONObject request) throws Exception {
        DefaultMQAdminExt admin = Driver.admin(request);
        return Driver.describe(admin.viewMessage(request.getString("topic"), request.getString("message_id")));
    }

    /** What a command of mqadmin prints. A command object may keep its client, so each call gets new ones. */
    static synchronized Object mqadmin(JSONObject request) throws Exception {
        Field commands = MQAdminStartup.class.getDeclaredField("SUB_COMMANDS");
        commands.setAccessible(true);
        ((List<?>) commands.get(null)).clear();
        String[] arguments = request.getJSONArray("arguments").toArray(new String[0]);
        PrintStream before = System.out;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        try {
            MQAdminStartup.main0(arguments, null);
        } finally {
            System.setOut(before);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }
}
