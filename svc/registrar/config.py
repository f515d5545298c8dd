"""The configuration of the registrar."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, PrivateAttr, model_validator

from svc.errors import SvcError
from svc.identity.spiffeid import SpiffeID
from svc.naming import PORT_REGISTRAR_ADMIN
from svc.process.settings import DaemonSettings
from svc.process.values import OptionalAddress, SocketText, TrustDomainText, Wait
from svc.settings import Duration, HostPort, Items, Settings, load
from svc.spire.entries import RegistrationEntry

#: With which the identifiers of entries of a registrar begin; another program's have another beginning.
OWNER = "svc-registrar."


class RegistrationSettings(Settings):
    """One registration entry of the SPIRE server."""

    spiffeID: str
    """The identity: a path such as `/ns/pay/sa/api` in the trust domain, or a whole SPIFFE ID."""
    parentID: str
    """The agent, or the alias of nodes, whose workloads these are; `/spire/server` for an alias of nodes."""
    selectors: Annotated[Items[str], Field(json_schema_extra={"minItems": 1})]
    """As `k8s:ns:pay`; all of them must match."""
    x509SvidTtl: Duration = 0.0
    """The life of X.509-SVIDs; `0s` for the server's default."""
    federatesWith: Items[TrustDomainText] = ()
    """Trust domains whose bundles come with the SVID."""
    dnsNames: Items[str] = ()
    """DNS names of the SVID; the first one is its common name."""
    hint: str = ""
    """The hint, for workloads with several identities."""
    admin: bool = False
    """Whether the identity may use the API of the server: all entries, and the keys of nobody."""


class RegistrarSettings(DaemonSettings):
    """The registrar of one SPIRE server."""

    trustDomain: TrustDomainText
    """The trust domain of the server."""
    serverSocket: SocketText = "unix:///run/spire/private/api.sock"
    """The private socket of the server on the same machine, which its administrators alone can open."""
    entries: Annotated[Items[RegistrationSettings], Field(json_schema_extra={"minItems": 1})]
    """What the server has to have. Entries that a registrar has made and that are not listed any more are deleted;
    those of others stay as they are."""
    every: Wait = 10.0
    """How often the server is asked; each second until the first success."""
    adminAddr: OptionalAddress = HostPort("127.0.0.1", PORT_REGISTRAR_ADMIN)
    """A [web page](operations.md#the-web-page), `/status`, `/livez`, `/readyz`, `/config`; `"0"` or `""` disables.
    There is no authentication: keep it on loopback."""
    _wanted: tuple[RegistrationEntry, ...] = PrivateAttr(())

    @model_validator(mode="after")
    def _together(self) -> Self:
        if not self.entries:
            raise ValueError("at least one entry in entries")
        try:
            wanted = tuple(self._entry(each) for each in self.entries)
        except SvcError as error:
            raise ValueError(f"entries that a SPIRE server takes: {error}") from error
        ids = [each.id for each in wanted]
        twice = next((each for each in wanted if ids.count(each.id) > 1), None)
        if twice is not None:
            raise ValueError(f"each entry once, not {twice.spiffe_id} with the same parent and selectors twice")
        self._wanted = wanted
        return self

    @property
    def wanted(self) -> tuple[RegistrationEntry, ...]:
        """The entries in the form of the API."""
        return self._wanted

    def _entry(self, each: RegistrationSettings) -> RegistrationEntry:
        return RegistrationEntry(
            self._id(each.spiffeID),
            self._id(each.parentID),
            frozenset(each.selectors),
            x509_svid_ttl=int(each.x509SvidTtl),
            federates_with=frozenset(each.federatesWith),
            dns_names=each.dnsNames,
            hint=each.hint,
            admin=each.admin,
            owner=OWNER,
        )

    def _id(self, text: str) -> SpiffeID:
        return SpiffeID.parse(text if text.startswith("spiffe:") else f"spiffe://{self.trustDomain}{text}")


def load_settings(path: str | Path) -> RegistrarSettings:
    """Read and validate a configuration; raises ``ConfigUnreadable``, or ``ConfigInvalid`` with every defect."""
    return load(path, RegistrarSettings)
