"""Records: the audit log, and the services' latest findings.

May import: database.
Begin with `audit`: every change has its entry in the transaction of the change.
"""
