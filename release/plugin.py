"""
The kubectl plugin ``kubectl mls``, as the plugin manager krew installs it: an archive and its manifest.

The plugin is the program ``svc`` under another name, and runs the one that is installed.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final

from ruamel.yaml import YAML

from release.tar import write_tar

_SCRIPT: Final = """\
#!/bin/sh
# kubectl mls: the commands of svc that wrap kubectl with compartments.
command -v svc >/dev/null || {
    echo 'svc: kubectl mls runs the program svc, which is not on the PATH' >&2
    echo '     python3 -m pip install svc' >&2
    exit 1
}
exec svc "$@"
"""
_CAVEATS: Final = """\
The plugin runs the program svc of the same release: python3 -m pip install svc
"""


def write_archive(folder: Path, version: str, seconds: int, license_file: Path) -> Path:
    """
    Write the archive; the same arguments give the same octets.

    Args:
        folder: where it goes.
        version: of the release.
        seconds: the time of the files, since 1970.
        license_file: the license, which the archive must hold.

    Returns:
        Its path.
    """
    path = folder / f"kubectl-mls-{version}.tar.gz"
    files = (("LICENSE", license_file.read_bytes(), 0o644), ("kubectl-mls", _SCRIPT.encode(), 0o755))
    write_tar(path, seconds, files)
    return path


def write_manifest(folder: Path, version: str, archive: Path, url: str) -> Path:
    """
    Write the manifest by which krew finds and checks the archive.

    Args:
        folder: where it goes.
        version: of the release.
        archive: of the plugin.
        url: the folder from which the archive will be downloaded.

    Returns:
        Its path.
    """
    platforms = [
        {
            "selector": {"matchLabels": {"os": system}},
            "uri": f"{url.rstrip('/')}/{archive.name}",
            "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
            "files": [{"from": "kubectl-mls", "to": "."}, {"from": "LICENSE", "to": "."}],
            "bin": "kubectl-mls",
        }
        for system in ("linux", "darwin")
    ]
    manifest = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "mls"},
        "spec": {
            "version": f"v{version}",
            "homepage": "https://svc.internal/",
            "shortDescription": "kubectl with security compartments",
            "description": "Labels what is applied with a compartment, filters by it, and guards exec and delete.\n",
            "caveats": _CAVEATS,
            "platforms": platforms,
        },
    }
    path = folder / "mls.yaml"
    with path.open("w") as file:
        YAML().dump(json.loads(json.dumps(manifest)), file)
    return path
