"""Columns and bodies: schemas in Spark's terms, decoded bodies, rows that cannot be decoded.

May import: options.

Begin with `schema`: which columns a read gives and a write takes. `decoding` turns bodies into values by
the codecs beside it, `registry` reads them by a registry's schema, `bad_rows` sets bad ones aside.
"""
