"""Whether what a client was identified by is still accepted: deny lists, the password file, its certificate."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from svc.broker.access import Principal
from svc.broker.errors import BrokerError
from svc.broker.logins import PasswordLogins
from svc.broker.passwordfile import PasswordHash
from svc.identity import SpiffeID
from svc.policyfiles.settings import Policies
from svc.transport.certificates import CertificateCreator
from svc.transport.client_certificates import ClientCertificate
from svc.transport.errors import ClientCertificateInvalid
from svc.transport.evidence import PeerEvidence


class EvidenceCheck:
    """
    Checks clients, and the owners of sessions, which have no evidence.

    Args:
        deny_lists: returns those in force, where there are any.
        logins: has the users of the password file, where there is one.
        creators: verify the certificates of clients, by listener.
    """

    def __init__(
        self,
        deny_lists: Callable[[], Policies] | None = None,
        logins: PasswordLogins | None = None,
        creators: Mapping[str, CertificateCreator] | None = None,
    ) -> None:
        self._deny_lists = deny_lists
        self._logins = logins
        #: Filled while listeners are opened.
        self._creators: Mapping[str, CertificateCreator] = {} if creators is None else creators

    def __call__(self, principal: Principal) -> None:
        """
        Check one.

        Raises:
            BrokerError: it is not accepted any more.
        """
        evidence = principal.evidence
        if principal.spiffe_id is not None:
            if self._deny_lists is not None:
                _check_listed(self._deny_lists(), principal.spiffe_id, evidence)
        elif isinstance(evidence, ClientCertificate):
            try:
                self._creators[principal.listener].verify_again(evidence)
            except ClientCertificateInvalid as error:
                raise BrokerError("mqtt_certificate_withdrawn", name=evidence.name, cause=error.cause) from error
        elif principal.name is not None and principal.name.kind == "user":
            password = evidence if isinstance(evidence, PasswordHash) else None
            if self._logins is None:
                raise BrokerError("mqtt_user_withdrawn", user=principal.name.name)
            self._logins.check(principal.name.name, password)


def _check_listed(policies: Policies, spiffe_id: SpiffeID, evidence: object) -> None:
    # The certificates of the owner of a session are not known.
    listed = policies.listed(evidence.svid if isinstance(evidence, PeerEvidence) else spiffe_id)
    if listed is not None:
        raise BrokerError("mqtt_deny_list", who=listed.identity, list=listed.policy, entry=listed.rule)
