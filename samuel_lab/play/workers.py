"""Parallel work in processes, with progress reported to the caller."""

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
    """Call `work(*arguments, step)` for each of the arguments in parallel; returns the results in order.

    Args:
        work: a module-level function, so that it can be pickled.
        arguments: of each call; they and the results must be picklable.
        jobs: maximum number of processes.
        step: called in this process with every text that `work` passes to its own `step`.

    Raises:
        Exception: the first that `work` raised; the other processes are then terminated.
        RuntimeError: if a process ended before its work was done.
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and terminates this process
    try:
        message = "result", work(*arguments, lambda what: connection.send(("step", what)))
    except Exception as error:
        message = "failed", error
    connection.send(message)


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """Limit the linear algebra of new processes to one thread: there is one process per core."""
    added = [name for name in THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
