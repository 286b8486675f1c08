import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Sends at a steady rate until it is killed: {@code Feed BROKER TOPIC RATE SIZE}. */
public final class Feed {
    private static final long TICK_MS = 5;

    public static void main(String[] args) throws InterruptedException {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("acks", "1");
        settings.put("linger.ms", "0");
        double perNano = Double.parseDouble(args[2]) / 1e9;
        byte[] body = new byte[Integer.parseInt(args[3])];
        var serializer = new ByteArraySerializer();
        try (var producer = new KafkaProducer<byte[], byte[]>(settings, serializer, serializer)) {
            long start = System.nanoTime();
            long sent = 0;
            while (true) {
                for (long due = (long) ((System.nanoTime() - start) * perNano); sent < due; sent++) {
                    producer.send(new ProducerRecord<>(args[1], body));
                }
                Thread.sleep(TICK_MS);
            }
        }
    }
}
