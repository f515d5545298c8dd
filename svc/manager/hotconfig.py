"""
The configuration that may change while the manager runs: a ConfigMap, and a Secret for what nobody else may read.

Both are put in force together, or neither is. A watch that fails begins again after five seconds.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from svc import settings
from svc.errors import SvcError
from svc.kube.cache import Cache
from svc.kube.client import Client
from svc.kube.kinds import CONFIG_MAPS, SECRETS
from svc.manager.config import ClusterSettings
from svc.manager.metrics import ManagerMetrics, Source
from svc.manager.metricspage.tls import CERTIFICATE, CLIENTS, KEY, GivenTls, read_tls
from svc.naming import MANAGER_CONFIG

#: The key of the ConfigMap.
CLUSTER: Final = "cluster.yaml"
RESTART_SECONDS: Final = 5.0


class ConfigurationMissing(SvcError):
    """there is no configuration: neither cluster in the file nor a ConfigMap {namespace}/{name}"""

    reason = "manager_config_missing"
    hint = "make it with the key cluster.yaml, or write cluster into the file of the manager"


class ConfigurationKeyUnknown(SvcError):
    """{where} has a key that is not known: {key}"""

    reason = "manager_config_key"
    hint = "a ConfigMap has the key cluster.yaml, a Secret metrics.crt, metrics.key and metrics-clients.crt"


class ManagerConfiguration(NamedTuple):
    """What is in force."""

    cluster: ClusterSettings
    tls: GivenTls


class HotConfiguration:
    """
    Follows the ConfigMap and the Secret.

    Args:
        namespace: theirs.
        from_file: what is in force where there is no ConfigMap.
        configured: receives what is in force from now on.
        refused: receives why one of them is refused; what was in force stays.
        failed: receives why a watch ended.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        from_file: ClusterSettings | None,
        metrics: ManagerMetrics,
        configured: Callable[[ManagerConfiguration], object],
        refused: Callable[[SvcError], object],
        failed: Callable[[SvcError], object],
    ) -> None:
        self._namespace = namespace
        self._from_file = from_file
        self._metrics = metrics
        self._configured = configured
        self._refused = refused
        self._failed = failed
        self._seen: object = None
        self._config_maps = self._cache(client, CONFIG_MAPS, "configmap")
        self._secrets = self._cache(client, SECRETS, "secret")

    @property
    def caches(self) -> tuple[Cache, Cache]:
        """What it follows."""
        return self._config_maps, self._secrets

    def use_file(self, from_file: ClusterSettings | None) -> None:
        """Take another configuration of the file."""
        self._from_file = from_file
        self._check()

    def _cache(self, client: Client, kind: Any, source: Source) -> Cache:
        def failed(error: SvcError) -> None:
            self._metrics.watch_failed(source)
            self._failed(error)

        return Cache(
            client,
            kind,
            self._check,
            failed,
            namespace=self._namespace,
            fields=f"metadata.name={MANAGER_CONFIG}",
            pause=lambda _failures: RESTART_SECONDS,
        )

    def _check(self) -> None:
        """Put in force what is there, if all of it is right and it is not in force."""
        if not all(each.synced.is_set() for each in self.caches):
            return
        config_map, secret = self._data(self._config_maps), self._data(self._secrets)
        if (config_map, secret, self._from_file) == self._seen:
            return
        self._seen = config_map, secret, self._from_file
        cluster = self._read("configmap", lambda: self._cluster(config_map))
        tls = self._read("secret", lambda: self._tls(secret))
        if cluster is not None and tls is not None:
            self._metrics.reloaded()
            self._configured(ManagerConfiguration(cluster, tls))

    def _read(self, source: Source, read: Callable[[], Any]) -> Any:
        """Return what is read, None where it is refused."""
        try:
            return read()
        except SvcError as error:
            self._metrics.reload_refused(source)
            self._refused(error)
            return None

    def _data(self, cache: Cache) -> Mapping[str, str] | None:
        found = cache.objects.get((self._namespace, MANAGER_CONFIG))
        return None if found is None else found.get("data") or {}

    def _cluster(self, data: Mapping[str, str] | None) -> ClusterSettings:
        where = f"ConfigMap {self._namespace}/{MANAGER_CONFIG}"
        if data is None:
            if self._from_file is None:
                raise ConfigurationMissing(namespace=self._namespace, name=MANAGER_CONFIG)
            return self._from_file
        _check_keys(data, {CLUSTER}, where)
        return settings.parse(data.get(CLUSTER, ""), ClusterSettings, f"{where}, {CLUSTER}")

    def _tls(self, data: Mapping[str, str] | None) -> GivenTls:
        where, content = f"Secret {self._namespace}/{MANAGER_CONFIG}", data or {}
        _check_keys(content, {CERTIFICATE, KEY, CLIENTS}, where)
        return read_tls({key: base64.b64decode(value) for key, value in content.items()}, where)


def _check_keys(data: Mapping[str, str], known: set[str], where: str) -> None:
    unknown = sorted(set(data) - known)
    if unknown:
        raise ConfigurationKeyUnknown(where=where, key=unknown[0])
