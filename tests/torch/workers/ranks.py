"""Training runs on one process or on several: whole, replicated (DDP) or sharded (FSDP2), and their checkpoints.

    python ranks.py JOB FOLDER RANK

One of two processes that do a job together: "train", "die" or "resume". What came of it is written to
FOLDER/JOB-RANK.json. Tests import the runs too, to do them in a process of their own.
"""

import datetime
import functools
import hashlib
import json
import os
import signal
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from samuel.torch import Samuel

RANKS = 2
ROWS = 16
STEPS, FLIP = 160, 80
"""Of a long run; at the flip, everything that was learned becomes wrong."""
SHORT, SHORT_FLIP, SAVED, KILLED = 40, 12, 21, 25
"""The same of a short run; after how many steps it is saved, in the middle of all its blocks, and then killed."""

CLIP = 1.0
"""Where gradients are clipped, that is most of them."""

LONG_RUNS = {
    "adam": {"base": "adam"},
    "weight decay": {"base": "adam", "weight_decay": 0.3, "steps": 2 * STEPS, "average": True},
    "a class": {"base": functools.partial(torch.optim.SGD, momentum=0.9), "clip": 1.0},
}
SHORT_RUNS = {
    "adam": {"base": "adam"},
    "a class with 16-bit state": {"base": torch.optim.Adagrad, "state_dtype": torch.bfloat16, "steps": SHORT},
    "16-bit parameters": {"base": "adam", "dtype": torch.bfloat16},
    "muon without matrices": {"base": "muon", "role": "table"},
}
WHOLE_RUNS = {"muon": {"base": "muon"}}
"""Of bases that need whole parameters; as long as the long ones."""
MESHES = {"two replicas of one shard": (2, 1), "one replica of two shards": (1, 2)}
"""Ways to spread the middle layer, where each process has all of the others."""
FORMS = ("sharded", "flattened", "full")
"""Of a checkpoint: a part for each process, the same with plain names, or everything in one file.

The last one can be read by every process, or, "from the first", by one that tells the others.
"""


