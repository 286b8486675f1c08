"""Access control: who sends a request, which rights it needs, and whether it is allowed.

Owns the `gate` in front of the handlers, the table of `rights`, and the accounts, users and policies of
RocketMQ 4.x (`plain_acl`, `acl_files`) and 5.x (`policies`, `auth_needs`, `auth_store`).

May import: tables.
Begin with `rights`, one row for each request code, then `gate`.
"""
