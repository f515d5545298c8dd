"""The configuration of the authority: its keys, and the rules between them."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, field_validator

from svc import naming
from svc.authority.registration import Entry, Registry, Selectors
from svc.authority.x509ca import ALGORITHMS
from svc.errors import SvcError
from svc.identity.matchers import Matcher, parse_matcher
from svc.identity.spiffeid import SpiffeID, TrustDomain
from svc.process.settings import DaemonSettings
from svc.process.values import AbsolutePath, Gid, MatcherText, OptionalAddress, Uid
from svc.settings import (
    Address,
    ConfigInvalid,
    ConfigProblem,
    Duration,
    HostPort,
    Items,
    Settings,
    ValueFormat,
    load,
    text_format,
)
from svc.workload.address import beside, socket_path

#: X.509 has whole seconds; a shorter lifetime would be mostly rounding.
MIN_TTL: Final = 2.0
#: The lifetime of a key is at least this many times that of what it signs, see ``rotation``.
TTL_SHARE: Final = 4
ISSUER_PATH: Final = "/svc/authority"
AGENT_PATH: Final = "/svc/agent"
_SHA256: Final = re.compile(r"[0-9a-f]{64}\Z")
_MODES: Final = {"0600": 0o600, "0660": 0o660, "0666": 0o666}


def _mode(value: object) -> int:
    # Without quotes, 600 is a decimal number in YAML; the octal mode is meant.
    text = f"{value:04d}" if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(text, str) and text in _MODES:
        return _MODES[text]
    raise ValueError('"0600", "0660" (with socketGroup) or "0666"')


def _socket(value: object) -> str:
    if isinstance(value, str):
        try:
            return socket_path(value)
        except SvcError as error:
            raise ValueError("a socket as unix:///absolute/path of at most 107 octets") from error
    raise ValueError("a socket as unix:///absolute/path of at most 107 octets")


def _trust_domain(value: object) -> TrustDomain:
    if isinstance(value, TrustDomain):
        return value
    try:
        return TrustDomain.parse(value)  # type: ignore[arg-type]  # validated by parse
    except SvcError as error:
        raise ValueError(f"a trust domain name; {error.hint}") from error


def _spiffe_id(value: object) -> SpiffeID:
    if isinstance(value, SpiffeID):
        return value
    try:
        found = SpiffeID.parse(value)  # type: ignore[arg-type]  # validated by parse
    except SvcError as error:
        raise ValueError("a SPIFFE ID such as spiffe://example.org/ns/pay/sa/api") from error
    if not found.path:
        raise ValueError("a SPIFFE ID with a path")
    return found


_MODE: Final = {"enum": [*_MODES, *(int(each) for each in _MODES)]}

SocketMode = Annotated[
    int,
    BeforeValidator(_mode),
    ValueFormat('`"0600"`, `"0660"`, `"0666"`', _MODE, lambda mode: f'"{mode:04o}"'),
]
SocketPath = Annotated[str, BeforeValidator(_socket), text_format("socket", "^unix:///.+$")]
Domain = Annotated[TrustDomain, BeforeValidator(_trust_domain), text_format("trust domain", "^[a-z0-9._-]{1,255}$")]
Identity = Annotated[SpiffeID, BeforeValidator(_spiffe_id), text_format("SPIFFE ID", "^spiffe://[a-z0-9._-]+/.+$")]
KeyName = Literal["ECDSA-P256", "ECDSA-P384", "Ed25519", "RSA", "ML-DSA-65", "ML-DSA-87"]
PqKeyName = Literal["ML-DSA-65", "ML-DSA-87"]

if set(ALGORITHMS) != set(KeyName.__args__):  # type: ignore[attr-defined]
    raise ImportError("the key names of the configuration and of the X.509 authority differ")


class EntrySettings(Settings):
    """One registration entry: all selectors that it names must match."""

    spiffeID: Identity
    """Who the caller is. *Together*: of `trustDomain`."""
    uid: Uid | None = None
    """The user that the caller must run as. *Together*: `uid` or `gid`, or both, which `executable` and
    `executableSha256` only narrow, see [who is calling](#who-is-calling). All that are given must match."""
    gid: Gid | None = None
    """The primary group that the caller must have."""
    executable: AbsolutePath | None = None
    """The resolved path of the program, and the very file there."""
    executableSha256: str | None = None
    """The digest of the program, in hexadecimal."""
    ttl: Duration = 3600.0
    """The life of X.509-SVIDs, at least 2s. *Together*: at most a quarter of `keys.caTtl`, and by default no more."""
    jwtTtl: Duration = 300.0
    """The life of JWT-SVIDs, with the same bounds."""
    hint: str = Field(default="", max_length=1024)
    """Distinguishes several identities of one caller."""

    @field_validator("executableSha256")
    @classmethod
    def _digest(cls, value: str | None) -> str | None:
        if value is not None and not _SHA256.match(value):
            raise ValueError("64 lower-case hexadecimal digits")
        return value

    @field_validator("ttl", "jwtTtl")
    @classmethod
    def _long_enough(cls, value: float) -> float:
        if value < MIN_TTL:
            raise ValueError(f"at least {MIN_TTL:g}s")
        return value

    def entry(self, longest: float) -> Entry:
        """The registration entry, with lifetimes of at most ``longest`` seconds."""
        return Entry(
            self.spiffeID,
            Selectors(self.uid, self.gid, self.executable, self.executableSha256),
            timedelta(seconds=min(self.ttl, longest)),
            timedelta(seconds=min(self.jwtTtl, longest)),
            self.hint,
        )


class KeySettings(Settings):
    """The X.509 and JWT keys of the trust domain."""

    caAlgorithm: KeyName = "ECDSA-P256"
    """Algorithm of the roots. *Together*: no ML-DSA with `bundleFile`, which other readers refuse."""
    svidAlgorithm: KeyName = "ECDSA-P256"
    """Algorithm of SVID keys."""
    caTtl: Duration = 86400.0
    """The life of roots and JWT keys, at least 8s."""


class FederationSettings(Settings):
    """A trust domain that is federated with by files."""

    trustDomain: Domain
    """The other trust domain. *Together*: another one than the own, named once."""
    bundleFile: AbsolutePath | None = None
    """Their SPIFFE bundle. *Together*: required with `socket`, none beside `workloadApi`, which federates itself."""
    pqBundleFile: AbsolutePath | None = None
    """Their post-quantum roots. *Together*: required beside `workloadApi`."""


class PackageSettings(Settings):
    """Federation by bootstrap packages."""

    socket: SocketPath
    """The socket of `svc federation --authority`, mode 0600: root and the user of the authority may connect, and may
    add roots of trust. *Together*: another one than the other sockets."""


class PqSettings(Settings):
    """The PQ issuer."""

    socket: SocketPath | None = None
    """The socket of the issuer. *Together*: `socket` or `listen`, or both; another one than the Workload API."""
    socketMode: SocketMode = 0o600
    """Who may connect. *Together*: `"0660"` goes with `socketGroup`."""
    socketGroup: Gid | None = None
    """The group that `"0660"` lets in."""
    listen: Address | None = None
    """Where it is reached by mutual TLS with SVIDs of this trust domain."""
    spiffeID: Identity | None = None
    """The identity of the issuer, by default `spiffe://<trustDomain>/svc/authority`. *Together*: none beside
    `workloadApi`, which gives it."""
    algorithm: PqKeyName = "ML-DSA-65"
    """Algorithm of roots and leaves."""
    rootTtl: Duration = 30 * 86400.0
    """The life of roots."""
    bundleFile: AbsolutePath | None = None
    """Where the post-quantum roots are written, by default `pq-bundle.json` in the folder of the socket."""
    agents: MatcherText | None = None
    """The SPIFFE ID of the agents of nodes, whose reports count; by default `spiffe://<trustDomain>/svc/agent`."""
    reportLife: Duration = 3600.0
    """How long the report of a node counts. A new root signs early only when the issuer has collected reports for so
    long."""
    allowUids: Items[Uid] | None = None
    """Who may ask at the socket where there are no entries; by default the own user."""


class AuthoritySettings(DaemonSettings):
    """
    The whole file.

    With ``socket`` it serves a trust domain of its own. With ``workloadApi`` it is a PQ issuer only, beside the
    SPIFFE implementation that serves that socket.
    """

    trustDomain: Domain
    """The name of the trust domain."""
    socket: SocketPath | None = None
    """The Workload API; at most 107 octets of path. *Together*: `socket`, or `workloadApi` beside a real SPIRE."""
    socketMode: SocketMode = 0o600
    """Who may connect; the socket is never wider open than this, at no moment. *Together*: `"0660"` goes with
    `socketGroup`."""
    socketGroup: Gid | None = None
    """The group that `"0660"` lets in."""
    workloadApi: SocketPath | None = None
    """The socket of a real SPIRE: run as post-quantum issuer only. *Together*: with `pqIssuer`."""
    entries: Items[EntrySettings] = ()
    """Who gets what; read again when the file changes."""
    keys: KeySettings = KeySettings()
    """Algorithms and life of the keys."""
    bundleFile: AbsolutePath | None = None
    """Where the SPIFFE bundle is kept for other authorities; PEM when the name ends in `.pem`. *Together*: none beside
    `workloadApi`."""
    federatesWith: Items[FederationSettings] = ()
    """Trust domains whose files are watched; every workload gets their bundles."""
    federation: PackageSettings | None = None
    """Federation by signed packages, see [federation](federation.md#two-machines). *Together*: with `dataDir`, in which
    its keys and its peers are; none beside `workloadApi`."""
    openBundles: bool = False
    """Whether callers without an entry may fetch bundles."""
    pqIssuer: PqSettings | None = None
    """The post-quantum issuer."""
    dataDir: AbsolutePath | None = None
    """A folder of its own in which the private keys of roots outlive the process, see [keys on disk](#keys-on-disk).
    Without it they end with the process."""
    keysFile: AbsolutePath | None = None
    """A file with private keys that is never written, and read again when it has changed, such as a mounted Secret;
    `--write-keys` makes one. *Together*: none with `dataDir`."""
    adminAddr: OptionalAddress = HostPort("127.0.0.1", naming.PORT_AUTHORITY_ADMIN)
    """A [web page](#pages-for-operators), `/status`, `/livez`, `/readyz`, `/config`; `"0"` or `""` disables. There is
    no authentication: keep it on loopback. A second authority on one machine needs another port."""

    @property
    def pq_only(self) -> bool:
        """Whether it runs beside another SPIFFE implementation."""
        return self.workloadApi is not None

    @property
    def folder_socket(self) -> str:
        """The Workload API socket, in whose folder the other files are."""
        return self.socket or self.workloadApi or ""

    @property
    def pq_bundle_path(self) -> str:
        """Where the PQ bundle is written."""
        given = self.pqIssuer.bundleFile if self.pqIssuer else None
        return given or beside(self.folder_socket, naming.PQ_BUNDLE_FILE)

    @property
    def archive_path(self) -> str:
        """Where the archive of roots is written: beside the PQ bundle."""
        return os.path.join(os.path.dirname(self.pq_bundle_path), naming.BUNDLE_ARCHIVE_FILE)

    @property
    def socket_paths(self) -> tuple[str, ...]:
        """The sockets that it makes."""
        pq = self.pqIssuer
        federation = None if self.federation is None else self.federation.socket
        found = (self.socket, None if pq is None else pq.socket, federation)
        return tuple(path for path in found if path is not None)

    @property
    def made_paths(self) -> tuple[str, ...]:
        """The files and sockets whose folders it makes where they are absent."""
        return tuple(each for each in (*self.socket_paths, self.archive_path, self.bundleFile) if each is not None)

    @property
    def issuer_id(self) -> SpiffeID:
        """The identity of the authority itself."""
        given = self.pqIssuer.spiffeID if self.pqIssuer else None
        return given or SpiffeID(self.trustDomain, ISSUER_PATH)

    @property
    def agents(self) -> Matcher:
        """The identities of the agents of nodes."""
        given = self.pqIssuer.agents if self.pqIssuer else None
        return parse_matcher(given or str(SpiffeID(self.trustDomain, AGENT_PATH)))

    @property
    def longest_ttl(self) -> float:
        """The longest lifetime of an SVID in seconds, so that nothing signed outlives its key."""
        return self.keys.caTtl / TTL_SHARE

    @property
    def registry(self) -> Registry:
        return Registry(entry.entry(self.longest_ttl) for entry in self.entries)

    def problems(self) -> tuple[ConfigProblem, ...]:
        """Check the rules between keys and return every broken one."""
        rules = (*self._socket_rules(), *self._domain_rules(), *self._package_rules(), *self._pq_rules())
        return tuple(ConfigProblem(key, value, expected) for broken, key, value, expected in rules if broken)

    def _socket_rules(self) -> list[_Rule]:
        return [
            (self.socket is None and not self.pq_only, "socket", None, "socket, or workloadApi beside a real SPIRE"),
            (self.socket is not None and self.pq_only, "workloadApi", self.workloadApi, "it without socket"),
            (self.pq_only and self.pqIssuer is None, "pqIssuer", None, "the PQ issuer that runs beside workloadApi"),
            (self.pq_only and self.bundleFile is not None, "bundleFile", self.bundleFile, "none beside workloadApi"),
            (
                self.keysFile is not None and (not self.pq_only or self.dataDir is not None),
                "keysFile",
                self.keysFile,
                "it beside workloadApi, and without dataDir",
            ),
            *_group_rules("", self.socketMode, self.socketGroup),
        ]

    def _domain_rules(self) -> list[_Rule]:
        own, longest = self.trustDomain, self.longest_ttl
        shortest = MIN_TTL * TTL_SHARE
        rules: list[_Rule] = [
            (self.keys.caTtl < shortest, "keys.caTtl", f"{self.keys.caTtl:g}s", f"at least {shortest:g}s")
        ]
        for index, entry in enumerate(self.entries):
            key, foreign = f"entries[{index}]", entry.spiffeID.trust_domain != own
            rules.append((foreign, f"{key}.spiffeID", str(entry.spiffeID), f"an identity of trust domain {own}"))
            anybody = entry.uid is None and entry.gid is None
            alone = next((name for name in ("executable", "executableSha256") if getattr(entry, name)), "uid")
            expected = f"uid or gid as well, of the user of {entry.spiffeID}: every local user can run a program"
            rules.append((anybody, f"{key}.{alone}", getattr(entry, alone), expected))
            for name, ttl in (("ttl", entry.ttl), ("jwtTtl", entry.jwtTtl)):
                expected = f"a quarter of keys.caTtl at most: {longest:g}s"
                given = name in entry.model_fields_set
                rules.append((given and ttl > longest, f"{key}.{name}", f"{ttl:g}s", expected))
        seen = {own}
        for index, each in enumerate(self.federatesWith):
            other = each.trustDomain
            rules.append((other in seen, f"federatesWith[{index}].trustDomain", str(other), "another one, named once"))
            seen.add(other)
            key, theirs = f"federatesWith[{index}]", each.bundleFile
            rules.append((theirs is None and not self.pq_only, f"{key}.bundleFile", None, "the file of their bundle"))
            beside = "none beside workloadApi, whose own server federates"
            rules.append((theirs is not None and self.pq_only, f"{key}.bundleFile", theirs, beside))
            nothing = self.pq_only and each.pqBundleFile is None
            rules.append((nothing, f"{key}.pqBundleFile", None, "the file of their PQ bundle"))
        exotic = self.keys.caAlgorithm.startswith("ML-DSA") and self.bundleFile is not None
        rules.append((exotic, "bundleFile", self.bundleFile, "none with an ML-DSA caAlgorithm, which readers refuse"))
        return rules

    def _package_rules(self) -> list[_Rule]:
        if self.federation is None:
            return []
        path, pq = self.federation.socket, self.pqIssuer
        shared = path in (self.socket, None if pq is None else pq.socket)
        exotic = self.keys.caAlgorithm.startswith("ML-DSA")
        return [
            (self.pq_only, "federation", path, "none beside workloadApi, whose own server federates"),
            (self.dataDir is None and not self.pq_only, "dataDir", None, "the folder of the keys of federation"),
            (shared, "federation.socket", path, "another one than socket and pqIssuer.socket"),
            (exotic, "keys.caAlgorithm", self.keys.caAlgorithm, "none of ML-DSA with federation: peers refuse it"),
        ]

    def _pq_rules(self) -> list[_Rule]:
        if self.pqIssuer is None:
            return []
        pq, own = self.pqIssuer, self.trustDomain
        nowhere = pq.socket is None and pq.listen is None
        shared = pq.socket is not None and pq.socket == self.socket
        foreign = self.issuer_id.trust_domain != own
        return [
            (nowhere, "pqIssuer.socket", None, "pqIssuer.socket or pqIssuer.listen"),
            (shared, "pqIssuer.socket", pq.socket, "another one than socket"),
            (foreign, "pqIssuer.spiffeID", str(pq.spiffeID), f"an identity of trust domain {own}"),
            (self.pq_only and pq.spiffeID is not None, "pqIssuer.spiffeID", str(pq.spiffeID), "none: SPIRE gives it"),
            *_group_rules("pqIssuer.", pq.socketMode, pq.socketGroup),
        ]


#: Whether a rule is broken, the key, its value, what was expected.
_Rule = tuple[bool, str, str | None, str]


def _group_rules(prefix: str, mode: int, group: int | None) -> list[_Rule]:
    shown = f"{mode:04o}"
    return [
        (group is not None and mode == 0o600, f"{prefix}socketMode", shown, '"0660", so that socketGroup may connect'),
        (group is None and mode == 0o660, f"{prefix}socketGroup", None, 'the group that socketMode "0660" lets in'),
    ]


def load_settings(path: str | Path) -> AuthoritySettings:
    """Read and validate a configuration; raises ``ConfigUnreadable``, or ``ConfigInvalid`` with every defect."""
    settings = load(path, AuthoritySettings)
    problems = settings.problems()
    if problems:
        raise ConfigInvalid(str(path), problems)
    return settings
