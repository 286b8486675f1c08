"""The HTTP API: every change goes through here, checked on the server and audited in its own transaction."""
