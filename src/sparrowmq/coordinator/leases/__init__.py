"""Who leads a service: one row with owner, epoch and expiry in the database's time (pmq:1.6)."""
