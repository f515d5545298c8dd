"""
The commands of kubectl, and how the words of one are read.

Only what the wrapper needs to know is read: everything else is up to kubectl.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from svc.compartments.config import Active

#: Commands that use no cluster: they get no context.
_LOCAL: Final = frozenset({"config", "help", "kuberc", "kustomize", "options", "plugin"})
_READING: Final = frozenset({
    "api-resources", "api-versions", "cluster-info", "describe", "diff", "events", "explain", "get", "logs",
    "port-forward", "proxy", "top", "wait",
})  # fmt: skip
_CHANGING: Final = frozenset({
    "alpha", "annotate", "apply", "attach", "auth", "autoscale", "certificate", "cordon", "cp", "create", "debug",
    "delete", "drain", "edit", "exec", "expose", "label", "patch", "replace", "rollout", "run", "scale", "set", "taint",
    "uncordon",
})  # fmt: skip
#: Below commands that change something, those that do not.
_READING_BELOW: Final = frozenset(
    {("auth", "can-i"), ("auth", "whoami"), ("rollout", "history"), ("rollout", "status")}
)
#: The commands of kubectl that svc passes on; those of its plugins are not known.
VERBS: Final = (_LOCAL | _READING | _CHANGING) - {"help"}


#: Flags of a command line that say as whom, or where: none of ours is then added.
_OTHER_IDENTITY: Final = frozenset({
    "--as", "--as-group", "--as-uid", "--as-user-extra", "--client-certificate", "--cluster", "--context",
    "--kubeconfig", "--password", "--server", "--token", "--user", "--username",
})  # fmt: skip


def leading(words: Sequence[str]) -> list[str]:
    """The words up to the first flag: a command of kubectl or of a plugin, and maybe its first arguments."""
    return list(takewhile(lambda word: not word.startswith("-"), words))


def is_local(words: Sequence[str]) -> bool:
    """Whether a command line uses no cluster."""
    return words[0] in _LOCAL


def mutates(words: Sequence[str]) -> bool:
    """Whether a command line may change something in the cluster; what is not known may."""
    if words[0] in _LOCAL or words[0] in _READING:
        return False
    return tuple(leading(words)[:2]) not in _READING_BELOW


def with_context(words: Sequence[str], active: Active) -> list[str]:
    """
    Add Kubernetes context, namespace and identity to a command line.

    They are added in front of its own flags, which win as the last of several values, and behind the leading words:
    kubectl accepts no flag in front of the name of a plugin, and what follows ``--`` is not for kubectl. A command line
    with a context of its own gets none of them, and one that says as whom it works no identity.
    """
    own = {word.partition("=")[0] for word in takewhile(lambda word: word != "--", words)}
    if "--context" in own:
        return list(words)
    flags = [f"--context={active.kube_context}"] if active.kube_context else []
    flags += [f"--namespace={active.namespace}"] if active.namespace else []
    flags += active.identity if _OTHER_IDENTITY.isdisjoint(own) else ()
    place = len(leading(words))
    return [*words[:place], *flags, *words[place:]]
