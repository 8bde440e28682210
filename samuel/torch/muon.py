"""Muon for all parameters of a network: matrices by their momentum made orthogonal, everything else by Adam."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from samuel.torch import lists
from samuel.torch.shelf import dressed, is_split, raw

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the iteration `X <- a X + b (X X') X + c (X X')^2 X`: they lift small singular values fast, to about 1."""
ITERATIONS = 5
"""After which singular values of more than 0.003 of the matrix's norm are between 0.68 and 1.21."""
SIZE = 0.2
"""Root mean square of the entries of a step at a rate of 1: about that of Adam's, so that the two can share a rate."""


class MatrixMuon(Optimizer):
    """Move every matrix along its momentum made orthogonal, so that all directions in it move alike: Muon.

        matrices:          m <- momentum m + (1 - momentum) g,      step = lr 0.2 sqrt(larger side) orthogonal(m')
        everything else:   Adam, with m' in place of m

    Here `m'` is Nesterov's: the mean as it will be if the next gradient is like this one, free of its start at 0; and
    `orthogonal` takes `U S V'` to about `U V'`, by five steps of an iteration of Newton and Schulz. The factor gives a
    step entries as large as Adam's, so Adam's learning rates are usual for both kinds of parameters.

    A parameter of two or more dimensions is a matrix of outputs (the first of them) times everything else, as torch's
    linear layers and convolutions are laid out. Tables of word vectors look like matrices and are none, since their
    rows are not used together: put embeddings, and an output layer that shares their weights, into a group with
    `matrices=False`. A matrix must be whole in every process.

    It is what `Samuel(params, "muon")` runs on, and not `torch.optim.Muon`, which takes matrices only and works in 16
    bits. Jordan 2024; the factor is of Liu et al. 2025, "Muon is scalable for LLM training".

    Args:
        params: parameters or parameter groups.
        lr: the learning rate.
        momentum: how much of the mean of a matrix's gradients is kept in a step.
        betas: the same of the means of gradients and of their squares, for Adam.
        eps: keeps both kinds of steps finite where gradients vanish.
        matrices: whether parameters of two or more dimensions are matrices; if not, Adam gets them, too.

    >>> import torch
    >>> from samuel.torch import MatrixMuon
    >>> w = torch.nn.Parameter(torch.zeros(2, 2))
    >>> optimizer = MatrixMuon([w], lr=1.0)
    >>> w.grad = torch.diag(torch.tensor([1.0, 100.0]))
    >>> optimizer.step()
    >>> bool(w[0, 0] < 0.5 * w[1, 1] < 0)  # downhill, and alike, though one gradient was a hundredth of the other
    True
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        matrices: bool = True,
    ) -> None:
        options = {"lr": lr, "momentum": momentum, "betas": betas, "eps": eps, "matrices": matrices}
        # For torch, when it loads a state: counts of steps are where their parameters are, so nobody waits for them.
        super().__init__(params, {**options, "capturable": True})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, also in the middle of a run.

        >>> optimizer = MatrixMuon([torch.zeros(3, 2)])
        >>> optimizer.add_param_group({"params": [torch.zeros(100, 2)], "matrices": False})  # an embedding
        >>> [group["matrices"] for group in optimizer.param_groups]
        [True, False]
        """
        _check_options({**self.defaults, **param_group})
        super().add_param_group(param_group)
        try:
            refuse_split(self.param_groups[-1])
        except ValueError:
            self.param_groups.pop()
            raise

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take one step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        sorts = [self._sorted(group) for group in self.param_groups]  # all of them first: this may find fault
        for group, (matrices, others) in zip(self.param_groups, sorts, strict=True):
            for p in (*matrices, *others):
                if not self.state[p]:
                    self.state[p].update(_begun(p, is_matrix(p, group)))
            self._step_matrices(group, matrices)
            self._step_others(group, others)
        return loss

    def _sorted(self, group: dict[str, Any]) -> tuple[list[Tensor], list[Tensor]]:
        """The parameters of a group that have a gradient: matrices, and the others."""
        matrices: list[Tensor] = []
        others: list[Tensor] = []
        for p in group["params"]:
            if p.grad is None:
                continue
            begun = self.state.get(p)
            if begun and is_matrix(p, group) == ("exp_avg_sq" in begun):
                raise ValueError(
                    f"what is a matrix cannot change in a run: a parameter of shape {tuple(p.shape)} was trained "
                    f"with matrices={not group['matrices']}, and its group now says {group['matrices']}; begin anew"
                )
            (matrices if is_matrix(p, group) else others).append(p)
        return matrices, others

    def _step_matrices(self, group: dict[str, Any], params: list[Tensor]) -> None:
        beta = group["momentum"]
        self._average(params, beta)
        for alike in _alike(params, _sides):
            means = _stacked([_lying(self.state[p]["exp_avg"], p) for p in alike])
            ahead = _ahead(means, _stacked([_lying(p.grad, p) for p in alike]), beta, self._counts(alike))
            steps = orthogonal(ahead, group["eps"]).unbind()
            size = SIZE * max(_sides(alike[0])) ** 0.5
            _move(alike, [_standing(step, p) for step, p in zip(steps, alike, strict=True)], group["lr"] * size)

    def _step_others(self, group: dict[str, Any], params: list[Tensor]) -> None:
        b1, b2 = group["betas"]
        self._average(params, b1)
        squares, slopes = [raw(s) for s in self._entries(params, "exp_avg_sq")], [raw(p.grad) for p in params]
        if params:
            lists.mul_(squares, b2)
            lists.addcmul_(squares, slopes, slopes, value=1 - b2)
        for alike in _alike(params, lambda p: raw(p).shape):
            counts = self._counts(alike)
            means, squares = (_stacked(list(map(raw, self._entries(alike, key)))) for key in ("exp_avg", "exp_avg_sq"))
            ahead = _ahead(means, _stacked([raw(p.grad) for p in alike]), b1, counts)
            spread = (squares / _beside(1 - b2**counts, squares)).sqrt_().add_(group["eps"])
            _move(alike, list((ahead / spread).unbind()), group["lr"])

    def _average(self, params: list[Tensor], beta: float) -> None:
        """Let the gradients enter their means, and count them."""
        if params:
            lists.add_(self._entries(params, "step"), 1)
            lists.lerp_([raw(m) for m in self._entries(params, "exp_avg")], [raw(p.grad) for p in params], 1 - beta)

    def _entries(self, params: list[Tensor], key: str) -> list[Tensor]:
        return [self.state[p][key] for p in params]

    def _counts(self, params: list[Tensor]) -> Tensor:
        """How many gradients each has seen; in double precision, for powers of numbers near 1, where there is any."""
        counts = torch.stack(self._entries(params, "step"))
        return counts if counts.device.type == "mps" else counts.double()


