"""The HTTP server of all processes, and the operators' port of brokers and name servers. Needs uvicorn.

Begin with `serving`, the server with its deadlines and limits. `operators` serves `/metrics`, `/health` and
`/ready` with it. Their content comes from the brokers and name servers, see
`core.figures.exposition.Operated`.
"""
