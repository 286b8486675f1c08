"""Files: all file operations of servers and clients go through `sparrowmq.files.disk`."""
