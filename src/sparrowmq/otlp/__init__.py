"""Figures of servers, sent to an OpenTelemetry collector (OTLP over gRPC).

Needs `pip install 'sparrowmq[otlp]'`; `runtime` imports this package only when `metricsExporterType` is
`OTLP_GRPC`. Begin with `sender`.
"""
