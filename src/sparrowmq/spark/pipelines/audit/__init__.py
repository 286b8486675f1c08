"""`audit`: what was sent against what is stored against what was consumed.

May import: offsets, options, pipelines.archive, pipelines.common, pipelines.query.

Begin with `audit`: what users call. `settings` says what is asked for, `plan` what would be read,
`sides` what is read after what (`traces`, `messages`, `sent`), `comparison` joins, `verdict` judges.
"""
