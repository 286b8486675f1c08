"""The Spark data source `rocketmq`: batch and streaming reads and writes in Arrow batches.

    options = {"nameServer": "127.0.0.1:9876", "subscribe": "orders"}
    orders = spark.readStream.format("rocketmq").options(**options).load()

Spark finds it by itself where the package is installed (module `pyspark_rocketmq`); `source.register` makes
it known under its second name `sparrowmq` as well. Needs pyspark, pyarrow and numpy: `pip install
'sparrowmq[spark]'`.
"""
