import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.remoting.protocol.body.QueueTimeSpan;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What tools ask about groups and do to them. */
public final class Tools {
    private Tools() { }

    private static JSONObject offsets(Map<MessageQueue, Long> table) {
        JSONObject found = new JSONObject();
        table.forEach((queue, offset) -> found.put(Integer.toString(queue.getQueueId()), offset));
        return found;
    }

    /** What the tools say of one consumer of a group and the topic it reads. */
    static Object look(JSONObject request) throws Exception {
        DefaultMQAdminExt admin = Driver.configured(new DefaultMQAdminExt(10_000), request);
        admin.start();
        try {
            String topic = request.getString("topic");
            String group = request.getString("group");
            String client = admin.examineConsumerConnectionInfo(group).getConnectionSet().iterator().next().getClientId();
            ConsumerRunningInfo info = admin.getConsumerRunningInfo(group, client, false);
            JSONObject found = new JSONObject();
            found.put("client", client);
            found.put("queues", info.getMqTable().keySet().stream().filter(q -> q.getTopic().equals(topic)).count());
            found.put("kind", info.getProperties().getProperty(ConsumerRunningInfo.PROP_CONSUME_TYPE));
            found.put("directly", admin.consumeMessageDirectly(group, client, topic, request.getString("message"))
                    .getConsumeResult().name());
            JSONObject status = new JSONObject();
            admin.getConsumeStatus(topic, group, "").forEach((id, table) -> status.put(id, offsets(table)));
            found.put("status", status);
            JSONArray spans = new JSONArray();
            for (QueueTimeSpan span : admin.queryConsumeTimeSpan(topic, group)) {
                spans.add(JSONArray.of(span.getMessageQueue().getQueueId(), span.getMinTimeStamp(), span.getMaxTimeStamp()));
            }
            found.put("spans", spans);
            found.put("subscription", admin.querySubscription(group, topic).getSubString());
            admin.cloneGroupOffset(group, group + "_clone", topic, true);
            found.put("clone", admin.queryTopicConsumeByWho(topic).getGroupList().contains(group + "_clone"));
            found.put("all", admin.fetchConsumeStatsInBroker(request.getString("broker_addr"), false, 5000)
                    .getConsumeStatsList().stream().anyMatch(one -> one.containsKey(group)));
            found.put("producers", admin.getAllProducerInfo(request.getString("broker_addr")).getData().size());
            return found;
        } finally {
            admin.shutdown();
        }
    }

    /** Resets a group's offsets of a topic to a time. */
    static Object reset(JSONObject request) throws Exception {
        DefaultMQAdminExt admin = Driver.configured(new DefaultMQAdminExt(10_000), request);
        admin.start();
        try {
            return offsets(admin.resetOffsetByTimestamp(request.getString("topic"), request.getString("group"),
                    request.getLongValue("timestamp"), true));
        } finally {
            admin.shutdown();
        }
    }

    /** Removes a topic from one broker and one name server. */
    static Object deleteTopic(JSONObject request) throws Exception {
        Driver.admin(request).deleteTopicInBroker(Set.of(request.getString("broker_addr")), request.getString("topic"));
        Driver.admin(request).deleteTopicInNameServer(Set.of(request.getString("namesrv")), request.getString("topic"));
        return true;
    }
}
