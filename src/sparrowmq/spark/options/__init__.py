"""Options of reads and writes as typed values, and the differences between Spark versions.

May import: no other room.

Begin with `table`: each option is declared there once, with its name, default and unit. `values` parses their
texts, `kafka_names` has the corresponding names of Spark's Kafka source.
"""
