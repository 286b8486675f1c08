"""HTTP/2 as gRPC uses it, on the connections of `transport`: frames, header blocks, streams, calls.

May import: no other room.

Begin with `connection`; `calls` is what the methods of the API see.
"""
