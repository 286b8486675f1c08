"""`mirror`: topics of one cluster to another, and consumer groups with them.

May import: cluster, offsets, options, pipelines.common, write.

Begin with `mirror`: what users call. `plan` says what would be done, `job` does it. `queue_map` says
which queue goes where, `offset_map` which offset is which, `group_offsets` where a group goes on,
`group_sync` sets it there; `state` is kept in `directory`.
"""
