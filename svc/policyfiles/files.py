"""
Policy files: found by patterns, read and validated as a whole.

Owns which files belong together, their limits and what identifies their content.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar, Final, TypeVar

from svc.errors import Reason, SvcError
from svc.policy.denylist import DenyList
from svc.policy.rules import AuthorizationPolicy
from svc.policyfiles.document import DenyListDocument, PolicyDocument
from svc.settings import Settings, parse_all, read_text

MAX_FILES: Final = 1024
#: Names of files with what changes when they are written or replaced; None for one that cannot be looked at.
FileStamps = tuple[tuple[str, tuple[int, ...] | None], ...]
KINDS: Final[Mapping[str, type[PolicyDocument | DenyListDocument]]] = {
    "SvcClusterPolicy": PolicyDocument,
    "SvcPolicy": PolicyDocument,
    "SvcDenyList": DenyListDocument,
}
#: Returns the labels of the pod; None where they are not known.
PodLabels = Callable[[], Mapping[str, str] | None]
DocumentT = TypeVar("DocumentT", bound=Settings)
#: Rules of all files together; where there is a cluster, of its files and of those of the namespace each.
MAX_ALL_RULES: Final = 16_384


class PolicyFilesRefused(SvcError):
    """the policy files are not valid"""

    reason = "policy_invalid"
    hint = "`svc policy check` names every defect; nothing of the files takes effect until all are valid"
    reasons: ClassVar = {
        "policy_file_absent": Reason(
            "no file matches {pattern}",
            hint="name a file that exists, or a pattern with * if there may be none",
        ),
        "policy_file_invalid": Reason(
            "{path} is not valid: {defects}",
            hint="correct the file; what was in force stays until all files are valid",
        ),
        "policy_name_twice": Reason(
            "the policy {name} is in {first} and in {second}",
            hint="give each policy a name of its own",
        ),
        "policy_files_many": Reason(
            "{count} policy files, at most {limit} are read",
            hint="put several policies into one file, separated by ---",
        ),
        "policy_labels_unknown": Reason(
            "the policy {name} in {path} has a podSelector, and the labels of this pod are not known",
            hint="name the downward-API folder with its labels in workload.podInfo",
        ),
        "policy_rules_many": Reason(
            "{count} rules in all policy files, at most {limit} are read",
            hint="use path prefixes, templates and several values in one rule",
        ),
    }


@dataclass(frozen=True, slots=True)
class PolicyFiles:
    """
    The policies of files.

    Attributes:
        denied: deny lists.
        paths: the files, in their order.
        digest: SHA-256 of names and contents, in hexadecimal, or the version of a manager, with what selected policies
            for a pod; equal where nothing has changed.
        origin: the manager that published them; empty for files.
        own: the part that a namespace has written for itself; None where there is no cluster beside it.
        refused: why that part is an earlier one; None where it is as it was read.
    """

    policies: tuple[AuthorizationPolicy, ...]
    denied: tuple[DenyList, ...]
    paths: tuple[str, ...]
    digest: str
    origin: str = ""
    own: PolicyFiles | None = None
    refused: SvcError | None = None


def matching_files(patterns: Iterable[str]) -> list[str]:
    """
    Find the files of patterns, sorted by name.

    Raises:
        PolicyFilesRefused: a name without ``*`` does not exist, or there are too many.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        paths = sorted(path for path in glob.glob(pattern) if not os.path.isdir(path))
        if not paths and not glob.has_magic(pattern):
            raise PolicyFilesRefused("policy_file_absent", pattern=pattern)
        found.update(dict.fromkeys(paths))
    if len(found) > MAX_FILES:
        raise PolicyFilesRefused("policy_files_many", count=len(found), limit=MAX_FILES)
    return list(found)


def file_stamps(patterns: Iterable[str]) -> FileStamps:
    """Return what tells whether the files of patterns have changed; blocks on the disk, and raises nothing."""
    found: dict[str, tuple[int, ...] | None] = {}
    for pattern in patterns:
        for path in sorted(glob.glob(pattern)) or [pattern]:
            found[path] = _stamp(path)
    return tuple(found.items())


def _stamp(path: str) -> tuple[int, ...] | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    # The times of the inode too: a file that was written in its place within one tick of the clock, or made readable.
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def read_policies(
    patterns: Iterable[str],
    kinds: Mapping[str, type[PolicyDocument | DenyListDocument]] = KINDS,
    labels: PodLabels = lambda: None,
    *,
    cluster: Sequence[str] = (),
    former: PolicyFiles | None = None,
) -> PolicyFiles:
    """
    Read all policies; blocks on the disk.

    Args:
        patterns: the files.
        kinds: those that the files may hold.
        labels: read where a ``podSelector`` selects by them.
        cluster: files of the cluster: where there are any, those of ``patterns`` only narrow what policies of the
            cluster in these allow, and are read apart, as :func:`with_own` says.
        former: what was read before.

    Raises:
        ConfigUnreadable: a file cannot be read, or is not YAML.
        ConfigInvalid: with the defects of the first file that has any.
        PolicyFilesRefused: the files do not fit together.
    """
    if not cluster:
        return _read(matching_files(patterns), kinds, labels)
    of_cluster = _read(matching_files(cluster), kinds, labels)
    return with_own(of_cluster, lambda: own_policies(patterns, labels, of_cluster.paths), former)


