"""What the services ask of brokers and name servers."""
