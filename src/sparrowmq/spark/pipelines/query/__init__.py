"""What is stored as tables: `history`, `sql`, `store`; stretches of time, and records of traces.

May import: bodies, cluster, offsets, options, pipelines.archive, pipelines.common, read.

Begin with `history`: an archive and the live log as one table. `stored` reads a stretch of time for
`audit` and `report`.
"""
