"""Access control: who sends a request, which rights it needs, and whether it is allowed.

Owns the `gate` in front of the handlers, the table of `rights`, and the users and policies of RocketMQ 5.x
(`policies`, `auth_needs`, `auth_store`); `acl_import` makes them from accounts of 4.x.

May import: tables.
Begin with `rights`, one row for each request code, then `gate`.
"""
