// Kafka's own producer and consumer behind a pipe, as a user would write them: told how many events, says when it began and when it had all.
//
// Times are System.nanoTime(), which is the monotonic clock that Python reads too.
// Compiled by Janino at start, which every Java can run and which knows neither lambdas nor try-with-resources.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Collections;
import java.util.Iterator;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

public class KafkaSides {
    static final int PAYLOADS = 10000;
    static final long TICK_NS = 1000000L;
    static PrintStream answers;

    public static void main(String[] words) throws Exception {
        answers = new PrintStream(System.out, true);
        System.setOut(System.err); // whatever else is printed must not end up among the answers
        String role = words[0];
        String broker = words[1];
        String topic = words[2];
        int number = Integer.parseInt(words[3]);
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        if (role.equals("make")) {
            make(broker, topic);
        } else if (role.equals("produce")) {
            produce(broker, topic, number, orders);
        } else if (role.equals("consume")) {
            consume(broker, topic, number, orders);
        } else if (role.equals("tick")) {
            tick(broker, topic, number, orders);
        } else {
            watch(broker, topic, orders);
        }
        Runtime.getRuntime().halt(0); // clients that are closed in good order take seconds
    }

    static Properties settings(String broker) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", broker);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        return settings;
    }

    static void make(String broker, String topic) throws Exception {
        AdminClient admin = AdminClient.create(settings(broker));
        admin.createTopics(Collections.singletonList(new NewTopic(topic, 1, (short) 1))).all().get();
        answers.println("ready");
    }

    static KafkaProducer producer(String broker, int lingerMs) {
        Properties settings = settings(broker);
        settings.put("acks", "all");
        settings.put("batch.size", "262144");
        settings.put("linger.ms", String.valueOf(lingerMs));
        settings.put("buffer.memory", "67108864");
        return new KafkaProducer(settings);
    }

    static void produce(String broker, String topic, int width, BufferedReader orders) throws Exception {
        KafkaProducer producer = producer(broker, 5);
        byte[][] payloads = new byte[PAYLOADS][width];
        Random random = new Random(1);
        for (int i = 0; i < PAYLOADS; i++) {
            random.nextBytes(payloads[i]);
        }
        producer.partitionsFor(topic);
        answers.println("ready");
        String line;
        while ((line = orders.readLine()) != null) {
            long count = Long.parseLong(line);
            answers.println(System.nanoTime());
            for (long i = 0; i < count; i++) {
                producer.send(new ProducerRecord(topic, payloads[(int) (i % PAYLOADS)]));
            }
            producer.flush();
            answers.println(System.nanoTime());
        }
    }

    static KafkaConsumer consumer(String broker, String topic) {
        Properties settings = settings(broker);
        settings.put("max.poll.records", "20000");
        settings.put("max.partition.fetch.bytes", "4194304");
        settings.put("enable.auto.commit", "false");
        KafkaConsumer consumer = new KafkaConsumer(settings);
        TopicPartition partition = new TopicPartition(topic, 0);
        consumer.assign(Collections.singletonList(partition));
        consumer.seekToEnd(Collections.singletonList(partition));
        consumer.position(partition);
        return consumer;
    }

    // A consumer with a connection and a thread of its own.
    static class Reader extends Thread {
        final LinkedBlockingQueue orders = new LinkedBlockingQueue();
        final LinkedBlockingQueue ends = new LinkedBlockingQueue();
        final KafkaConsumer consumer;

        Reader(String broker, String topic) {
            consumer = consumer(broker, topic);
            setDaemon(true);
        }

        public void run() {
            try {
                while (true) {
                    long left = ((Long) orders.take()).longValue();
                    while (left > 0) {
                        Iterator records = consumer.poll(Duration.ofSeconds(1)).iterator();
                        while (records.hasNext()) {
                            ((ConsumerRecord) records.next()).value();
                            left--;
                        }
                    }
                    ends.put(Long.valueOf(System.nanoTime()));
                }
            } catch (Throwable broken) {
                broken.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
        }
    }

    static void consume(String broker, String topic, int consumers, BufferedReader orders) throws Exception {
        Reader[] readers = new Reader[consumers];
        for (int i = 0; i < consumers; i++) {
            readers[i] = new Reader(broker, topic);
            readers[i].start();
        }
        answers.println("ready");
        String line;
        while ((line = orders.readLine()) != null) {
            for (int i = 0; i < consumers; i++) {
                readers[i].orders.put(Long.valueOf(line));
            }
            long last = 0;
            for (int i = 0; i < consumers; i++) {
                last = Math.max(last, ((Long) readers[i].ends.take()).longValue());
            }
            answers.println(last);
        }
    }

    static void tick(String broker, String topic, int width, BufferedReader orders) throws Exception {
        KafkaProducer producer = producer(broker, 0);
        producer.partitionsFor(topic);
        answers.println("ready");
        String line;
        while ((line = orders.readLine()) != null) {
            long count = Long.parseLong(line);
            long due = System.nanoTime();
            for (long i = 0; i < count; i++) {
                due += TICK_NS;
                LockSupport.parkNanos(due - System.nanoTime());
                byte[] payload = new byte[width];
                ByteBuffer.wrap(payload).putLong(System.nanoTime());
                producer.send(new ProducerRecord(topic, payload));
            }
            producer.flush();
            answers.println("done");
        }
    }

    static void watch(String broker, String topic, BufferedReader orders) throws Exception {
        KafkaConsumer consumer = consumer(broker, topic);
        answers.println("ready");
        String line;
        while ((line = orders.readLine()) != null) {
            int count = Integer.parseInt(line);
            StringBuilder delays = new StringBuilder();
            int seen = 0;
            while (seen < count) {
                ConsumerRecords records = consumer.poll(Duration.ofSeconds(1));
                long now = System.nanoTime();
                Iterator each = records.iterator();
                while (each.hasNext()) {
                    byte[] payload = (byte[]) ((ConsumerRecord) each.next()).value();
                    delays.append(now - ByteBuffer.wrap(payload).getLong()).append(' ');
                    seen++;
                }
            }
            answers.println(delays.toString().trim());
        }
    }
}
