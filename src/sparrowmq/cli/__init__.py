"""The command `sparrow`.

Servers, Spark and other large packages are imported by the command that needs them, when it runs. Next to the
rooms are `start` (the entry point), `main` (the tree of commands) and `checks` (`sparrow test`). The rooms:

    base          options, output, times, identity, calls of a coordinator
    servers       commands that run servers
    cluster       brokers, topics, groups, access, holds
    messages      sending, consuming, looking up, dead letters, traces
    coordinator   commands that ask a coordinator
    pipes         commands on Spark
    demo          `sparrow demo`

Begin with `main`. A command is one function; its docstring is its help.
"""
