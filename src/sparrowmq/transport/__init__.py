"""Sockets: servers and clients that exchange frames. They do not know what a request means.

`Server` splits the bytes of its connections into frames and passes each chunk of them to a handler;
`CommandHandler` is the general handler, which dispatches by request code; `RemotingClient` keeps one
connection per address, matches answers to calls and serves the requests a broker sends to its clients.
"""
