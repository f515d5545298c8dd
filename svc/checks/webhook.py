"""Whether the API server asks the manager about pods, and which namespaces it is about. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Final

from cryptography import x509

from svc.checks.facts import ClusterFacts, Object, metadata
from svc.checks.model import Check, Defect, Found, Level, found
from svc.errors import SvcError
from svc.injection.config import NAMESPACES_OF_AKS
from svc.kube.kinds import MUTATING_WEBHOOKS, NAMESPACES, VALIDATING_WEBHOOKS
from svc.naming import (
    CONNECTIONS_CONFIGURATION,
    INJECTION_ENABLED,
    LABEL_INJECTION,
    POLICIES_CONFIGURATION,
    WEBHOOK_CONFIGURATION,
    WEBHOOK_SECRET,
)

#: The manager brings a new authority after two thirds of the life of the one before.
_RENEWED_AFTER: Final = 3 / 4
#: Namespaces that the manager excludes, beside its own.
_NEVER: Final = ("kube-node-lease", "kube-public", "kube-system")
_NAME_KEY: Final = "kubernetes.io/metadata.name"
_WEBHOOKS: Final = (
    (MUTATING_WEBHOOKS, WEBHOOK_CONFIGURATION),
    (VALIDATING_WEBHOOKS, CONNECTIONS_CONFIGURATION),
    (VALIDATING_WEBHOOKS, POLICIES_CONFIGURATION),
)


def enabled_namespaces(facts: ClusterFacts) -> list[str]:
    """Return the namespaces whose pods get the proxy; some never do, whatever their labels are."""
    enabled = {
        each["metadata"]["name"]
        for each in facts.of(NAMESPACES)
        if metadata(each, "labels").get(LABEL_INJECTION) == INJECTION_ENABLED
    }
    return sorted(enabled - {*_NEVER, facts.namespace})


def _certificates(bundle: object) -> list[x509.Certificate]:
    """Read a ``caBundle``; raises ValueError where it is none."""
    try:
        return x509.load_pem_x509_certificates(base64.b64decode(str(bundle or ""), validate=True))
    except binascii.Error as error:
        raise ValueError("it is not base64") from error


def _webhook(facts: ClusterFacts) -> Iterator[Found]:
    for kind, name in _WEBHOOKS:
        configuration = facts.named(kind, name)
        if configuration is None and name == CONNECTIONS_CONFIGURATION:
            continue  # a manager makes it where it guards connections to pods
        hooks = () if configuration is None else configuration.get("webhooks") or ()
        if not hooks:
            yield found("missing", kind=kind.name, name=name)
        for hook in hooks:
            evidence = {"kind": kind.name.lower(), "name": name}
            yield from _narrowed(facts, hook, evidence)
            yield from _trusted(facts, hook, evidence)
    yield from _compared(facts)


def _compared(facts: ClusterFacts) -> Iterator[Found]:
    """Find configurations that do not have the authority with which the manager signs."""
    if isinstance(facts.authorities, SvcError):
        yield found("not_compared", secret=WEBHOOK_SECRET, namespace=facts.namespace, why=facts.authorities)
        return
    try:
        current = x509.load_pem_x509_certificate(facts.authorities[0].encode())
    except (ValueError, IndexError):
        yield found("no_authority", secret=WEBHOOK_SECRET, namespace=facts.namespace)
        return
    for kind, name in _WEBHOOKS:
        for hook in (facts.named(kind, name) or {}).get("webhooks") or ():
            with suppress(ValueError):  # reported already
                if current not in _certificates(hook["clientConfig"].get("caBundle")):
                    yield found("mismatch", secret=WEBHOOK_SECRET, kind=kind.name.lower(), name=name)
                    break


def _trusted(facts: ClusterFacts, hook: Object, evidence: dict[str, str]) -> Iterator[Found]:
    """Find what is wrong with the certificates by which the API server knows the webhook."""
    try:
        certificates = _certificates(hook["clientConfig"].get("caBundle"))
    except ValueError:
        yield found("no_bundle", **evidence)
        return
    valid = [each for each in certificates if each.not_valid_before_utc <= facts.now < each.not_valid_after_utc]
    if not valid:
        ends = max(each.not_valid_after_utc for each in certificates)
        yield found("expired", ends=f"{ends:%Y-%m-%dT%H:%M:%SZ}", **evidence)
    elif not any(_fresh(each, facts.now) for each in valid):
        ends = max(each.not_valid_after_utc for each in valid)
        yield found("not_renewed", ends=f"{ends:%Y-%m-%dT%H:%M:%SZ}", **evidence)


def _fresh(certificate: x509.Certificate, now: datetime) -> bool:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now < begin + (end - begin) * _RENEWED_AFTER


def _narrowed(facts: ClusterFacts, hook: Object, evidence: dict[str, str]) -> Iterator[Found]:
    """Find what keeps objects from a webhook that are its concern."""
    selector = hook.get("namespaceSelector") or {}
    labels, expressions = dict(selector.get("matchLabels") or {}), list(selector.get("matchExpressions") or ())
    if evidence["name"] == WEBHOOK_CONFIGURATION:
        if labels.pop(LABEL_INJECTION, INJECTION_ENABLED) != INJECTION_ENABLED:
            yield found("narrowed", what=f"namespaceSelector selects another value of {LABEL_INJECTION}", **evidence)
        if hook.get("matchConditions"):
            yield found("narrowed", what="matchConditions leave out pods", **evidence)
        enabled = set(enabled_namespaces(facts))
        expressions = [each for each in expressions if each not in NAMESPACES_OF_AKS]
        for each in expressions[:]:
            if each.get("key") == _NAME_KEY and each.get("operator") == "NotIn":
                expressions.remove(each)
                for namespace in sorted(enabled.intersection(each.get("values") or ())):
                    yield found("narrowed", what=f"the enabled namespace {namespace} is excluded", **evidence)
    if labels or expressions:
        yield found("narrowed", what="namespaceSelector leaves out namespaces", **evidence)
    if any((hook.get("objectSelector") or {}).values()):
        yield found("narrowed", what="objectSelector leaves out objects", **evidence)
    if not hook.get("rules"):
        yield found("narrowed", what="it has no rules", **evidence)


WEBHOOK: Final[Check[ClusterFacts]] = Check(
    "webhook",
    "the API server asks the manager, and trusts its certificate",
    _webhook,
    {
        "missing": Defect(
            "there is no {kind} {name}", "the manager makes it: kubectl logs -n svc-system deployment/svc-manager"
        ),
        "no_bundle": Defect(
            "the caBundle of {name} holds no certificates",
            "kubectl delete {kind} {name}: the manager makes it again",
        ),
        "expired": Defect(
            "no certificate in the caBundle of {name} is valid now, the last one ended at {ends}",
            "is the clock here right? else the manager does not renew it: kubectl logs -n svc-system "
            "deployment/svc-manager",
        ),
        "not_renewed": Defect(
            "the certificates in the caBundle of {name} are due for renewal, and end at {ends}",
            "the manager does not renew them: kubectl logs -n svc-system deployment/svc-manager",
            Level.WARNING,
        ),
        "no_authority": Defect(
            "the Secret {namespace}/{secret} has no certificate of the webhook",
            "the manager makes it: kubectl delete secret -n {namespace} {secret}",
        ),
        "mismatch": Defect(
            "the caBundle of {name} has not the certificate of the Secret {secret}, with which the manager signs",
            "kubectl delete {kind} {name}: the manager makes it again",
        ),
        "not_compared": Defect(
            "whether the caBundles have the certificate of the Secret {namespace}/{secret} is not known: {why}",
            "check as a user who may read it; the keys in it are not kept",
            Level.WARNING,
        ),
        "narrowed": Defect(
            "{name} was changed: {what}",
            "kubectl delete {kind} {name}: the manager makes it again; whoever changed it changes it again",
        ),
    },
)
