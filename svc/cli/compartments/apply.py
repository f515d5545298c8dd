"""
``svc apply``: the objects are read, get the compartment, and go to kubectl on its standard input.

kubectl itself reads the files, by a patch that changes nothing and asks no server: folders, addresses, kustomizations
and YAML mean what they mean to ``kubectl apply``. What was read is in memory and in pipes only, for it may be secret.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NoReturn

from svc.cli.compartments.command import Command
from svc.cli.compartments.kubectl import KubectlFailed, KubectlMissing, ask, feed, program
from svc.cli.errors import CliError, CommandFailed
from svc.compartments.applyflags import ApplyFlags
from svc.compartments.errors import CompartmentError
from svc.compartments.manifests import Manifest, is_job, mark, other_compartments
from svc.compartments.verbs import with_context

#: Where the next object begins.
_BEGIN: Final = re.compile(r"\S")
_READ: Final = ("patch", "--local", "--type=merge", "--patch={}", "--output=json", "--show-managed-fields")


def run(command: Command) -> NoReturn:
    """
    Become ``kubectl apply`` with objects that have the compartment.

    Raises:
        KubectlMissing: kubectl cannot be started.
        CompartmentError: a flag has no acceptable value.
        CommandFailed: the objects cannot be read, or are those of another compartment.
    """
    flags = ApplyFlags.read(command.words[1:])
    if flags is None:
        command.become(command.words)
    documents = _marked(flags, command)
    feed("\n".join(map(json.dumps, documents)).encode())
    # The objects that name no namespace have that of the context.
    command.replace(with_context(["apply", "--filename=-", *flags.rest], replace(command.active, namespace="")))


def _marked(flags: ApplyFlags, command: Command) -> list[Manifest]:
    config, active, environ = command.config, command.active, command.environ
    documents = _read(flags.files, environ)
    others = [text for each in documents for text in other_compartments(each, active.compartment, config.templates)]
    command.recorder.decide(("forced" if flags.force else "deny") if others else "allow", [], others)
    if others and not flags.force:
        raise CommandFailed(
            CompartmentError("compartment_differs", found=others[0], current=active.compartment.label),
            remarks=tuple(others[1:]),
        )
    if active.namespace and not flags.placed:
        for each in documents:
            _place(each, active.namespace)
    connection = with_context(["get", *flags.connection], replace(active, namespace=""))
    live = _live_templates(documents, connection, environ)
    for index, each in enumerate(documents):
        mark(each, active.compartment, config.templates, live.get(index))
    return documents


def _read(files: Iterable[str], environ: Mapping[str, str]) -> list[Manifest]:
    # Neither a kubeconfig nor preferences of the user matter for local files.
    alone = {**environ, "KUBECONFIG": os.devnull, "KUBERC": "off"}
    try:
        ran = subprocess.run([program(environ), *_READ, *files], env=alone, capture_output=True, check=False)
    except OSError as error:
        raise KubectlMissing.of(error, environ) from error
    if ran.returncode != 0:
        first, *others = ran.stderr.decode("utf-8", "replace").strip().splitlines() or [f"status {ran.returncode}"]
        detail = first.removeprefix("error: ").replace("passed to patch", "passed to apply")
        raise CommandFailed(CliError("objects_unreadable", detail=detail), remarks=tuple(others))
    try:
        return list(_decoded(ran.stdout.decode()))
    except (ValueError, RecursionError) as error:
        detail = "nested too deeply" if isinstance(error, RecursionError) else f"kubectl printed no JSON: {error}"
        raise CommandFailed(CliError("objects_unreadable", detail=detail)) from error


def _decoded(text: str) -> Iterable[Manifest]:
    """The objects of a text in which one follows the other."""
    decoder, place = json.JSONDecoder(), 0
    while begin := _BEGIN.search(text, place):
        document, place = decoder.raw_decode(text, begin.start())
        yield document


def _place(document: Manifest, namespace: str) -> None:
    """
    Set the namespace of an object that names none.

    As a flag it would make kubectl refuse objects of other namespaces. kubectl removes it from what is in none.
    """
    metadata = document.setdefault("metadata", {})
    if isinstance(metadata, dict) and not metadata.get("namespace"):
        metadata["namespace"] = namespace


def _live_templates(
    documents: Sequence[Manifest], connection: Sequence[str], environ: Mapping[str, str]
) -> dict[int, Manifest]:
    """
    The templates of Jobs that are there, by the index of their document.

    Where they cannot be asked for, none counts as there: kubectl then reports what is wrong.

    Args:
        connection: a command with the flags by which it reaches the API server.
    """
    jobs: dict[str, dict[str, int]] = {}
    for index, each in enumerate(documents):
        metadata = each.get("metadata") or {}
        if is_job(each) and metadata.get("name"):
            jobs.setdefault(metadata.get("namespace", ""), {})[metadata["name"]] = index
    found: dict[int, Manifest] = {}
    for names in jobs.values():
        asked = "\n".join(json.dumps(documents[index]) for index in names.values())
        words = [*connection, "--filename=-", "--ignore-not-found", "--output=json"]
        with contextlib.suppress(KubectlFailed):
            answer: dict[str, Any] = json.loads(ask(words, environ, asked.encode()) or '{"items": []}')
            for each in answer.get("items", [answer]):
                found[names[each["metadata"]["name"]]] = each["spec"]["template"]
    return found
