"""A gRPC proxy: RocketMQ's API for clients of version 5, in front of brokers that speak remoting.

It keeps only the settings of connected clients, and the messages whose invisible time it renews for them.
Another proxy needs neither: receipts and transaction ids contain everything that is needed to find a message
again. So several proxies may serve the same clients. The package has rooms:

    definition  the API's messages, read from our `.proto` file
    base        refusals with the API's codes, limits, checks, texts of receipts, conversion of messages. Pure
    cluster     routes, types of topics, settings of groups, and requests to brokers, over one client instance
    calls       the methods of the API

Begin with `server`, which starts everything, or `service`, which passes each call to its method.
"""
