"""`report`: each day's topics, groups, lag, sizes and key skew; `take_snapshot`: groups' offsets.

May import: bodies, cluster, pipelines.common, pipelines.query.

Begin with `report`: what users call. `settings` says what is asked for, `tables` counts, `page` shows
it, `snapshots` keeps how far groups were.
"""
