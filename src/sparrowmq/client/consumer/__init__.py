"""What push and pull consumers share: unfinished messages, the pull loop, offsets, queues of a member.

Owns `ProcessQueue` (messages of one queue that are not finished), the `pull_loop`, decoding, offset stores,
rebalance, locks of queues, `membership`, managed groups, dynamic settings, and what brokers ask of consumers.

May import: base, cluster.
Begin with `process_queue`, then `pull_loop`.
"""
