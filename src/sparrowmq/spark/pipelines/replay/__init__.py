"""`replay`: messages of an archive, the live log or dead letters to a topic again, none twice.

May import: bodies, offsets, options, pipelines.archive, pipelines.common.

Begin with `replay`: what users call. `settings` says what is asked for, `plan` what would be done,
`settled` which offsets; `job` sends the `rows`, `directory` keeps what was settled and how far it is.
"""
