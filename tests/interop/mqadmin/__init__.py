"""Apache's `mqadmin`, command by command, against Apache's servers and ours; begin with `commands`."""
