"""Bytes to values and back: frames, headers, bodies, stored records. No sockets, loops, files or clocks."""
