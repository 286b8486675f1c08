"""The brokers behind the proxy: routes, types of topics, settings of groups, and one method for each request.

May import: base, definition.

Begin with `brokers`.
"""
