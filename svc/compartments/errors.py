"""The errors of contexts and their configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from svc.errors import Reason, SvcError


class CompartmentError(SvcError):
    """there is no compartment to work in: {detail}"""

    reason = "compartment_unset"
    hint = (
        "svc context create and svc context use set one; SVC_COUNTRY, SVC_SENSITIVITY and SVC_COMPARTMENT do together"
    )
    reasons: ClassVar[Mapping[str, Reason]] = {
        "context_unset": Reason(
            "no context is selected in {path}", "svc context use NAME selects one; the contexts there are: {known}"
        ),
        "context_not_found": Reason("context not found: {name} is not in {path}", "the contexts there are: {known}"),
        "context_exists": Reason("there is a context {name} already", "svc context delete {name} removes it"),
        "context_in_use": Reason(
            "{name} is the current context",
            "switch to another one first (svc context use), or give --force: then there is no current context",
        ),
        "context_name_invalid": Reason(
            "a context of {compartment} cannot be named {name}",
            "names are <country>-<sensitivity>-<compartment> in lower case: {expected}",
        ),
        "audit_log_unwritable": Reason(
            "the audit log {path} cannot be written: {detail}",
            "auditLog.enabled is set in {config}: nothing that may change something runs unrecorded",
        ),
        "impersonation_denied": Reason(
            "{obstacle}, and the context {name} has impersonate: always",
            "an administrator has to grant the verb impersonate; with auto or never svc does without",
        ),
        "compartment_variable_invalid": Reason('{variable} is set to "{value}"', "expected: {expected}"),
        "flag_value_invalid": Reason('--{flag} is given as "{value}"', "expected: {expected}"),
        "filter_contradiction": Reason(
            "--current-compartment contradicts --exclude-current-compartment",
            "give one of them; --compartment NAME goes with each",
        ),
        "filter_unusable": Reason(
            "objects that --{flag} names cannot be filtered by their compartment", "name kinds, or kinds and names"
        ),
        "flag_unknown": Reason(
            "svc {verb} does not know the flag {flag}, and cannot say what the command is aimed at",
            "kubectl {verb} --help shows the flags; one that is new needs a newer version of svc",
        ),
        "pod_foreign": Reason(
            "{title} is in compartment {label}, current compartment is {current}",
            "svc context use selects another one; --force needs the permission to {permission}",
        ),
        "override_denied": Reason(
            "{title} is in compartment {label}, current compartment is {current}, and --force is not permitted",
            "an administrator has to grant the permission to {permission}",
        ),
        "pod_missing": Reason("{title} has no pod in which a command can run", "svc get pods shows those there are"),
        "target_unclear": Reason(
            "svc {verb} cannot say what the command is aimed at: {detail}", "name objects, for exec a single one"
        ),
        "delete_unconfirmed": Reason(
            "{others} of {total} objects are in other compartments, and there is no terminal to ask at",
            "--force deletes them without a question; nothing was deleted",
        ),
        "delete_declined": Reason("nothing was deleted", "y deletes; --force does without a question"),
        "compartment_differs": Reason(
            "{found}, and the current compartment is {current}",
            "nothing was applied: switch by svc context use, or give --force, which puts the objects into {current}",
        ),
        "context_not_switched": Reason(
            "{name} is the current context, and was not selected in this session",
            "requireExplicitContextSwitch is set in {path}: svc context use {name} first, then what changes something",
        ),
        "context_switch_required": Reason(
            "{variable} asks for {wanted}, and the current context {name} is {current}",
            "requireExplicitContextSwitch is set in {path}: switch by svc context use, or unset the variable",
        ),
    }
