import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/** The answers of the reference's allocation strategies, for queues and ids in any order. */
final class Allocations {
    private Allocations() { }

    private static AllocateMessageQueueStrategy strategy(JSONObject request) {
        switch (request.getString("strategy")) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash(request.getIntValue("virtual_nodes"));
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
                Set<String> names = new HashSet<>(request.getJSONArray("rooms").toJavaList(String.class));
                rooms.setConsumeridcs(names);
                return rooms;
            case "CONFIG":
                AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
                config.setMessageQueueList(queues(request.getJSONArray("configured")));
                return config;
            case "MACHINE_ROOM_NEARBY":
                return nearby(request);
            default:
                throw new IllegalArgumentException("unknown strategy: " + request.getString("strategy"));
        }
    }

    /** Rooms are what stands before the first dash of a broker's name and of a client id. */
    private static AllocateMessageQueueStrategy nearby(JSONObject request) {
        AllocateMachineRoomNearby.MachineRoomResolver resolver = new AllocateMachineRoomNearby.MachineRoomResolver() {
            @Override
            public String brokerDeployIn(MessageQueue queue) {
                return queue.getBrokerName().split("-", 2)[0];
            }

            @Override
            public String consumerDeployIn(String clientId) {
                return clientId.split("-", 2)[0];
            }
        };
        return new AllocateMachineRoomNearby(strategy(request.getJSONObject("inner")), resolver);
    }

    private static List<MessageQueue> queues(JSONArray values) {
        List<MessageQueue> queues = new ArrayList<>();
        values.forEach(value -> queues.add(Driver.queue((JSONObject) value)));
        return queues;
    }

    /** The strategy's name, queues and ids as Java sorts them, and each asked client's queues or the error it raises. */
    static Object allocate(JSONObject request) {
        AllocateMessageQueueStrategy strategy = strategy(request);
        List<MessageQueue> queues = queues(request.getJSONArray("queues"));
        List<String> ids = new ArrayList<>(request.getJSONArray("client_ids").toJavaList(String.class));
        Collections.sort(queues);
        Collections.sort(ids);
        JSONArray shares = new JSONArray();
        for (Object asked : request.getJSONArray("asked")) {
            try {
                JSONArray share = new JSONArray();
                strategy.allocate("group", (String) asked, queues, ids).forEach(queue -> share.add(Driver.describe(queue)));
                shares.add(JSONObject.of("queues", share));
            } catch (IllegalArgumentException refused) {
                shares.add(JSONObject.of("error", refused.getMessage()));
            }
        }
        JSONArray sorted = new JSONArray();
        queues.forEach(queue -> sorted.add(Driver.describe(queue)));
        return JSONObject.of("name", strategy.getName(), "queues", sorted, "client_ids", ids, "shares", shares);
    }
}
