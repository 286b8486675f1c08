"""SQL92 filters: expressions over the properties of a message (broker:14.2).

    expression = parse("a BETWEEN 1 AND 5 AND region IN ('eu', 'us')")
    predicate = Predicate(expression)
    predicate.matches({"a": "3", "region": "eu"})

`lexer` makes tokens, `parser` a tree of `syntax`, `evaluate` closures that compute it with Java's types.
"""

from sparrowmq.protocol.sql92.parser import EXPRESSION_CHARS_MAX, NESTING_MAX, parse
from sparrowmq.protocol.sql92.predicate import Predicate, compile_sql

__all__ = ["EXPRESSION_CHARS_MAX", "NESTING_MAX", "Predicate", "compile_sql", "parse"]
