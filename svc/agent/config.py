"""The configuration of the agent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from svc.naming import (
    CSI_DRIVER,
    DEFAULT_SPIFFE_SOCKET,
    PORT_AGENT_ADMIN,
    PORT_AGENT_METRICS,
    PQ_BUNDLE_FILE,
)
from svc.process.settings import DaemonSettings
from svc.process.values import (
    AbsolutePath,
    FilePath,
    Gid,
    ListenerName,
    MatcherText,
    OptionalAddress,
    RemoteAddress,
    SocketText,
    TrustDomainText,
    Uid,
    Upstream,
    Wait,
)
from svc.settings import HostPort, Items, Settings, ValueFormat, load

_KUBELET: Final = "/var/lib/kubelet"
#: No other user may read a key.
_KEY_MODES: Final = {"0400": 0o400, "0440": 0o440, "0600": 0o600, "0640": 0o640}


def _key_mode(value: object) -> int:
    # Without quotes, 600 is a decimal number in YAML; the octal mode is meant.
    text = f"{value:04d}" if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(text, str) and text in _KEY_MODES:
        return _KEY_MODES[text]
    raise ValueError('"0600" or "0400", or "0640" or "0440" for a group')


KeyMode = Annotated[
    int,
    BeforeValidator(_key_mode),
    ValueFormat(
        ", ".join(f'`"{each}"`' for each in sorted(_KEY_MODES)),
        {"enum": [*_KEY_MODES, *(int(each) for each in _KEY_MODES)]},
        lambda mode: f'"{mode:04o}"',
    ),
]


def _default_among(folders: dict[str, str]) -> dict[str, str]:
    if "" not in folders:
        raise ValueError('folders with the key "", for volumes without the attribute source')
    return folders


class CsiSettings(Settings):
    """The CSI driver that mounts the Workload API of the node into pods, and how the kubelet finds it."""

    driver: str = Field(CSI_DRIVER, pattern=r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$")
    """Its name."""
    nodeName: str | None = None
    """The name of the node; by default the variable `NODE_NAME`, else the host name."""
    socket: FilePath = f"{_KUBELET}/plugins/{CSI_DRIVER}/csi.sock"
    """Its socket."""
    endpoint: FilePath | None = None
    """The same socket as the kubelet sees it, where the path differs in the agent's container."""
    registration: FilePath = f"{_KUBELET}/plugins_registry"
    """The folder in which the kubelet looks for drivers."""
    pods: FilePath = f"{_KUBELET}/pods"
    """The kubelet's folder of pods, below which all volumes lie. In a container it has the same path, and
    `mountPropagation: Bidirectional`."""
    folders: Annotated[dict[str, FilePath], AfterValidator(_default_among)] = Field(
        default_factory=lambda: {"": "/spiffe-workload-api"}
    )
    """The folders that are mounted: `""` for volumes without the attribute `source`, others by its value."""


class PqBundleSettings(Settings):
    """The post-quantum roots of the node, which verifiers find beside the socket of the Workload API."""

    issuer: Upstream
    """The issuer: `host:port` with mutual TLS, or `unix:///` and the path of its socket on the same machine."""
    issuerID: MatcherText
    """The SPIFFE ID that it must have; its roots are trusted on this node."""
    file: FilePath = f"/spiffe-workload-api/{PQ_BUNDLE_FILE}"
    """Where they are written; readable by all. The folder belongs to root or to the user of the agent."""
    every: Wait = 10.0
    """How often the issuer is asked; each second until there is a file."""
    controlPlane: RemoteAddress | None = None
    """The manager at `controlPlaneAddr`, with the SPIFFE ID `/svc/manager` of `trustDomain`, which gives the roots of
    federated trust domains by mutual TLS as soon as they change; by default the issuer's are all."""


