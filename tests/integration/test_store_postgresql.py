"""The store on a real PostgreSQL server keeps every promise of a store."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from twisted.trial.unittest import SynchronousTestCase

from svc.store.postgresql.store import PostgresStore
from tests.peers.postgresql import RunningPostgres
from tests.peers.waiting import Shared
from tests.store.doubles import InlineReactor, InlineThread
from tests.store.test_contract import STEPS, AgreementMixin, ContractMixin

SERVER = Shared(RunningPostgres)
EMPTY = "DROP SCHEMA IF EXISTS svc_notary CASCADE"


def make_store(**options: Any) -> PostgresStore:
    """A store that works on the caller's thread."""
    given = {"reactor": InlineReactor(), "start_thread": InlineThread}
    return PostgresStore(SERVER.get().address(), **(given | options))  # type: ignore[arg-type]


class PostgresContractTests(ContractMixin, SynchronousTestCase):
    """The promises of every store, over the server's socket."""

    def make_store(self) -> Any:
        SERVER.get().admin(EMPTY)
        return make_store()


class PostgresAgreementTests(AgreementMixin, SynchronousTestCase):
    """The store on a server and the double return the same results."""

    def make_store(self) -> Any:
        server = SERVER.get()
        if server.admin("SELECT to_regclass('svc_notary.receipt')")[0][0] is not None:
            tables = ("receipt", "workload_statement", "certificate_set", "reservation")
            server.admin(*(f"DELETE FROM svc_notary.{table}" for table in tables))
        return make_store()

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(STEPS)
    def test_any_sequence_gives_the_same_answers(self, steps: list[tuple[Any, ...]]) -> None:
        """After any puts and prunings every answer of the two stores is the same."""
        self.assert_agreement(steps)
