"""``svc federation connect``: reads all sides, shows them, and only then writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from svc.cli.cluster import choose
from svc.cli.documents import document_text
from svc.cli.errors import CommandFailed, FederationRefused
from svc.cli.federation.connecting import Named, check_apart, plan
from svc.cli.federation.peers import Peer, Relationship
from svc.cli.federation.selected import Found, SelectedCluster, named
from svc.cli.globals import Invocation
from svc.errors import SvcError
from svc.federation.reference import FederationReference

_ANEW: Final = "svc federation import bootstrap-package with --rebootstrap lets a relationship begin anew"
_AGAIN: Final = "the same command again writes what is missing"


def run_connect(
    reference: str,
    kubeconfigs: Sequence[str],
    contexts: Sequence[str],
    unidirectional: bool,
    invocation: Invocation,
) -> int:
    """
    Carry out the command; returns the exit status 0.

    Args:
        reference: the positional argument; empty for none.
        kubeconfigs: the values of ``--kubeconfig``, in order.
        contexts: the values of ``--context``, in order.

    Raises:
        UsageRefused: reference and flags do not fit together.
        ReferenceRefused: the reference is none, or is damaged.
        FederationRefused: it has no endpoint, or the sides cannot be connected; nothing was written.
        CommandFailed: a cluster refused something; what was written until then stands behind it.
    """
    found = plan(reference, kubeconfigs, contexts, unidirectional)
    if found.second is None:
        peer = Peer.of_reference(FederationReference.parse(reference))
        only = _selected(found.first, invocation, changes=True, tunnel=False)
        here = only.read(objects=True)
        _show(invocation, [here], peer)
        return _write(invocation, [(only, here, peer)])
    first = _selected(found.first, invocation, changes=True, tunnel=True)
    second = _selected(found.second, invocation, changes=found.mutual, tunnel=True)
    here, there = first.read(objects=True, uid=True), second.read(objects=found.mutual, uid=True)
    _show(invocation, [here, there])
    check_apart((here.uid, here.own), (there.uid, there.own))
    changes = [(first, here, _reachable(there))]
    if found.mutual:
        changes.append((second, there, _reachable(here)))
    return _write(invocation, changes)


def _selected(named: Named, invocation: Invocation, *, changes: bool, tunnel: bool) -> SelectedCluster:
    choice = choose(named.kubeconfig, named.context, invocation.environ, changes=changes)
    return SelectedCluster(choice, invocation.now(), tunnel=tunnel)


def _side(found: Found) -> Peer:
    """Return a cluster as the peer of another one."""
    return Peer(found.own.trust_domain, found.own.fingerprint, found.own.endpoint())


def _reachable(found: Found) -> Peer:
    """Return the same; ``reference_without_endpoint`` where nobody knows how it is reached."""
    peer = _side(found)
    if peer.endpoint is None:
        with named(found.cluster):
            raise FederationRefused("reference_without_endpoint", trust_domain=peer.trust_domain)
    return peer


def _shown(peer: Peer) -> dict[str, object]:
    return {
        "trustDomain": peer.trust_domain.name,
        "fingerprint": peer.fingerprint.to_members(),
        "m2mEndpoint": peer.address,
    }


def _show(invocation: Invocation, clusters: Sequence[Found], peer: Peer | None = None) -> None:
    """Print both sides, before anything is written."""
    document: dict[str, object] = {
        "clusters": [{"cluster": str(found.cluster), **_shown(_side(found))} for found in clusters]
    }
    if peer is not None:
        document["peer"] = _shown(peer)
    invocation.console.write_text(document_text(document, "yaml"))
    invocation.console.flush()


def _write(invocation: Invocation, changes: Sequence[tuple[SelectedCluster, Found, Peer]]) -> int:
    """Check everything, then write one object after the other."""
    checked = [(selected, peer, _relationship(found, peer)) for selected, found, peer in changes]
    done: list[dict[str, object]] = []
    for selected, peer, relationship in checked:
        try:
            done.append(selected.write(peer, relationship))
        except CommandFailed as error:
            raise CommandFailed(error.error, error.status, (*error.remarks, *_written(done))) from error
        except SvcError as error:
            raise CommandFailed(error, error.exit_status, _written(done)) from error
    invocation.console.write_text(document_text({"written": done}, "yaml"))
    return 0


def _relationship(found: Found, peer: Peer) -> Relationship:
    """Return the object of a peer, where it may be written."""
    with named(found.cluster):
        if found.own.trust_domain == peer.trust_domain:
            raise FederationRefused("same_trust_domain", trust_domain=peer.trust_domain)
        relationship = Relationship.find(peer.trust_domain, found.objects)
    with named(found.cluster, _ANEW):
        relationship.check_kept(peer)
    return relationship


def _written(done: Sequence[dict[str, object]]) -> tuple[str, ...]:
    """Say what was written before something failed."""
    if not done:
        return ("nothing was written",)
    return (*(f"written: {each['object']} in {each['cluster']}" for each in done), _AGAIN)
