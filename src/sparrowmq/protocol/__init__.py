"""Conversion between bytes and values: frames, headers, bodies, stored records. No sockets, loops, files or
clocks.
"""
