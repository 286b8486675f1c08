// RocketMQ's client for Node.js (gRPC): commands as JSON lines in, answers out; see ../README.md.
'use strict';

const readline = require('readline');
const { ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');

// The client exports neither of these numbers of the API.
const FILTER_SQL = 2;
const COMMIT = 1;
const AWAIT_MS = 5000;

const quiet = {
  info() {},
  debug() {},
  warn: (...said) => console.error(...said),
  error: (...said) => console.error(...said),
};
const producers = new Map();
const consumers = new Map();

function options(asked) {
  const found = { endpoints: asked.endpoints, namespace: '', sslEnabled: asked.tls === true, logger: quiet };
  if (asked.accessKey) {
    found.sessionCredentials = { accessKey: asked.accessKey, accessSecret: asked.secretKey };
  }
  return found;
}

async function producerOf(asked) {
  const key = [ asked.endpoints, asked.topic, asked.accessKey, asked.secretKey ].join(' ');
  if (!producers.has(key)) {
    const made = new Producer({ ...options(asked), topics: [ asked.topic ], checker: { check: async () => COMMIT } });
    await made.startup();
    producers.set(key, made);
  }
  return producers.get(key);
}

function messageOf(asked, each) {
  const message = { topic: asked.topic, body: each.size ? Buffer.alloc(each.size) : Buffer.from(each.body) };
  if (each.tag) message.tag = each.tag;
  if (each.keys) message.keys = each.keys;
  if (each.group) message.messageGroup = each.group;
  if (each.deliverAt) message.deliveryTimestamp = new Date(each.deliverAt * 1000);
  if (each.properties) message.properties = new Map(Object.entries(each.properties));
  return message;
}

async function send(asked) {
  const producer = await producerOf(asked);
  const receipts = [];
  for (const each of asked.messages) {
    const receipt = await producer.send(messageOf(asked, each));
    receipts.push({ id: receipt.messageId, recallHandle: receipt.recallHandle });
  }
  return receipts;
}

async function transact(asked) {
  const producer = await producerOf(asked);
  const transaction = producer.beginTransaction();
  const receipt = await producer.send(messageOf(asked, { body: asked.body }), transaction);
  if (asked.how === 'commit') await transaction.commit();
  if (asked.how === 'rollback') await transaction.rollback();
  return receipt.messageId;
}

async function recall(asked) {
  const producer = await producerOf(asked);
  const receipt = await producer.recallMessage(asked.topic, asked.handle);
  return receipt.messageId;
}

function subscriptions(asked) {
  const expression = asked.sql ? new FilterExpression(asked.sql, FILTER_SQL) : new FilterExpression(asked.expression || '*');
  return new Map([[ asked.topic, expression ]]);
}

function shown(message) {
  return {
    body: message.body.toString(),
    tag: message.tag || '',
    keys: [ ...message.keys ].sort(),
    id: message.messageId,
    group: message.messageGroup || '',
    properties: Object.fromEntries(message.properties),
    attempt: message.deliveryAttempt,
  };
}

async function subscribe(asked) {
  const consumer = new SimpleConsumer({
    ...options(asked), consumerGroup: asked.group, subscriptions: subscriptions(asked), awaitDuration: AWAIT_MS,
  });
  await consumer.startup();
  consumers.set(asked.consumer, { consumer, kept: [], got: [] });
}

// One receive; each message is acknowledged, or hidden for `hide` seconds, or kept for `settle`.
async function receive(asked) {
  const { consumer, kept } = consumers.get(asked.consumer);
  const found = await consumer.receive(asked.most || 32, (asked.invisible || 30) * 1000);
  for (const message of found) {
    if (asked.hide) await consumer.changeInvisibleDuration(message, asked.hide * 1000);
    else if (asked.keep) kept.push(message);
    else await consumer.ack(message);
  }
  return found.map(shown);
}

async function settle(asked) {
  const { consumer, kept } = consumers.get(asked.consumer);
  for (const message of kept.splice(0)) await consumer.ack(message);
}

// Acknowledges what is kept with another handle.
async function forge(asked) {
  for (const message of consumers.get(asked.consumer).kept) message.receiptHandle = asked.handle;
  await settle(asked);
}

async function push(asked) {
  const got = [];
  const failed = new Set();
  const messageListener = {
    async consume(message) {
      const fails = asked.failAlways || (asked.failFirst && !failed.has(message.messageId));
      failed.add(message.messageId);
      if (asked.failAlways || !fails) got.push(shown(message));
      return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    },
  };
  const consumer = new PushConsumer({
    ...options(asked), consumerGroup: asked.group, subscriptions: subscriptions(asked), messageListener,
  });
  await consumer.startup();
  consumers.set(asked.consumer, { consumer, kept: [], got });
}

async function stop(asked) {
  const { consumer } = consumers.get(asked.consumer);
  consumers.delete(asked.consumer);
  await consumer.shutdown();
}

const operations = {
  send, transact, recall, subscribe, receive, settle, forge, push, stop,
  got: asked => consumers.get(asked.consumer).got,
};

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const asked = JSON.parse(line);
    const answer = { id: asked.id };
    try {
      answer.result = await operations[asked.op](asked);
    } catch (error) {
      const causes = [];
      for (let each = error; each; each = each.cause) {
        causes.push(`${each.name}: ${each.message}`);
        if (typeof each.code === 'number') answer.code = each.code;
      }
      answer.error = causes.join('; ');
    }
    console.log(JSON.stringify(answer));
  }
  process.exit(0); // the client's timers may still run
}

main();
