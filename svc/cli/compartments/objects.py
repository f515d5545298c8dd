"""Asks kubectl for the objects that a command is aimed at."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from svc import naming
from svc.cli.compartments.command import Command, KubectlRefused
from svc.cli.compartments.kubectl import KubectlFailed, output
from svc.compartments.targets import Target
from svc.compartments.verbs import with_context

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def fetch(command: Command, arguments: Sequence[str], flags: Sequence[str], data: bytes = b"") -> list[Target]:
    """
    Fetch objects by ``kubectl get``.

    Args:
        data: standard input.

    Raises:
        KubectlMissing: it cannot be started.
        KubectlRefused: it fails; unless caught, the process ends as kubectl did.
        KubectlFailed: it printed something else than objects.
    """
    printed = _printed(command, ["get", *flags, "--output=json", "--", *arguments], data)
    if not printed.strip():
        return []
    try:
        found = json.loads(printed)
        return [Target.of(each) for each in found.get("items", [found])]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KubectlFailed(command="get", detail="it printed no objects") from error


def may_override(command: Command, flags: Sequence[str]) -> bool:
    """
    Ask the API server whether the user may cross compartments, in all namespaces.

    Raises:
        KubectlMissing, KubectlRefused, KubectlFailed: as :func:`fetch`.
    """
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {
                "group": naming.DOMAIN,
                "resource": naming.RESOURCE_COMPARTMENTS,
                "verb": naming.VERB_OVERRIDE,
            }
        },
    }
    words = ["create", f"--raw={_REVIEWS}", "--filename=-", *flags]
    try:
        return json.loads(_printed(command, words, json.dumps(review).encode()))["status"]["allowed"] is True
    except (ValueError, KeyError, TypeError) as error:
        raise KubectlFailed(command="create", detail="it printed no review") from error


def _printed(command: Command, words: list[str], data: bytes) -> bytes:
    # Preferences of the user are not meant for this.
    environ = {**command.environ, "KUBERC": "off"}
    ran = output(with_context(words, command.active), environ, data)
    if ran.returncode != 0:
        raise KubectlRefused(ran.returncode, ran.stderr.decode("utf-8", "replace").rstrip("\n"))
    return ran.stdout
