"""Who may do what: people, their roles, passwords and tokens."""
