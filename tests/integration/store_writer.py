"""
A process that stores records and reports which are acknowledged; run with ``python -m``.

``endless PATH ROUND`` writes until it is killed, every second record in a batch with what waits.
``limited PATH`` writes until the system lets its files grow no further, then lifts that limit and writes on; its result
is one JSON object. ``ending PATH`` stores ``r1``, reports it, puts ``r2`` as soon as it reads a line, and ends as the
proxy does.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from svc.process.lifecycle import stop_with_failure
from svc.store.errors import StoreError, StoreUnavailable
from svc.store.records import StoredReceipt
from svc.store.sqlite import SqliteStore
from svc.telemetry.log_writer import LogWriter
from tests.store.doubles import RecordingObserver, batch, receipt, statement


def make_store(path: str, observer: RecordingObserver, **options: Any) -> SqliteStore:
    """Open the store on the real reactor."""
    store = SqliteStore(
        path,
        reactor=reactor,  # type: ignore[arg-type]
        observer=observer,
        reserve_size=256 * 1024,
        retry_interval=0.05,
        **options,
    )
    store.init()
    return store


def together(names: Sequence[str]) -> list[StoredReceipt]:
    """Complete drafts as one batch."""
    return [replace(each, nonce=each.id) for each in batch(*names, filler="x" * 4096)]


class Endless:
    """Keeps some records in flight and prints the id of each acknowledged one."""

    def __init__(self, store: SqliteStore, label: str) -> None:
        self._store = store
        self._label = label
        self._count = 0

    def next(self) -> None:
        """Put one more."""
        self._count += 1
        name = f"{self._label}-{self._count}"
        put: Deferred[Any]
        if self._count % 2:
            put = self._store.put_receipt(receipt(name, nonce=name, filler="x" * 4096))
        else:
            put = self._store.put_draft(name, together)
        put.addCallback(self._acknowledged, name)
        put.addErrback(lambda failure: os.write(2, failure.getTraceback().encode()))

    def _acknowledged(self, _record: object, name: str) -> None:
        os.write(1, name.encode() + b"\n")
        self.next()


async def limited(path: str) -> dict[str, Any]:
    """Write into a limit and out of it."""
    observer = RecordingObserver()
    store = make_store(path, observer)
    await store.put_statement(statement("s1"))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (512 * 1024, hard))
    acknowledged: list[str] = []
    refusal: StoreError | None = None
    for number in range(400):
        try:
            await store.put_receipt(receipt(f"r{number}", filler="x" * 4096))
        except StoreUnavailable as error:
            refusal = error
            break
        acknowledged.append(f"r{number}")
    writable_at_the_limit = store.writable
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    for _turn in range(2000):
        if store.writable:
            break
        await deferLater(reactor, 0.02)
    await store.put_receipt(receipt("after"))
    missing = [name for name in [*acknowledged, "after"] if await store.get_receipt(name) is None]
    await store.close()
    return {
        "acknowledged": len(acknowledged),
        "reason": None if refusal is None else refusal.reason,
        "writableAtTheLimit": writable_at_the_limit,
        "writable": observer.writable,
        "errors": sorted({f"{op} {entity}" for op, entity in observer.errors}),
        "missing": missing,
    }


async def ending(path: str) -> None:
    """End while another process holds the lock of the database."""
    # The first record may take its time.
    first = make_store(path, RecordingObserver())
    await first.put_receipt(receipt("r1", nonce="r1", filler="x" * 4096))
    await first.close()
    store = make_store(path, RecordingObserver(), commit_timeout=1.0)
    os.write(1, b"r1 stored\n")
    sys.stdin.readline()
    put = store.put_receipt(receipt("r2"))
    put.addCallbacks(lambda _none: os.write(1, b"r2 stored\n"), lambda failure: _report_failure("r2", failure))

    def close() -> Deferred[None]:
        return store.close().addErrback(failed)

    def failed(failure: Failure) -> None:
        _report_failure("close", failure)
        stop_with_failure(reactor, LogWriter(2, lambda missing: b""))

    reactor.addSystemEventTrigger("before", "shutdown", close)
    reactor.stop()


def _report_failure(name: str, failure: Failure) -> None:
    os.write(1, f"{name} {type(failure.value).__name__}\n".encode())


def main() -> None:
    """Run the mode that the arguments select."""
    if sys.argv[1] == "endless":
        work = Endless(make_store(sys.argv[2], RecordingObserver()), sys.argv[3])
        for _number in range(20):
            reactor.callWhenRunning(work.next)
    elif sys.argv[1] == "ending":
        reactor.callWhenRunning(lambda: Deferred.fromCoroutine(ending(sys.argv[2])))
    else:
        done = Deferred.fromCoroutine(limited(sys.argv[2]))
        done.addCallback(lambda result: print(json.dumps(result)))
        done.addErrback(lambda failure: failure.printTraceback())
        done.addBoth(lambda _result: reactor.stop())
    reactor.run()


if __name__ == "__main__":
    main()
