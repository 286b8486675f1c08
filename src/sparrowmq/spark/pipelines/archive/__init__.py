"""`archive`: topics to Parquet, Delta Lake or Iceberg, every message exactly once.

May import: bodies, offsets, options, pipelines.common.

Begin with `archive`: what users call. `settings` says what is asked for, `plan` what would be done,
`job` does it; `location` says where an archive lives: `local`, `remote`, or a `table` (`delta`,
`iceberg`).
"""
