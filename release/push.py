"""``bin/release push``: the package of a release into the registry from which it is installed."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from svc.cli.globals import GlobalOptions, Invocation
from svc.cli.install.modes import RegistryFlags
from svc.cli.install.progress import shown
from svc.cli.install.registries import Access, with_password, work_with
from svc.cli.output import Console
from svc.install.registry.credentials import REGISTRY
from svc.install.registry.references import parse_registry
from svc.install.release.keys import release_keys
from svc.install.release.package import PackageFile, verify_package
from svc.install.remote import push_package, push_size


def arguments_of(given: Sequence[str]) -> argparse.Namespace:
    """Read the arguments."""
    parser = argparse.ArgumentParser(
        prog="bin/release push",
        allow_abbrev=False,
        description="Verify a package, and push its images, its chart and the release itself to a registry. The "
        "release comes last: where svc install finds it, everything is there.",
        epilog="Without --username the credentials are those of SVC_CUSTOMER_DEPLOYMENT_USERNAME and _PASSWORD, or of "
        "~/.docker/config.json and its like.",
    )
    parser.add_argument("package", metavar="FILE", help="what bin/release package made, with all platforms")
    parser.add_argument("--registry", required=True, metavar="HOST[:PORT][/PREFIX]", help="where it goes")
    parser.add_argument("--release-key", required=True, metavar="FILE", help="the public key that verifies it")
    parser.add_argument("--latest", action="store_true", help="let it be the release latest, too")
    parser.add_argument("--username", default="", help="of the registry")
    parser.add_argument("--password", default="", help="of the user; - reads it from standard input")
    parser.add_argument("--ca-file", default="", metavar="FILE", help="authorities that are trusted for the registry")
    parser.add_argument("--insecure", action="store_true", help="reach the registry by HTTP")
    return parser.parse_args(given)


def push(given: Sequence[str]) -> None:
    """
    Run it.

    Raises:
        SvcError: the package is refused, or the registry does not take it.
    """
    arguments = arguments_of(given)
    invocation = Invocation(Console(sys.stdout.buffer, sys.stderr.buffer, os.environ), os.environ, sys.stdin.buffer)
    registry = parse_registry(arguments.registry)
    flags = RegistryFlags(
        arguments.registry, arguments.username, arguments.password, arguments.ca_file, arguments.insecure
    )
    flags = with_password(flags, REGISTRY, invocation)
    with PackageFile(arguments.package) as file:
        package = verify_package(file, release_keys([arguments.release_key], {}))

        async def work(access: Access) -> None:
            with shown("push", push_size(package)) as added:
                await push_package(registry, access.client, package, added, latest=arguments.latest)

        work_with(work, registry, flags, REGISTRY, GlobalOptions(), invocation)
    version = package.signed.release.version
    print(f"release: {registry}/svc/release:{version}" + (" and latest" if arguments.latest else ""))
