"""The broker: request handlers over a store, on one event loop.

All state of a broker is touched on its loop only, so nothing here takes a lock. `chunk` sorts what one read
from a socket brought; `sending` and `pulling` are the hot paths; everything else goes through handlers keyed
by request code.
"""
