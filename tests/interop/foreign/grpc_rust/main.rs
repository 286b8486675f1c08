//! RocketMQ's Rust client (gRPC): commands as JSON lines in, answers out; see ../README.md.

use std::collections::HashMap;
use std::io::BufRead;
use std::time::Duration;

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::error::ClientError;
use rocketmq::model::common::{Endpoints, FilterExpression, FilterType};
use rocketmq::model::message::{AckMessageEntry, Message, MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};

struct Consumer {
    simple: SimpleConsumer,
    kept: Vec<MessageView>,
}

/// A message with another receipt handle.
struct Forged {
    message: MessageView,
    handle: String,
}

impl AckMessageEntry for Forged {
    fn topic(&self) -> String {
        AckMessageEntry::topic(&self.message)
    }

    fn message_id(&self) -> String {
        AckMessageEntry::message_id(&self.message)
    }

    fn receipt_handle(&self) -> String {
        self.handle.clone()
    }

    fn endpoints(&self) -> &Endpoints {
        self.message.endpoints()
    }
}

#[derive(Default)]
struct Driver {
    producers: HashMap<String, Producer>,
    consumers: HashMap<String, Consumer>,
}

struct Failure {
    text: String,
    /// The name of the API's code.
    code: Option<String>,
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let code = error.context().iter().find(|(name, _)| *name == "code");
        Failure {
            text: format!("{error:?}"),
            code: code.map(|(_, value)| value.clone()),
        }
    }
}

fn refused(text: String) -> Failure {
    Failure { text, code: None }
}

fn text<'a>(asked: &'a Value, name: &str) -> &'a str {
    asked[name].as_str().unwrap_or("")
}

fn client_option(asked: &Value) -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(text(asked, "endpoints"));
    option.set_enable_tls(false);
    // It is the deadline of a receive as well: Apache's proxy refuses one that is less than 5 s away when it gets it.
    option.set_long_polling_timeout(Duration::from_secs(8));
    if !text(asked, "accessKey").is_empty() {
        option.set_access_key(text(asked, "accessKey"));
        option.set_secret_key(text(asked, "secretKey"));
    }
    option
}

fn message_of(asked: &Value, each: &Value, half: bool) -> Result<impl Message, ClientError> {
    let body = match each["size"].as_u64() {
        Some(size) => vec![0; size as usize],
        None => text(each, "body").as_bytes().to_vec(),
    };
    let mut builder = MessageBuilder::builder().set_topic(text(asked, "topic")).set_body(body);
    if !text(each, "tag").is_empty() {
        builder = builder.set_tag(text(each, "tag"));
    }
    if let Some(keys) = each["keys"].as_array() {
        builder = builder.set_keys(keys.iter().filter_map(|key| key.as_str()).collect());
    }
    if !text(each, "group").is_empty() {
        builder = builder.set_message_group(text(each, "group"));
    }
    if let Some(seconds) = each["deliverAt"].as_i64() {
        builder = builder.set_delivery_timestamp(seconds);
    }
    if let Some(properties) = each["properties"].as_object() {
        let pairs = properties.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)));
        builder = builder.set_properties(pairs.collect::<HashMap<_, _>>());
    }
    if half {
        builder = builder.enable_transaction();
    }
    builder.build()
}

fn shown(message: &MessageView) -> Value {
    let mut keys = message.keys().to_vec();
    keys.sort();
    json!({
        "body": String::from_utf8_lossy(message.body()),
        "tag": message.tag().unwrap_or(""),
        "keys": keys,
        "id": message.message_id(),
        "group": message.message_group().unwrap_or(""),
        "properties": message.properties(),
        "attempt": message.delivery_attempt(),
    })
}

fn expression(asked: &Value) -> FilterExpression {
    match (text(asked, "sql"), text(asked, "expression")) {
        ("", "") => FilterExpression::new(FilterType::Tag, "*"),
        ("", tags) => FilterExpression::new(FilterType::Tag, tags),
        (sql, _) => FilterExpression::new(FilterType::Sql, sql),
    }
}

impl Driver {
    async fn producer(&mut self, asked: &Value) -> Result<&Producer, Failure> {
        let key = ["endpoints", "topic", "accessKey", "secretKey"].map(|name| text(asked, name)).join(" ");
        if !self.producers.contains_key(&key) {
            let mut option = ProducerOption::default();
            option.set_topics(vec![text(asked, "topic")]);
            let checker = Box::new(|_: String, _: MessageView| TransactionResolution::COMMIT);
            let mut made = Producer::new_transaction_producer(option, client_option(asked), checker)?;
            made.start().await?;
            self.producers.insert(key.clone(), made);
        }
        Ok(&self.producers[&key])
    }

