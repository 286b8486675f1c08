"""Batch and streaming reads: from a cluster's queues, or from the files of a store directory.

May import: bodies, cluster, offsets, options.

Begin with `reader` (batches) and `stream` (streams): what Spark calls. On the driver `follow` decides
batch by batch, `marks` compares what was read with what is stored, and `lookup` asks the cluster; in a task
`fetch` pulls.
"""