def own_policies(patterns: Iterable[str], labels: PodLabels, besides: Collection[str]) -> PolicyFiles:
    """
    Read what a namespace has written for itself; blocks on the disk, and raises as :func:`read_policies`.

    Args:
        patterns: the files.
        labels: read where a ``podSelector`` selects by them.
        besides: the files of its cluster, which are none of its own.
    """
    return _read([each for each in matching_files(patterns) if each not in besides], KINDS, labels, local=True)


def _read(
    paths: Sequence[str],
    kinds: Mapping[str, type[PolicyDocument | DenyListDocument]],
    labels: PodLabels,
    *,
    local: bool = False,
) -> PolicyFiles:
    documents, digest = read_documents(paths, kinds)
    return policy_files(documents, paths, digest, labels, local=local)


def with_own(cluster: PolicyFiles, read: Callable[[], PolicyFiles], former: PolicyFiles | None = None) -> PolicyFiles:
    """
    Put what a namespace has written for itself beside the policies of its cluster.

    Args:
        cluster: those of the cluster.
        read: reads those of the namespace; where they are not valid, its part of ``former`` stays.
        former: what was in force before; without it the error of ``read`` is raised.
    """
    refused: SvcError | None = None
    try:
        own = read()
    except SvcError as error:
        if former is None or former.own is None:
            raise
        own, refused = former.own, error
    digest = hashlib.sha256(f"{cluster.digest}\0{own.digest}".encode()).hexdigest()
    policies, denied, paths = (
        (*cluster.policies, *own.policies),
        (*cluster.denied, *own.denied),
        (*cluster.paths, *own.paths),
    )
    return PolicyFiles(policies, denied, paths, digest, cluster.origin, own, refused)


def read_documents(
    paths: Iterable[str], kinds: Mapping[str, type[DocumentT]]
) -> tuple[list[tuple[str, DocumentT]], str]:
    """
    Read the documents of files, each with its file, and the digest of all.

    Raises:
        ConfigUnreadable, ConfigInvalid: as :func:`read_policies`.
    """
    digest = hashlib.sha256()
    documents: list[tuple[str, DocumentT]] = []
    for path in paths:
        text = read_text(Path(path))
        digest.update(f"{len(path)}:{path}{len(text)}:".encode() + text.encode())
        documents += ((path, document) for document in parse_all(text, kinds, path))
    return documents, digest.hexdigest()


def policy_files(
    documents: Iterable[tuple[str, PolicyDocument | DenyListDocument]],
    paths: Sequence[str],
    digest: str,
    labels: PodLabels = lambda: None,
    *,
    select: bool = True,
    origin: str = "",
    local: bool = False,
) -> PolicyFiles:
    """
    Put the documents of files together; raises PolicyFilesRefused.

    Args:
        documents: each with its file.
        paths: the files.
        digest: of their contents.
        labels: read where a ``podSelector`` selects by them; policies that do not match are left out.
        select: whether there is a pod; without one policies count whatever pods they are about.
        origin: the manager that published them.
        local: whether a namespace has written them for itself beside those of its cluster.
    """
    labels = cache(labels)
    policies: list[AuthorizationPolicy] = []
    lists: list[DenyList] = []
    places: dict[tuple[str, str], str] = {}
    selected: list[str] = []
    for path, document in documents:
        policy = None if isinstance(document, DenyListDocument) else document.policy(local=local)
        name = document.metadata.name if policy is None else policy.qualified_name
        place = document.kind, name
        if place in places:
            raise PolicyFilesRefused(
                "policy_name_twice", name=f"{document.kind} {name}", first=places[place], second=path
            )
        places[place] = path
        if isinstance(document, DenyListDocument):
            lists.append(document.deny_list())
        elif policy is not None and (not select or _selects(document, path, labels)):
            policies.append(policy)
            selected.append(name)
    rules = sum(len(policy.rules) for policy in policies)
    if rules > MAX_ALL_RULES:
        raise PolicyFilesRefused("policy_rules_many", count=rules, limit=MAX_ALL_RULES)
    if len(selected) + len(lists) < len(places):
        digest = hashlib.sha256("\0".join((digest, *selected)).encode()).hexdigest()
    return PolicyFiles(tuple(policies), tuple(lists), tuple(paths), digest, origin)


def _selects(document: PolicyDocument, path: str, labels: PodLabels) -> bool:
    selector = document.spec.podSelector
    if selector is None:
        return True
    found = labels()
    if found is None:
        raise PolicyFilesRefused("policy_labels_unknown", name=document.metadata.name, path=path)
    return selector.matches(found)
