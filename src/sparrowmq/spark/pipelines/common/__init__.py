"""What all pipelines share: steps and progress, files, queries, reads and writes of topics.

May import: spark, cluster, metrics, offsets, options, read, write.

Begin with `steps` (what a pipeline will do), `watch` (what it does) and `queries` (how one streaming
query is driven to its end). Notes are kept by `files`, `commits` and `directories`.
"""
