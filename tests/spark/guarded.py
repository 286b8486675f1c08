"""A cluster that lets nobody in without an account, and speaks TLS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.certificates import Authority, tls_properties

import sparrowmq as mq
from sparrowmq.testing import LocalCluster


@dataclass(frozen=True)
class Guarded:
    """The cluster, its one account, and the authority that its clients trust."""

    cluster: LocalCluster
    ca: Path
    user: str
    password: str

    @property
    def access(self) -> dict[str, str]:
        """Options of a source or a sink, but for the name server."""
        return {"tls": "true", "tlsCa": str(self.ca), "accessKey": self.user, "secretKey": self.password}

    def options(self, **more: str) -> dict[str, str]:
        """All that a source or a sink needs."""
        return {"nameServer": self.cluster.namesrv, **self.access, **more}

    def admin(self) -> mq.Admin:
        """A client that may do everything, not started yet."""
        return mq.Admin(settings=mq.ClientSettings(**self._client))

    def producer(self, group: str) -> mq.Producer:
        """The same for a producer."""
        return mq.Producer(group, settings=mq.ProducerSettings(**self._client))

    def consumer(self, group: str) -> mq.PullConsumer:
        """The same for a consumer."""
        return mq.PullConsumer(group, settings=mq.PullSettings(**self._client))

    @property
    def _client(self) -> dict[str, object]:
        return {
            "namesrv": self.cluster.namesrv,
            "access_key": self.user,
            "secret_key": self.password,
            "tls": True,
            "tls_ca": self.ca,
        }


@contextmanager
def guarded(directory: Path, user: str, password: str) -> Iterator[Guarded]:
    """A running cluster with one account; its files are kept in `directory`."""
    authority = Authority(directory)
    pair = authority.sign("server")
    config = tls_properties(
        directory,
        server__certPath=pair.cert,
        server__keyPath=pair.key,
        client__authServer="true",
        client__trustCertPath=authority.cert,
    )
    with LocalCluster(
        authentication_enabled=True,
        authorization_enabled=True,
        init_authentication_user=f'{{"username":"{user}","password":"{password}"}}',
        tls_config_file=config,
        use_tls=True,
    ) as cluster:
        yield Guarded(cluster, authority.cert, user, password)
