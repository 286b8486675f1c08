"""Schema registries: bodies that begin with a schema's id, Confluent's and RocketMQ's.

May import what `bodies` may, and the codecs of `bodies`. Begin with `reading`: which schema bodies are read
as. `client` asks a registry, `wire` parses the header before a body, `codec` decodes it.
"""
