"""What the kubelet makes of the variables of an injected container, and the proxy of its configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from svc.proxy.config import ProxySettings
from svc.settings import parse
from tests.injection.documents import Document, proxy_of, variables

#: The fact of the statement by the variable with it.
FACTS: Final = {
    "POD_NAMESPACE": "namespace",
    "POD_SERVICE_ACCOUNT": "serviceAccount",
    "POD_NAME": "podName",
    "POD_UID": "podUID",
    "NODE_NAME": "node",
}


def expand(text: str, values: Mapping[str, str]) -> str:
    """Expand as Kubernetes does: ``$(NAME)``, and one dollar for two; everything else stays."""
    return re.sub(r"\$(?:\$|\(([^)]*)\))", lambda match: "$" if match[1] is None else values[match[1]], text)


def loaded(pod: Document) -> ProxySettings:
    """Load the configuration of an injected pod, whose facts are ``the-`` and their name."""
    container = proxy_of(pod)
    earlier = [each["name"] for each in container["env"] if "valueFrom" in each]
    values = {name: f"the-{FACTS[name]}" for name in earlier}
    return parse(expand(variables(container)["SVC_CONFIG"], values), ProxySettings)
