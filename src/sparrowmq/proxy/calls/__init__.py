"""The methods of the API, one class for each subject; each method takes the caller and the request.

May import: base, cluster, definition.

Begin with `sending` or `receiving`.
"""
