"""Several pieces of work at the same time, each in a process of its own, with progress told to the one that asked."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def each(
    work: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], jobs: int, step: Callable[[str], None]
) -> list[Any]:
    """`work(*arguments, step)` for each of the arguments, so many at a time; the results in order.

    Args:
        work: a function of a module, so that another process finds it.
        arguments: what it is called with; they must pickle, and so must results.
        jobs: how many processes there are at most.
        step: called here with every text that the work calls its own `step` with.

    Raises:
        Exception: the first that a piece of work raised; the others are ended then.
        RuntimeError: if a process ended before its work did.
    """
    context = multiprocessing.get_context("spawn")
    waiting, results = list(enumerate(arguments)), [None] * len(arguments)
    running: dict[Connection, tuple[int, Any]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                place, own = waiting.pop(0)
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(work, own, theirs), daemon=True)
                with _one_thread_each():
                    process.start()
                theirs.close()
                running[ours] = place, process
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                place, process = running[ready]
                try:
                    kind, value = ready.recv()
                except EOFError:
                    process.join()
                    raise RuntimeError(
                        f"the process that works on part {place + 1} of {len(arguments)} ended with exit code "
                        f"{process.exitcode}"
                    ) from None
                if kind == "step":
                    step(value)
                elif kind == "failed":
                    raise value
                else:
                    results[place] = value
                    process.join()
                    ready.close()
                    del running[ready]
    finally:
        for connection, (_, process) in running.items():
            process.terminate()
            process.join()
            connection.close()
    return results


def _serve(work: Callable[..., Any], arguments: tuple[Any, ...], connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one that asked is interrupted too, and ends us
    try:
        message = "result", work(*arguments, lambda what: connection.send(("step", what)))
    except Exception as error:
        message = "failed", error
    connection.send(message)


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes that start here do their linear algebra in one thread: there is one process for every core."""
    added = [name for name in THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
