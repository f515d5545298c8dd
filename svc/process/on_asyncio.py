"""Daemons that run on Twisted's asyncio reactor, which libraries for asyncio need."""

from __future__ import annotations

import asyncio

from twisted.internet import asyncioreactor

from svc.errors import SvcError
from svc.process.options import ProcessOptions


class WrongReactor(SvcError):
    """{daemon} needs the asyncio reactor, and {found} is installed"""

    reason = "wrong_reactor"
    hint = "leave --reactor away, or pass --reactor=asyncio"


class AsyncioOptions(ProcessOptions):
    """
    The options of a daemon on the asyncio reactor.

    ``twistd`` parses them before anything imports a reactor, so that it is installed there and ``--reactor`` is not
    needed.
    """

    def install_reactor(self) -> None:
        """Install the asyncio reactor, with its event loop as the current one, which libraries use."""
        loop = asyncio.SelectorEventLoop()
        asyncio.set_event_loop(loop)
        asyncioreactor.install(loop)


def require_asyncio(reactor: object, daemon: str) -> None:
    """Raise :class:`WrongReactor` unless the asyncio reactor is installed."""
    if not isinstance(reactor, asyncioreactor.AsyncioSelectorReactor):
        raise WrongReactor(daemon=daemon, found=type(reactor).__name__)
