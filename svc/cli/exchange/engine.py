"""
What runs an exchange: the reactor, or a double in tests.

Owns the interface alone, so that nothing else of the command line needs Twisted to name it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from svc.cli.exchange.conduct import Means
    from svc.cli.exchange.plan import CurlPlan
    from svc.cli.globals import Invocation

_T = TypeVar("_T")

Work = Callable[["Means"], Coroutine[Any, Any, _T]]


class Engine(Protocol):
    """Runs a coroutine that needs the network to its end."""

    def run(self, plan: CurlPlan, invocation: Invocation, work: Work[_T]) -> _T:
        """
        Run the work.

        Args:
            plan: says which server, which trust and how long.
            invocation: the standard streams, for log records.
            work: gets the means of the network.

        Returns:
            What the work returns; its errors are raised.
        """