class FilesSettings(Settings):
    """An SVID as files, for a program that reads them."""

    folder: AbsolutePath
    """The folder of these files alone; it is made where the one around it is there. It belongs to root or to the user
    of the agent, and nobody else can write it. What begins with `..` in it is the agent's."""
    hint: str | None = None
    """Selects an SVID by its hint, where the Workload API offers several; by default the first one."""
    svid: ListenerName = "svid.pem"
    """The name of the file with the SVID and its intermediates, readable by all."""
    key: ListenerName = "svid_key.pem"
    """The name of the file with its private key, PKCS #8."""
    bundle: ListenerName = "svid_bundle.pem"
    """The name of the file with the roots of its trust domain, readable by all."""
    federated: ListenerName | None = None
    """The name of a folder for the roots of other trust domains, each in a file `DOMAIN.pem`; by default they are not
    written."""
    pqIssuer: Upstream | None = None
    """The post-quantum issuer; with it there is a leaf beside each SVID."""
    pqIssuerID: MatcherText | None = None
    """The SPIFFE ID that it must have, by default any of the trust domain of the SVID."""
    pqAlgorithm: Literal["ML-DSA-65", "ML-DSA-87"] = "ML-DSA-65"
    """Algorithm of the key of the leaf."""
    pqSvid: ListenerName = "pq_svid.pem"
    """The name of the file with the leaf and its intermediates, readable by all."""
    pqKey: ListenerName = "pq_svid_key.pem"
    """The name of the file with its private key, PKCS #8."""
    pqBundle: ListenerName | None = None
    """The name of a file with the post-quantum roots, as `svc verify` reads it; by default none is written. The roots
    are those of `pqBundle.file`, or of `pq-bundle.json` beside the socket of the Workload API."""
    mode: KeyMode = 0o600
    """The mode of the files with private keys; they are never wider open than this, at no moment."""
    owner: Uid | None = None
    """Whom all files are given to; by default they belong to the user of the agent."""
    group: Gid | None = None
    """The group of all files."""
    pidFile: AbsolutePath | None = None
    """The file with the process ID of a program that gets a signal after each renewal."""
    signal: Literal["SIGHUP", "SIGUSR1", "SIGUSR2", "SIGINT", "SIGTERM"] = "SIGHUP"
    """The signal. *Together*: with `pidFile`."""
    command: Items[str] = Field((), max_length=64)
    """A program, by its absolute path, and its arguments: run after each renewal, without a shell. *Together*: it or
    `pidFile`."""
    commandTimeout: Wait = 30.0
    """How long it may take; then it is killed with all that it has started."""

    @model_validator(mode="after")
    def _together(self) -> Self:
        names = self.names()
        twice = next((each for each in names if names.count(each) > 1), None)
        if twice is not None:
            raise ValueError(f"another name for each file, not {twice} twice")
        if self.pidFile is not None and self.command:
            raise ValueError("pidFile or command, not both")
        if self.pidFile is None and "signal" in self.model_fields_set:
            raise ValueError("signal with pidFile")
        if self.command and not os.path.isabs(self.command[0]):
            raise ValueError("command: the absolute path of a program, and its arguments")
        return self

    def names(self) -> list[str]:
        """The names in the folder."""
        found: list[str | None] = [self.svid, self.key, self.bundle, self.federated, self.pqBundle]
        if self.pqIssuer is not None:
            found += [self.pqSvid, self.pqKey]
        return [each for each in found if each is not None]


def _folders_differ(files: tuple[FilesSettings, ...]) -> tuple[FilesSettings, ...]:
    folders = [os.path.normpath(each.folder) for each in files]
    twice = next((each for each in folders if folders.count(each) > 1), None)
    if twice is not None:
        raise ValueError(f"a folder for each, not {twice} twice")
    return files


class AgentSettings(DaemonSettings):
    """The agent of a node."""

    trustDomain: TrustDomainText
    """The trust domain that its SVID must be of."""
    spiffeSocketPath: SocketText = DEFAULT_SPIFFE_SOCKET
    """The Workload API of the node's SPIRE agent."""
    metricsAddr: OptionalAddress = HostPort("", PORT_AGENT_METRICS)
    """`/metrics`; `"0"` or `""` disables. The option `--metrics-addr` stands above it."""
    adminAddr: OptionalAddress = HostPort("127.0.0.1", PORT_AGENT_ADMIN)
    """A [web page](operations.md#the-web-page), `/status`, `/livez`, `/readyz`, `/config`; `"0"` or `""` disables.
    There is no authentication: keep it on loopback."""
    csi: CsiSettings | None = None
    """The CSI driver; without it no volume is served."""
    pqBundle: PqBundleSettings | None = None
    """The post-quantum roots; without it the agent writes none."""
    files: Annotated[Items[FilesSettings], AfterValidator(_folders_differ)] = Field((), max_length=64)
    """SVIDs as files, for programs that do not speak the Workload API."""


def load_settings(path: str | Path) -> AgentSettings:
    """Read and validate a configuration; raises ``ConfigUnreadable``, or ``ConfigInvalid`` with every defect."""
    return load(path, AgentSettings)
