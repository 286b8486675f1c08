"""Groups of brokers that have the same log, and which of them is the master.

May import: database, records.

`decisions` chooses the master and the orders for the brokers; it is pure. `table` stores the groups and
people's requests in the database. `group_watch` asks the brokers of one group and carries out the decisions;
it reaches them through `remote_brokers`. `conditions` describes what is wrong with a group.
"""
