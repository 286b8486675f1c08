"""POP on the wire and in the store: headers, receipts, and the records of the revive topic (broker:13).

Everything has RocketMQ's form, so that a broker of either kind continues with what the other wrote.
"""