def batch_of(step, flip, dtype):
    """Inputs and targets that the network can learn; from the flip on, the opposite ones."""
    inputs = torch.randn(ROWS, 5, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
    targets = (2 if step < flip else -2) * inputs[:, :1]
    return inputs.to(dtype), targets.to(dtype)


class Scaled(torch.nn.Module):
    """What comes in, times a buffer, which every step of training brings nearer to 1."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor(1.5))

    def forward(self, inputs):
        return inputs * self.scale


def network(dtype, seed):
    """Layers of 7, 3 and 1 rows: on two processes some shards are larger than others, and some are empty."""
    torch.manual_seed(seed)
    parts = [torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)]
    return torch.nn.Sequential(*parts, Scaled()).to(dtype)


class Training:
    """A run, as far as it has come.

    Args:
        options: of `Samuel`, and `dtype`, the `role` of what has two dimensions, and whether the network is `known`.
        spread: "whole", "replicated", "sharded", or one of `MESHES`.
        flip: the step from which on targets are the opposite.
        parts: in how many parts the gradient of a batch is accumulated.
        clip: the largest norm that the gradient may have.
        seed: of the first parameters.
        tested: whether the averaged parameters are tested after every tenth step.
    """

    def __init__(self, options, spread="whole", flip=FLIP, parts=1, clip=None, seed=0, tested=False):
        # Double precision, because float32 rounds the gradient of a batch otherwise than the mean of its halves', and
        # steps that are divided by a gradient's own size make much of that.
        options = {"dtype": torch.float64, **options}
        self.dtype, role, known = options.pop("dtype"), options.pop("role", None), options.pop("known", True)
        self.spread, self.flip, self.parts, self.clip, self.tested = spread, flip, parts, clip, tested
        self.rank, self.ranks = (0, 1) if spread == "whole" else (dist.get_rank(), dist.get_world_size())
        self.network = self.model = network(self.dtype, seed)
        if spread == "replicated":
            self.model = DistributedDataParallel(self.network)
        if spread == "sharded":
            fully_shard(self.network[0])
            fully_shard(self.network)  # what is left
        if spread in MESHES:
            mesh = init_device_mesh("cpu", MESHES[spread], mesh_dim_names=("replicas", "shards"))
            fully_shard(self.network[2], mesh=mesh)
        self.params = list(self.network.parameters())
        params = self.network if known else self.network.parameters()
        self.optimizer = Samuel(params, **options) if role is None else None
        if role is not None:  # of all that could be matrices
            params = [{"params": [p], "role": role if p.ndim > 1 else "vector"} for p in self.params]
            self.optimizer = Samuel(params, **{"average": False, **options})
        self.rates, self.losses, self.shifted, self.tests = [], [], [], []

    def run(self, start, stop):
        for step in range(start, stop):
            self.step(step)
        return self

    def step(self, number):
        inputs, targets = batch_of(number, self.flip, self.dtype)
        own = slice(self.rank * ROWS // self.ranks, (self.rank + 1) * ROWS // self.ranks)
        inputs, targets = inputs[own].chunk(self.parts), targets[own].chunk(self.parts)

        def closure():
            self.optimizer.zero_grad()
            total = 0.0
            for part, (some, wanted) in enumerate(zip(inputs, targets, strict=True)):
                with self._synchronising(part == self.parts - 1):
                    loss = (self.model(some) - wanted).square().mean() / self.parts
                    loss.backward()
                total += loss.item()
            if self.spread in MESHES:
                self._average_what_is_whole()
            if self.clip is not None:
                torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.clip)
            return total

        for buffer in self.network.buffers():
            buffer.lerp_(torch.ones_like(buffer), 0.05)
        before = self.optimizer.shifts
        self.losses.append(self.optimizer.step(closure))
        self.rates.append([float(group["effective_lr"]) for group in self.optimizer.param_groups])
        if self.optimizer.shifts > before:
            self.shifted.append(number)
        if self.tested and number % 10 == 9:
            self.tests.append(self.averaged()[-1])

    @torch.no_grad()
    def averaged(self):
        """The parameters and buffers to use, and what comes of them."""
        self.model.eval()
        with self.optimizer.averaged():
            answers = self.model(batch_of(0, self.flip, self.dtype)[0])
            found = [whole(tensor).clone() for tensor in (*self.params, *self.network.buffers())]
        self.model.train()
        return [tensor.flatten().tolist() for tensor in (*found, answers)]

    def _synchronising(self, last):
        if self.spread == "replicated" and not last:
            return self.model.no_sync()
        if self.spread == "sharded":
            self.network.set_requires_gradient_sync(last)
        return nullcontext()

    def _average_what_is_whole(self):
        for p in self.network.parameters():
            if not isinstance(p, DTensor):
                dist.all_reduce(p.grad)
                p.grad /= self.ranks

    def facts(self):
        """What can be compared with another run. Python writes floats to JSON so that they come back to the bit."""
        params, state = self.params, self.optimizer.state
        return {
            "parameters": [whole(p).flatten().tolist() for p in params],
            "weights": self.optimizer.weights().tolist(),
            "rates": self.rates,
            "losses": self.losses,
            "shifted": self.shifted,
            "tests": self.tests,
            "averaged": self.averaged(),
            "state": digest(state[p] for p in params),
            "sizes": [local(p).numel() for p in params],
            "misplaced": [name for p in params for name in state[p] if misplaced(name, state[p][name], p)],
        }

    # Checkpoints

    def save(self, folder, form):
        """Every process saves its part; of the full forms, the first saves all."""
        saved = self._state(form)
        if form in ("sharded", "flattened"):
            dcp.save(saved, checkpoint_id=folder)
        elif self.rank == 0:
            folder.mkdir(parents=True)
            torch.save(saved, folder / "all.pt")

    def load(self, folder, form):
        """Go on from what was saved."""
        if form in ("sharded", "flattened"):
            saved = self._state(form)
            dcp.load(saved, checkpoint_id=folder)
        elif form == "full" or self.rank == 0:
            saved = torch.load(folder / "all.pt", weights_only=True)
        else:
            saved = {"model": {}, "optimizer": {}}
        set_model_state_dict(self.network, saved["model"], options=options_of(form))
        set_optimizer_state_dict(self.network, self.optimizer, saved["optimizer"], options=options_of(form))

    def _state(self, form):
        options = options_of(form)
        return {
            "model": get_model_state_dict(self.network, options=options),
            "optimizer": get_optimizer_state_dict(self.network, self.optimizer, options=options),
        }


def options_of(form):
    return {
        "sharded": StateDictOptions(),
        "flattened": StateDictOptions(flatten_optimizer_state_dict=True),
        "full": StateDictOptions(full_state_dict=True, cpu_offload=True),
        "from the first": StateDictOptions(full_state_dict=True, cpu_offload=True, broadcast_from_rank0=True),
    }[form]


def whole(tensor):
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach()


def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def misplaced(name, entry, p):
    """Whether a vector in the state of a parameter is not spread over the processes as that is."""
    vector = entry.ndim > 0
    return vector and isinstance(p, DTensor) and getattr(entry, "placements", None) != p.placements


def digest(state):
    """A sum over everything that this process holds of the state of some parameters."""
    found = hashlib.sha256()
    for entries in state:
        for name in sorted(entries):
            found.update(name.encode())
            found.update(local(entries[name]).contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


# Jobs


def train(folder):
    """Every run on two processes, and checkpoints of the short ones."""
    runs = {}
    for spread in ("replicated", "sharded"):
        for name, options in LONG_RUNS.items():
            runs[f"{spread}: {name}"] = lambda spread=spread, options=options: (
                Training(options, spread).run(0, STEPS).facts()
            )
        runs[f"{spread}: tested"] = lambda spread=spread: (
            Training(SHORT_RUNS["adam"], spread, SHORT_FLIP, tested=True).run(0, SHORT).facts()
        )
        runs[f"{spread}: accumulated"] = lambda spread=spread: (
            Training(SHORT_RUNS["adam"], spread, SHORT_FLIP, parts=2, clip=CLIP).run(0, SHORT).facts()
        )
    for spread in MESHES:
        runs[spread] = lambda spread=spread: Training(SHORT_RUNS["adam"], spread, SHORT_FLIP).run(0, SHORT).facts()
    for name, options in WHOLE_RUNS.items():
        for spread in ("replicated", "two replicas of one shard"):
            runs[f"{spread}: {name}"] = lambda spread=spread, options=options: (
                Training(options, spread).run(0, STEPS).facts()
            )
    runs["split matrices"] = lambda: refused({"base": "muon"})
    for name, options in SHORT_RUNS.items():
        runs[f"saved: {name}"] = lambda name=name, options=options: run_and_save(options, folder / name)
    runs["not known"] = lambda: refused({"base": "adam", "known": False})
    runs["never saved"] = lambda: Training(SHORT_RUNS["adam"], "sharded", SHORT_FLIP).run(0, SHORT).facts()
    return runs


def refused(options):
    """What is said about an optimizer of a sharded network."""
    try:
        Training(options, "sharded")
    except ValueError as error:
        return {"said": str(error)}


def run_and_save(options, folder):
    """A short run that is saved on its way, in every form."""
    training = Training(options, "sharded", SHORT_FLIP).run(0, SAVED)
    for form in FORMS:
        training.save(folder / form, form)
    return training.run(SAVED, SHORT).facts()


def die(folder):
    """A short run of which one process is killed, some steps after the checkpoint."""

    def killed():
        training = Training(SHORT_RUNS["adam"], "sharded", SHORT_FLIP).run(0, SAVED)
        training.save(folder / "killed", "sharded")
        training.run(SAVED, KILLED)
        if training.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return training.run(KILLED, SHORT).facts()

    return {"killed": killed}


def resume(folder):
    """Go on from all checkpoints that the other jobs, or a single process, have left."""
    runs = {}
    for name, options in SHORT_RUNS.items():
        for form in FORMS:
            runs[f"{form}: {name}"] = lambda name=name, options=options, form=form: go_on(
                options, folder / name / form, form
            )
    runs["from the first: adam"] = lambda: go_on(SHORT_RUNS["adam"], folder / "adam" / "full", "from the first")
    runs["killed"] = lambda: go_on(SHORT_RUNS["adam"], folder / "killed", "sharded")
    runs["one process"] = lambda: go_on(SHORT_RUNS["adam"], folder / "one process", "sharded")
    return runs


def go_on(options, folder, form, spread="sharded"):
    """The rest of a short run; what it begins with, before it loads the checkpoint, is another network."""
    training = Training(options, spread, SHORT_FLIP, seed=1)
    training.load(folder, form)
    return training.run(SAVED, SHORT).facts()


def main(job, folder, rank):
    torch.set_num_threads(1)
    folder = Path(folder)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / job}-meeting",
        rank=int(rank),
        world_size=RANKS,
        timeout=datetime.timedelta(seconds=60),
    )
    found = {}
    for name, run in JOBS[job](folder).items():
        try:
            found[name] = run()
        except (Exception, CheckpointException):
            # The runs so far have something to tell. Those to come would wait for a process that may do something else.
            found[name] = {"error": traceback.format_exc()}
            break
    (folder / f"{job}-{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


JOBS = {"train": train, "die": die, "resume": resume}

if __name__ == "__main__":
    main(*sys.argv[1:])
