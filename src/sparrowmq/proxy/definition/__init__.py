"""The definition of RocketMQ's gRPC API (`messaging_v2.proto`), and its messages as Python classes.

May import: no other room.

Begin with `messages`.
"""
