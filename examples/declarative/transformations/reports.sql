-- What came on each day, for each topic.
CREATE MATERIALIZED VIEW daily_report AS
SELECT date, topic, count(*) AS messages, sum(length(body)) AS bytes, max(store_timestamp) AS latest
FROM messages
GROUP BY date, topic;

-- What is missing in the table, or there twice, for each queue: nothing, or the table lost something.
CREATE MATERIALIZED VIEW audit AS
SELECT
  topic, broker, queue_id,
  max(queue_offset) - min(queue_offset) + 1 - count(DISTINCT queue_offset) AS missing,
  count(*) - count(DISTINCT queue_offset) AS duplicates
FROM messages
GROUP BY topic, broker, queue_id;

CREATE MATERIALIZED VIEW sales AS
SELECT region, count(*) AS orders, sum(amount) AS amount
FROM orders
GROUP BY region;
