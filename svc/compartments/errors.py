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
        "audit_log_absent": Reason(
            "auditLog.enabled is set in {path}, and this version records no commands",
            "nothing runs unrecorded: unset it, or use a version that has the audit log",
        ),
        "compartment_variable_invalid": Reason('{variable} is set to "{value}"', "expected: {expected}"),
        "compartment_differs": Reason(
            "{found}, and the current compartment is {current}",
            "nothing was applied: switch by svc context use, or give --force, which puts the objects into {current}",
        ),
        "force_invalid": Reason('--force is set to "{value}"', "expected: true or false"),
        "context_not_switched": Reason(
            "{name} is the current context, and was not selected in this session",
            "requireExplicitContextSwitch is set in {path}: svc context use {name} first, then what changes something",
        ),
        "context_switch_required": Reason(
            "{variable} asks for {wanted}, and the current context {name} is {current}",
            "requireExplicitContextSwitch is set in {path}: switch by svc context use, or unset the variable",
        ),
    }
