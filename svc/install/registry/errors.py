"""
What can go wrong with a registry.

No password, token, body or query of a URL is ever in a sentence: a query may be the signature of a redirected download.
"""

from __future__ import annotations

from svc.errors import Reason, SvcError


class RegistryError(SvcError):
    """the registry {registry} cannot be used"""

    reason = "registry_unusable"
    hint = "the more precise reason of the same line"
    reasons = {
        "registry_invalid": Reason(
            "{text!r} is not a registry: {defect}", "write host[:port][/prefix], as in registry.example.com:5000/acme"
        ),
        "reference_invalid": Reason(
            "{text!r} is not the reference of an image: {defect}",
            "write host[:port]/name:tag or host[:port]/name@sha256:DIGEST",
        ),
        "registry_username_missing": Reason(
            "there is a password for the registry {registry}, and no user name", "give {names}"
        ),
        "registry_password_missing": Reason(
            "there is a user name for the registry {registry}, and no password", "give {names}"
        ),
        "registry_credentials_unreadable": Reason(
            "the credentials for the registry {registry} in {path} cannot be read: {defect}",
            "repair the file, or log in again with the tool that wrote it",
        ),
        "credential_helper_failed": Reason(
            "{helper} gave no credentials for the registry {registry}: {defect}",
            "run it by itself: echo {registry} | {helper} get",
        ),
        "registry_ca_file_invalid": Reason(
            "{path} has no certificates of authorities for the registry {registry}: {defect}",
            "give a PEM file with the root certificate of the registry",
        ),
        "registry_proxy_invalid": Reason(
            "the proxy in {variable} cannot be used: {defect}",
            "write http://host:port, or name the registry in NO_PROXY",
        ),
        "registry_proxy_refused": Reason(
            "the proxy {proxy} does not connect to the registry {registry}: {answer}",
            "the proxy must allow CONNECT to it, and know the user of the URL in HTTPS_PROXY; or name the registry in "
            "NO_PROXY",
        ),
        "registry_certificate_invalid": Reason(
            "the certificate of {host}, for the registry {registry}, is not valid: {defect}",
            "give the file of its authority: --qhx-ca-file for the registry, --mirror-ca-file for the mirror",
        ),
        "registry_tls_failed": Reason(
            "TLS with {host}, for the registry {registry}, failed: {defect}",
            "does it serve HTTPS on this port? for one with HTTP alone: --qhx-insecure, for a mirror --mirror-insecure",
        ),
        "registry_unauthorized": Reason(
            "the registry {registry} does not accept the request {account}",
            "check user name and password, and that they are for this registry; without any: give them by flags or log "
            "in with docker, podman or skopeo",
        ),
        "registry_forbidden": Reason(
            "the registry {registry} does not allow to {action} {repository} {account}",
            "its administrator must grant this user that right",
        ),
        "registry_refused": Reason(
            "the registry {registry} refused to {action} {repository}: {answer}", "the log of the registry says why"
        ),
        "registry_answer_invalid": Reason(
            "{registry} does not answer as a registry must: {defect}",
            "is this a registry, with the API at /v2/, and is the port right?",
        ),
        "registry_redirect_refused": Reason(
            "the registry {registry} names an address that is not followed: {defect}",
            "behind a proxy that ends TLS, the registry must be told its own URL, or use relative ones",
        ),
        "registry_content_differs": Reason(
            "the registry {registry} gave other content than {digest} of {repository}: {defect}",
            "do not use it: its storage is damaged or somebody has changed it; what was received is removed",
        ),
        "registry_content_too_large": Reason(
            "what the registry {registry} gave for {repository} is larger than {limit} octets",
            "is this the repository that is meant?",
        ),
        "registry_push_differs": Reason(
            "the registry {registry} has {found} as {reference} of {repository} after {digest} was pushed",
            "somebody else pushes there at the same time, or it changes what it stores; push again",
        ),
        "blob_file_changed": Reason(
            "{path} does not have the content {digest} that is to be pushed to the registry {registry}",
            "it was changed or is damaged: get it anew",
        ),
        "blob_file_unusable": Reason(
            "{path} cannot be used for content of the registry {registry}: {defect}",
            "check the folder, its permissions and the free space of its disk; a later run continues this one",
        ),
    }


class RegistryInterrupted(RegistryError):
    """the registry {registry} was interrupted

    Trying again may help; ``after`` is how many seconds the registry asked to wait.
    """

    reason = "registry_interrupted"
    hint = "try again: what was transferred is kept"
    reasons = {
        "registry_unreachable": Reason(
            "the registry {registry} cannot be reached: {defect}",
            "check its name and port, the route to it and any firewall; HTTPS_PROXY and NO_PROXY name a proxy",
        ),
        "registry_cut_off": Reason(
            "the connection for the registry {registry} ended too early: {defect}",
            "try again: what was transferred is kept",
        ),
        "registry_silent": Reason(
            "nothing moved between here and the registry {registry} for {seconds} s",
            "the registry is overloaded, or the network between is gone; what was transferred is kept",
        ),
        "registry_busy": Reason(
            "the registry {registry} limits requests (429), and asks to wait {seconds} s",
            "wait, or use credentials with a higher limit; what was transferred is kept",
        ),
        "registry_failing": Reason(
            "the registry {registry} fails with the status {answer}",
            "the log of the registry says why; what was transferred is kept",
        ),
    }
    after: float = 0.0


class ContentMissing(RegistryError):
    """the registry {registry} has no {reference} in {repository}"""

    reason = "registry_content_missing"
    hint = "check the version and the prefix of the repository; some registries say this of what a user may not read"
