// The Node.js side of the interop tests: commands as JSON lines in, answers as JSON lines out.
'use strict';

const readline = require('readline');
const { Consumer, Message, Producer } = require('ali-ons');

const quiet = { info() {}, debug() {}, warn: (...said) => console.error(...said), error: (...said) => console.error(...said) };
const consumers = new Map();

function options(asked) {
  return {
    nameSrv: asked.namesrv,
    httpclient: {}, // only asked for where name servers are found by HTTP
    clientIP: '127.0.0.1',
    accessKeyId: asked.accessKey,
    accessKeySecret: asked.secretKey,
    // Clients of one name share connections, wherever their name servers are.
    instanceName: `${process.pid}-${asked.namesrv.split(':')[1]}-${asked.secretKey || ''}`,
    pollNameServerInteval: 500,
    heartbeatBrokerInterval: 500,
    rebalanceInterval: 500,
    persistConsumerOffsetInterval: 500,
    logger: quiet,
  };
}

async function send(asked) {
  const producer = new Producer({ ...options(asked), producerGroup: asked.group, retryTimesWhenSendFailed: 0 });
  producer.on('error', error => console.error(error));
  await producer.ready();
  const sent = [];
  for (const each of asked.messages) {
    const message = each.tags ? new Message(asked.topic, each.tags, each.body) : new Message(asked.topic, each.body);
    if (each.keys) message.keys = each.keys.split(' ');
    if (each.delay) message.delayTimeLevel = each.delay;
    if (each.shard) message.shardingKey = each.shard;
    Object.assign(message.properties, each.properties);
    const result = await producer.send(message);
    sent.push({ status: result.sendStatus, id: result.msgId, queue: result.messageQueue.queueId, offset: result.queueOffset });
  }
  await producer.close();
  return sent;
}

async function start(asked) {
  const consumer = new Consumer({ ...options(asked), consumerGroup: asked.group, pullTimeDelayMillsWhenException: 200 });
  const got = [];
  const failed = new Set();
  consumers.set(asked.consumer, { consumer, got });
  consumer.on('error', error => console.error(error));
  const expression = asked.sql ? { expressionType: 'SQL92', subString: asked.sql } : asked.expression;
  consumer.subscribe(asked.topic, expression, async message => {
    const body = message.body.toString();
    if (asked.failFirst && !failed.has(body)) {
      failed.add(body);
      return Consumer.ACTION_RETRY;
    }
    got.push({
      body,
      tags: message.tags || null,
      keys: message.keys || null,
      id: message.msgId,
      queue: message.queueId,
      offset: Number(message.queueOffset),
      tries: message.reconsumeTimes,
      color: message.properties.color || null,
    });
  });
  await consumer.ready();
}

const operations = {
  send,
  start,
  got: asked => consumers.get(asked.consumer).got,
  async stop(asked) {
    const { consumer, got } = consumers.get(asked.consumer);
    consumers.delete(asked.consumer);
    await consumer.close();
    return got;
  },
};

// The client emits errors of its own default producer, too, which nobody can listen to.
process.on('uncaughtException', error => console.error(error));
process.on('unhandledRejection', error => console.error(error));
const lines = readline.createInterface({ input: process.stdin });
lines.on('line', async line => {
  const asked = JSON.parse(line);
  let answer;
  try {
    answer = { result: (await operations[asked.op](asked)) ?? null };
  } catch (error) {
    answer = { error: String(error.message) };
  }
  process.stdout.write(JSON.stringify({ id: asked.id, ...answer }) + '\n');
});
lines.on('close', () => process.exit(0));
