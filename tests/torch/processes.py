"""Processes of a group, forked from a server that has imported torch: starting one costs milliseconds."""

import multiprocessing
import os
import pickle
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist

PATIENCE = 300  # seconds, on a busy machine
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["torch.distributed.fsdp", "torch.distributed.tensor.parallel", "samuel.torch"])


def run_ranks(work, size, folder, *arguments):
    """Call `work(rank, size, *arguments)` in as many processes, which form a gloo group; what each returned.

    Of a process that was killed, it is the number of the signal.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pipes = [SERVER.Pipe(duplex=False) for _ in range(size)]
    processes = [
        SERVER.Process(target=_rank, args=(sender, work, rank, size, folder, arguments))
        for rank, (_, sender) in enumerate(pipes)
    ]
    try:
        for process in processes:
            process.start()
        for _, sender in pipes:
            sender.close()
        found = []
        for process, (receiver, _) in zip(processes, pipes, strict=True):
            assert receiver.poll(PATIENCE), "a process neither ended nor failed"
            try:
                ended_well, result = pickle.loads(receiver.recv_bytes())
            except EOFError:
                process.join()
                ended_well, result = True, -process.exitcode
            assert ended_well, result
            found.append(result)
        return found
    finally:
        for process in processes:
            process.kill()
            process.join()
        for receiver, _ in pipes:
            receiver.close()


def _rank(sender, work, rank, size, folder, arguments):
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size, timeout=timedelta(seconds=60)
        )
        result = work(rank, size, *arguments)
        sender.send_bytes(pickle.dumps((True, result)))  # not as shared memory
        dist.destroy_process_group()
    except BaseException:
        sender.send_bytes(pickle.dumps((False, traceback.format_exc())))