    async fn send(&mut self, asked: &Value) -> Result<Value, Failure> {
        let producer = self.producer(asked).await?;
        let mut ids = Vec::new();
        for each in asked["messages"].as_array().into_iter().flatten() {
            let receipt = producer.send(message_of(asked, each, false)?).await?;
            ids.push(json!({"id": receipt.message_id(), "recallHandle": null}));
        }
        Ok(Value::Array(ids))
    }

    /// All messages with one request.
    async fn batch(&mut self, asked: &Value) -> Result<Value, Failure> {
        let producer = self.producer(asked).await?;
        let mut messages = Vec::new();
        for each in asked["messages"].as_array().into_iter().flatten() {
            messages.push(message_of(asked, each, false)?);
        }
        let receipts = producer.batch_send(messages).await?;
        Ok(receipts.iter().map(|receipt| json!({"id": receipt.message_id()})).collect())
    }

    async fn transact(&mut self, asked: &Value) -> Result<Value, Failure> {
        let producer = self.producer(asked).await?;
        let message = message_of(asked, &json!({"body": asked["body"]}), true)?;
        let transaction = producer.send_transaction_message(message).await?;
        let id = transaction.message_id().to_string();
        match text(asked, "how") {
            "commit" => transaction.commit().await?,
            "rollback" => transaction.rollback().await?,
            _ => (),
        }
        Ok(json!(id))
    }

    async fn subscribe(&mut self, asked: &Value) -> Result<Value, Failure> {
        let mut option = SimpleConsumerOption::default();
        option.set_topics(vec![text(asked, "topic")]);
        option.set_consumer_group(text(asked, "group"));
        let mut simple = SimpleConsumer::new(option, client_option(asked))?;
        simple.start().await?;
        self.consumers.insert(text(asked, "consumer").to_string(), Consumer { simple, kept: Vec::new() });
        Ok(Value::Null)
    }

    fn consumer(&mut self, asked: &Value) -> Result<&mut Consumer, Failure> {
        let name = text(asked, "consumer");
        self.consumers.get_mut(name).ok_or_else(|| refused(format!("no consumer {name}")))
    }

    /// One receive; each message is acknowledged, or kept for `settle`.
    async fn receive(&mut self, asked: &Value) -> Result<Value, Failure> {
        let most = asked["most"].as_i64().unwrap_or(32) as i32;
        let invisible = Duration::from_secs(asked["invisible"].as_u64().unwrap_or(30));
        // The subscription is said with each receive in this client.
        let wanted = expression(asked);
        let topic = text(asked, "topic").to_string();
        let keep = asked["keep"].as_bool().unwrap_or(false);
        let consumer = self.consumer(asked)?;
        let mut all = Vec::new();
        for message in consumer.simple.receive_with(topic, &wanted, most, invisible).await? {
            all.push(shown(&message));
            if keep {
                consumer.kept.push(message);
            } else {
                consumer.simple.ack(&message).await?;
            }
        }
        Ok(Value::Array(all))
    }

    async fn settle(&mut self, asked: &Value) -> Result<Value, Failure> {
        let consumer = self.consumer(asked)?;
        for message in std::mem::take(&mut consumer.kept) {
            consumer.simple.ack(&message).await?;
        }
        Ok(Value::Null)
    }

    /// Acknowledges what is kept with another handle.
    async fn forge(&mut self, asked: &Value) -> Result<Value, Failure> {
        let handle = text(asked, "handle").to_string();
        let consumer = self.consumer(asked)?;
        for message in std::mem::take(&mut consumer.kept) {
            consumer.simple.ack(&Forged { message, handle: handle.clone() }).await?;
        }
        Ok(Value::Null)
    }

    async fn stop(&mut self, asked: &Value) -> Result<Value, Failure> {
        if let Some(consumer) = self.consumers.remove(text(asked, "consumer")) {
            consumer.simple.shutdown().await?;
        }
        Ok(Value::Null)
    }

    async fn answer(&mut self, asked: &Value) -> Result<Value, Failure> {
        match text(asked, "op") {
            "send" => self.send(asked).await,
            "batch" => self.batch(asked).await,
            "transact" => self.transact(asked).await,
            "subscribe" => self.subscribe(asked).await,
            "receive" => self.receive(asked).await,
            "settle" => self.settle(asked).await,
            "forge" => self.forge(asked).await,
            "stop" => self.stop(asked).await,
            other => Err(refused(format!("no operation {other}"))),
        }
    }
}

#[tokio::main]
async fn main() {
    let mut driver = Driver::default();
    let (lines, mut waiting) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                break;
            }
        }
    });
    while let Some(line) = waiting.recv().await {
        let asked: Value = serde_json::from_str(&line).expect("a line of JSON");
        let answer = match driver.answer(&asked).await {
            Ok(result) => json!({"id": asked["id"], "result": result}),
            Err(Failure { text, code }) => json!({"id": asked["id"], "error": text, "code": code}),
        };
        println!("{answer}");
    }
    std::process::exit(0); // the client's tasks may still run
}