def is_matrix(p: Tensor, options: dict[str, Any]) -> bool:
    """Whether a parameter of a group with these options is a matrix.

    >>> is_matrix(torch.zeros(8, 3, 5, 5), {"matrices": True}), is_matrix(torch.zeros(8), {"matrices": True})
    (True, False)
    """
    return options["matrices"] and p.ndim >= 2


def refuse_split(group: dict[str, Any]) -> None:
    """An error if a matrix of a parameter group is split over processes: none of them could make it orthogonal."""
    for p in group["params"]:
        if is_matrix(p, group) and is_split(p):
            raise ValueError(
                f"Muon needs whole matrices in every process, got one of shape {tuple(p.shape)} that is split over "
                "processes; use DDP, or base='adam', or a group with matrices=False, whose parameters go to Adam"
            )


def orthogonal(matrices: Tensor, eps: float = 1e-8) -> Tensor:
    """Matrices, none higher than wide, with all singular values brought near 1.

    >>> x = orthogonal(torch.tensor([[[3.0, 0.0, 0.0], [0.0, 0.1, 0.0]]]))
    >>> bool((torch.linalg.svdvals(x) - 1).abs().max() < 0.35)
    True
    """
    a, b, c = COEFFICIENTS
    x = matrices / (torch.linalg.vector_norm(matrices, dim=(-2, -1), keepdim=True) + eps)
    for _ in range(ITERATIONS):
        gram = x @ x.mH
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def _ahead(means: Tensor, gradients: Tensor, beta: float, counts: Tensor) -> Tensor:
    """Means of so many gradients as they will be if the next is like the last, free of their start at 0."""
    of_means, of_gradients = beta / (1 - beta ** (counts + 1)), (1 - beta) / (1 - beta**counts)
    return means * _beside(of_means, means) + gradients * _beside(of_gradients, means)


def _beside(factors: Tensor, stack: Tensor) -> Tensor:
    """A factor for every member of a stack, in its dtype."""
    return factors.to(stack.dtype).reshape(-1, *[1] * (stack.ndim - 1))


def _begun(p: Tensor, matrix: bool) -> dict[str, Tensor]:
    """What the state of a parameter begins with."""
    names = ("exp_avg",) if matrix else ("exp_avg", "exp_avg_sq")
    vectors = {name: torch.zeros_like(p, memory_format=torch.preserve_format) for name in names}
    return {"step": torch.zeros((), dtype=torch.float32, device=raw(p).device), **vectors}


def _alike(params: list[Tensor], look: Callable[[Tensor], Any]) -> list[list[Tensor]]:
    """Parameters that can be worked on in one go, because they look alike."""
    found: dict[Any, list[Tensor]] = {}
    for p in params:
        found.setdefault((look(p), p.device, p.dtype), []).append(p)
    return list(found.values())


def _sides(p: Tensor) -> tuple[int, int]:
    """The sides of a matrix, the smaller one first."""
    outputs = p.shape[0]
    inputs = p.shape[1:].numel()
    return min(outputs, inputs), max(outputs, inputs)


def _lying(tensor: Any, p: Tensor) -> Tensor:
    """A tensor of the kind of a parameter as a matrix that is not higher than wide; orthogonal either way."""
    matrix = dressed(raw(tensor), p).flatten(1)
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.mT


def _standing(matrix: Tensor, p: Tensor) -> Tensor:
    """What `_lying` made a matrix of, as the numbers of the parameter."""
    upright = matrix if matrix.shape[0] == p.shape[0] else matrix.mT
    return raw(upright.reshape(p.shape))


def _stacked(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors of one shape in one, with 32 bits or more: of 16, sums of products would leave little."""
    stack = torch.stack(list(tensors))
    return stack.to(torch.promote_types(stack.dtype, torch.float32))


def _move(params: list[Tensor], steps: list[Tensor], rate: Any) -> None:
    lists.add_([raw(p) for p in params], steps, alpha=-float(rate))


def _check_options(options: dict[str, Any]) -> None:
    if not options["lr"] >= 0:
        raise ValueError(f"lr must be at least 0, got {options['lr']!r}")
    if not options["eps"] >= 0:
        raise ValueError(f"eps must be at least 0, got {options['eps']!r}")
    for name, value in (("momentum", options["momentum"]), *(("betas", beta) for beta in options["betas"])):
        if not 0 <= value < 1:
            raise ValueError(f"{name} must be at least 0 and below 1, got {options[name]!r}")
    if not isinstance(options["matrices"], bool):
        raise ValueError(f"matrices must be True or False, got {options['matrices']!r}")
