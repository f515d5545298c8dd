"""
Injection of the proxy into pods: the decisions of the admission webhook, from a review to its response.

``ports`` is the grammar of the annotation, ``pod`` the shape of what is read of a pod, ``container`` what is added,
``patch`` the changes of one pod, ``review`` the request of the API server and its response. There is no I/O, no clock
and no client of Kubernetes here: a pod is a document.
"""

from __future__ import annotations

from svc.injection.config import InjectionSettings
from svc.injection.errors import InjectionRefused, ReviewInvalid
from svc.injection.patch import Injection, PodSettings, inject
from svc.injection.review import ReviewOutcome, review

__all__ = [
    "Injection",
    "InjectionRefused",
    "InjectionSettings",
    "PodSettings",
    "ReviewInvalid",
    "ReviewOutcome",
    "inject",
    "review",
]
