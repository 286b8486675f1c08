"""`backfill`: a long span of topics, window by window and several at once, with a ledger that resumes.

May import: bodies, offsets, options, pipelines.archive, pipelines.common.

Begin with `job`: what users call. `windows` cuts, `settings` has the settings, `ledger` stores the plan and
the finished windows.
"""
