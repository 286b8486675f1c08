"""TLS and plain connections on the proxy's one port."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator

import grpc.aio
import pytest
from tests.proxy.rig import ApiClient, connected, message, running
from tests.support import run

from sparrowmq.proxy.definition.messages import Code
from sparrowmq.testing import LocalCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running_cluster:
        running_cluster.create_topic("t")
        yield running_cluster


def certificate(port: int) -> str:
    """The certificate that a port offers, with HTTP/2 negotiated."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        assert secured.selected_alpn_protocol() == "h2"
        found = secured.getpeercert(binary_form=True)
        assert found is not None
        return ssl.DER_cert_to_PEM_cert(found)


def test_plain_and_tls_connections_share_the_port(cluster: LocalCluster) -> None:
    async def main() -> None:
        async with running(cluster.namesrv) as proxy:
            pem = await asyncio.to_thread(certificate, proxy.port)
            trusted = grpc.ssl_channel_credentials(pem.encode())
            names = (("grpc.ssl_target_name_override", "localhost"),)
            async with (
                grpc.aio.secure_channel(proxy.address, trusted, options=names) as channel,
                connected(proxy.address) as plain,
            ):
                secured = ApiClient(channel, "secured")
                assert (await plain.send(message("t"))).status.code == Code.OK
                body = bytes(2 * 1024 * 1024)
                assert (await secured.send(message("t", body))).status.code == Code.OK

    run(main())


def test_plain_connection_is_refused_where_tls_is_required(cluster: LocalCluster) -> None:
    async def main() -> None:
        async with (
            running(cluster.namesrv, tls_server_mode="enforcing") as proxy,
            connected(proxy.address) as plain,
        ):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await plain.send(message("t"))
            assert raised.value.code() == grpc.StatusCode.UNAVAILABLE

    run(main())


def test_tls_handshake_is_refused_without_tls(cluster: LocalCluster) -> None:
    async def main() -> None:
        async with running(cluster.namesrv, tls_server_mode="disabled") as proxy:
            channel = grpc.aio.secure_channel(proxy.address, grpc.ssl_channel_credentials())
            async with channel, connected(proxy.address) as plain:
                with pytest.raises(grpc.aio.AioRpcError):
                    await ApiClient(channel, "c").send(message("t"))
                assert (await plain.send(message("t"))).status.code == Code.OK

    run(main())
