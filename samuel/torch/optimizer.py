"""SAMUEL as a PyTorch optimizer: the learning rate that tunes itself, at one gradient a step."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from samuel.core import weights as mw
from samuel.core.cover import Cover
from samuel.core.options import one_of
from samuel.core.rays import Certificate, Rays, certify, check_rates
from samuel.core.rules import follow
from samuel.torch import bases, experts
from samuel.torch.average import AVERAGE, BUFFER, BufferAverages, averaged_buffers, swapped
from samuel.torch.decision import RAYS, Decision, experts_of, refuse_entries
from samuel.torch.experts import Buffers, Population
from samuel.torch.panel import Panel, usual_panel
from samuel.torch.shelf import NEGLIGIBLE, is_spread

_COMMON_OPTIONS = ("cover", "Q", "combine", "newborns", "prior")
_RAY_OPTIONS = (
    "horizon",
    "scale",
    "decay",
    "lag",
    "reference",
    "short_rates",
    "takeover",
    "collapse",
    "alarm",
    "settle",
    "experience",
    "patience",
    "average",
    "base_state",
)


class Samuel(Optimizer):
    """An optimizer that finds its learning rate while it trains, and finds it again when the data shift.

    Every candidate rate is an expert that stands where training with that rate alone would have taken the directions
    of the base since its block began; the parameters are a weighted mean of the experts. All of them are judged by the
    one gradient that is taken at the parameters. See `samuel.core.rays` for the formulas.

    Use it as any torch optimizer: there is no learning rate to give, and nothing else of your training code changes.
    To test or save a network, `with optimizer.decision():` has parameters that are less noisy than those of the last
    step. There is no switch that could be forgotten: outside of it, the parameters are those that are trained.

    Args:
        params: parameters, named parameters, or parameter groups. Groups may have their own `lr`, `lrs`,
            `weight_decay`, `maximize` and options of the base. A group with `lrs` of its own finds a rate of its own;
            all others share one.
        base: what gives the directions: a torch optimizer class, or "adam", "muon", "adagrad", "momentum", "sgd". It
            steps at unit rate on tensors of its own. "muon" is `MatrixMuon`: embeddings should be in a group with
            `matrices=False`.
        lrs: the candidate rates. By default six decades in steps of half a decade, where people sweep for that base:
            from 1e-6 to 1 for Adam, Muon, momentum and any optimizer that we do not know, from 1e-5 to 10 for Adagrad
            and SGD without momentum. A long list costs nothing. With full or loss feedback every rate costs a training
            step and copies of the model, and there are four by default: 1e-5 to 1e-2, or 1e-4 to 0.1.
        lr: multiplies whatever rate is found; for schedulers. Leave it at 1.
        horizon: the number of steps of the whole run, if you know it: rates then fall linearly to 0 at its end, and a
            run that goes on beyond it begins another of that length. Without it they fall as the root of time.
        rule: the ready set of the options below. "samuel" (the default): one block, as long as the run, whose first
            rounds decide about the rate; it starts anew when the gradient leaps, and `decision` averages over its last
            ninth. "patient": the same, but slow to believe in small rates, for short runs of large networks. "R": the
            long block alone, which learns about rates to its end, no restart, no average; "K", "Kr": the same with
            short blocks beside it, restarting when they take over, judged against the mixture or against the long block
            (these three need a horizon). "levels": eight doubling blocks whose steps are mixed. "theorem": the paper's
            own weights on eight doubling blocks, with the guarantee on every interval where losses are convex.
        cover: which blocks run: `samuel.core.Watched`, `Anytime`, `Geometric`, `Fixed` or `Chosen`. With full or loss
            feedback `Fixed(256)` by default: one block at a time, and everyone starts anew from the parameters after
            256 steps.
        Q: with how many step sizes every weight is kept.
        scale: what gains are measured by: "rms" (each expert's own root mean square), "max" (the largest so far, which
            keeps the theorem), or a known bound.
        combine: "points" (the parameters are the mean of the experts' points) or "steps" (each step is the mean of
            their steps). With full feedback "sample" (an expert drawn by weight, the default), "best" (the heaviest) or
            "average" (their mean, which costs one more call); with loss feedback "average" (the default) or "best".
        newborns: experts of a new block start "fresh" at the parameters with their prior weight; "inherit" their
            block's mean and weight and add the prior; or "join" the other blocks at their mean, with their prior share
            of the weight. With full or loss feedback "fresh" (the default) or "inherit".
        prior: weight of a rate at birth, as a power of the rate. -0.5 makes wide lists safe: the long block starts with
            the geometric mean of the smallest and the largest rate. With full or loss feedback a list with the weight
            of every rate; equal by default.
        decay: how rates fall over a block: "none", "linear" or "sqrt".
        lag: experts are judged at a moving average of their positions with this factor; 0 judges them where they are.
            By default, under the rules "samuel" and "patient", 0.5, and over "muon", which remembers longer, 0.67.
        reference: experts are compared with the whole "mixture" or with the mean of the "long" block.
        short_rates: rates that newborns of shorter blocks carry: "all", or those "above" the long block's.
        takeover: restart everything when the long block's share of the weight falls below this; 0 for never.
        collapse: restart everything when the long block's rate falls below this part of its slow average: the run
            would rather go back than on. 0 for never.
        alarm: restart everything when two gradients in a row have a square of more than this times the mean, that since
            the last restart and that of about the last hundred: the data have shifted. What is known about rates is
            kept; `experience` says how much new evidence it takes to change it. 0 for never. Gradients that were
            clipped before they come here cannot leap.
        settle: what the block's round `n` says about rates counts `(1 + n / settle) ** -1.5`: after some hundred rounds
            the rate hardly moves, as it should when a network is about to settle. The rule "samuel" has 100; 0 for no
            end of learning, as in the others.
        experience: once the data have shifted, what a block says about rates counts as if the block were this many
            rounds older, or as many as there were before the shift if that is less, up to the next horizon: it
            begins with what was learned before, and the rate need not be found anew. Rates then begin with a half and
            are whole again after `settle` rounds. 0 for a block that learns as the first one did. The rules "samuel"
            and "patient" have 1000 over "muon", and 0 over other bases. It needs `settle`.
        patience: what speaks for smaller rates in the run's round `n` counts `1.5 n / (n + patience)` times what it
            would: less at first, because a network's first steps are noisy and look worse than they are, and half as
            much again in the end. It counts in full where the square of the gradient is more than twice its mean so
            far, and once everything has begun anew, after a shift or a horizon. Meant for one long block. The rule
            "patient" has 100; 0 for no such thing, as in the others.
        average: `decision` averages the parameters with weights that grow as this power of the time since the last
            restart, 8 for about its last ninth; 0 for no average, which saves a copy of the parameters.
        base_state: "shared" by all blocks, or one for each of the "slots". A base that never forgets (Adagrad) should
            have one for each, where there are several.
        weight_decay: decoupled: in every step parameters shrink by this times the learning rate in use. By default
            what the base itself would do, if it decouples (AdamW: 0.01), otherwise 0.
        anchor_dtype: dtype of the vectors that are only read between block ends, such as `torch.bfloat16`.
        maximize: climb instead of descending.
        foreach: work on all parameters at once (the default), or in a plain loop over them (False), which is slow and
            the reference that the other is tested against.
        compiled: on a GPU, let `torch.compile` fuse the few hundred tiny operations on the experts' weights. Makes a
            step some 0.4 ms faster, which matters to small networks, and the third step about 20 s slower.
        feedback: what experts are judged by. "linear" (the default): the one gradient at the parameters; everything
            above is about this. "full": every expert is a copy of the model that trains by itself, and `step(closure)`
            calls the closure once for each, on its own parameters and buffers and with the same random numbers. "loss":
            the closure is called at every expert for its loss, and all follow the gradient at the parameters; with
            `step(closure, evaluate)` that is a forward pass each. There are (rates x blocks) experts. With "full" each
            of them is a copy of the model and of the base's state, and of the gradients during a step; with "loss" a
            copy of the model, and each block has one state of the base. A step waits for the device. An expert whose
            loss or parameters are not finite loses its weight until its block ends; a batch on which no expert has a
            finite loss changes nothing but the clock. With several processes the losses of all of them are averaged.
            Parameters must be whole in every process (no FSDP), and all groups share the rates.
        buffers: the model, or its buffers, such as batch statistics. A network with batch norm should give them: those
            of floating-point numbers are averaged along with the parameters, for `decision`; without this they stay as
            they are. A model that is sharded by FSDP must be given for `decision`, too. With feedback "full" every
            expert has buffers of its own; with "loss" experts do not touch them.
        bound: with full or loss feedback: how large the difference of two losses can be. Found out, and raised as
            needed, if not given.
        seed: decides who is drawn with combine="sample"; the same in all processes.
        base_options: options of the base, such as `betas=(0.9, 0.95)`. Of an option that both have, Samuel's is meant;
            bind the base's own with `functools.partial(torch.optim.SGD, weight_decay=1e-4)`. `capturable` is accepted
            for the sake of code that was written for other optimizers: on a GPU every step can be captured.

    Attributes:
        effective_lr: the learning rate in use. Every parameter group has its own under this name, too.

    >>> import torch
    >>> from samuel.torch import Samuel
    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = Samuel(model.parameters(), torch.optim.Adam)
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> for _ in range(300):
    ...     optimizer.zero_grad()
    ...     loss = (model(x) - torch.tensor([[3.0], [-2.0]])).square().mean()
    ...     loss.backward()
    ...     optimizer.step()
    >>> loss.item() < 0.01
    True
    """

    def __init__(
        self,
        params: Any,
        base: str | type[Optimizer] | Any = torch.optim.Adam,
        lrs: Sequence[float] | None = None,
        lr: float | Tensor = 1.0,
        *,
        horizon: int | None = None,
        rule: str = "samuel",
        cover: Cover | None = None,
        Q: int | None = None,
        scale: Literal["rms", "max"] | float | None = None,
        combine: Literal["points", "steps", "sample", "average", "best"] | None = None,
        newborns: Literal["fresh", "inherit", "join"] | None = None,
        prior: float | Sequence[float] | None = None,
        decay: Literal["none", "linear", "sqrt"] | None = None,
        lag: float | None = None,
        reference: Literal["mixture", "long"] | None = None,
        short_rates: Literal["all", "above"] | None = None,
        takeover: float | None = None,
        collapse: float | None = None,
        alarm: float | None = None,
        settle: float | None = None,
        experience: float | None = None,
        patience: float | None = None,
        average: float | None = None,
        base_state: Literal["shared", "slots"] | None = None,
        weight_decay: float | None = None,
        anchor_dtype: torch.dtype | None = None,
        maximize: bool = False,
        foreach: bool | None = None,
        compiled: bool = False,
        feedback: Literal["linear", "loss", "full"] = "linear",
        buffers: torch.nn.Module | Iterable[Tensor] | None = None,
        bound: float | None = None,
        seed: int = 0,
        **base_options: Any,
    ) -> None:
        if base_options.pop("differentiable", False):
            raise ValueError("a step cannot be differentiated: differentiable must be False, got True")
        base_options.pop("capturable", None)
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise ValueError(f"seed must be a whole number of at least 0, got {seed!r}")
        self._base = bases.resolve(base, base_options)
        given = locals()
        one_of("feedback", feedback, ("linear", "loss", "full"))
        self._feedback = feedback
        of_rays = {name: _untensored(given[name]) for name in _RAY_OPTIONS}
        if feedback == "linear":
            _refuse_given({"bound": bound}, "feedback='full' or 'loss'", feedback)
            self._rule = {"rule": rule, **of_rays}
        else:
            other_rule = None if rule == "samuel" else rule
            others = {"rule": other_rule, **of_rays, "anchor_dtype": anchor_dtype, "foreach": foreach}
            others["compiled"] = compiled or None
            _refuse_given(others, "feedback='linear'", feedback)
            self._rule = {"feedback": feedback, "bound": bound, "seed": seed}
        self._rule |= {name: _untensored(given[name]) for name in _COMMON_OPTIONS}
        self._anchor_dtype = _checked_dtype(anchor_dtype)
        if foreach not in (None, True, False):
            raise ValueError(f"foreach must be one of None, True, False, got {foreach!r}")
        self._foreach = foreach is not False
        if not isinstance(compiled, bool):
            raise ValueError(f"compiled must be True or False, got {compiled!r}")
        self._compiled = compiled
        self._buffers = Buffers(buffers)
        plan = self._plan(lrs)  # refuses impossible options
        self._lrs = plan.learning_rates
        if isinstance(plan, Panel) and prior is not None:
            self._rule["prior"] = plan.prior  # in the order of the rates
        defaults = {
            "lr": lr,
            "weight_decay": self._base.weight_decay if weight_decay is None else weight_decay,
            "maximize": maximize,
            **self._base.options,
        }
        _check_options(defaults)
        if not isinstance(lr, Tensor) and 0 < lr < 0.1:
            warnings.warn(
                f"lr={lr!r} multiplies the learning rate that Samuel finds. If you meant a learning rate, leave it "
                "out, or list the candidates with lrs=",
                stacklevel=2,
            )
        self._decisions: list[Decision | Population] = []
        self._deciding = False
        super().__init__(params, defaults)

    # Reading

    @property
    def effective_lr(self) -> float:
        """The learning rate in use, in the first parameter group; each group has its own under this name."""
        return float(self.param_groups[0]["effective_lr"])

    def weights(self, group: int = 0) -> Tensor:
        """The weight of every expert in the decision, `(slots, rates)`, summing to 1.

        The rates are in ascending order; the slots go from the shortest block to the longest.

        Args:
            group: a parameter group; those without `lrs` of their own share one decision.

        >>> import torch
        >>> from samuel.torch import Samuel
        >>> Samuel([torch.zeros(2)], "sgd", lrs=(0.01, 0.1, 1.0)).weights().shape
        torch.Size([1, 3])
        """
        return mw.shares(self._experts(group).weights)

    def certificate(self, group: int = 0) -> Certificate:
        """How far the decisions were behind each expert of the running blocks; see `Certificate`.

        Args:
            group: a parameter group; those without `lrs` of their own share one decision.

        >>> import torch
        >>> from samuel.torch import Samuel
        >>> w = torch.nn.Parameter(torch.ones(2))
        >>> optimizer = Samuel([w], "sgd", lrs=(0.01, 0.1, 1.0))
        >>> for _ in range(5):
        ...     w.grad = w.detach().clone()  # the gradient of |w|^2 / 2
        ...     optimizer.step()
        >>> report = optimizer.certificate()
        >>> bool((report.measured[-1] <= report.bound[-1]).all())  # of the long block
        True
        """
        return certify(self._experts(group))

    @property
    def shifts(self) -> int:
        """How often everything was restarted because the data seemed to have shifted.

        Not a count of changes in the data: under the default rule, of leaps of the gradient. A slow change makes none.
        """
        return sum(int(self._experts(groups[0]).shifts) for groups in self._sharing())

    @contextmanager
    def decision(self) -> Iterator[None]:
        """For the length of a `with` block the parameters are those to test and use: the average of those trained.

        The average has less of the steps' noise. Afterwards the parameters, and what was averaged of the buffers, are
        as they were, to the bit, and training goes on with them; `step` inside is refused. Batch statistics are
        averaged along if the optimizer was given `buffers=model`. Where there is no average (`average=0`, other rules
        than "samuel", full or loss feedback) the parameters are the decision, and stay.

        >>> import torch
        >>> from samuel.torch import Samuel
        >>> w = torch.nn.Parameter(torch.ones(2))
        >>> optimizer = Samuel([w], "sgd")
        >>> for t in range(100):
        ...     w.grad = w.detach() + (-1) ** t  # a noisy gradient of |w|^2 / 2
        ...     optimizer.step()
        >>> trained = w.tolist()
        >>> with optimizer.decision():
        ...     bool(w.norm() < 0.5)  # or test a network, or save its state_dict
        True
        >>> w.tolist() == trained
        True
        """
        if self._deciding:
            raise RuntimeError("decision() cannot be entered twice: the parameters are the average already")
        targets, values = self._averages()
        model = self._buffers.source if isinstance(self._buffers.source, torch.nn.Module) else None
        if model is None and any(map(is_spread, targets)):
            raise RuntimeError(
                "decision() of parameters that are spread over processes must tell the model, which may have gathered "
                "them: give buffers=model to Samuel"
            )
        self._deciding = True
        try:
            with swapped(targets, values, model):
                yield
        finally:
            self._deciding = False

    def _averages(self) -> tuple[list[Tensor], list[Tensor]]:
        """The parameters and buffers of which there are averages, and these."""
        params = [p for group in self.param_groups for p in group["params"] if AVERAGE in self.state.get(p, {})]
        of_buffers, buffers = self._buffer_averages(), averaged_buffers(self._buffers())
        names = [name for name in buffers if name in of_buffers]
        targets = [*params, *(buffers[name] for name in names)]
        return targets, [*(self.state[p][AVERAGE] for p in params), *(of_buffers[name] for name in names)]

    # Stepping

    def step(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, closure: Callable[[], Any] | None = None, evaluate: Callable[[], Any] | None = None
    ) -> Any:
        """Take one step from the gradients that the parameters have.

        Args:
            closure: evaluates the loss and its gradients anew: once under linear feedback, otherwise once for every
                expert. Its value at the parameters is returned.
            evaluate: for feedback="loss": evaluates the loss alone, so that experts cost no backward pass.

        >>> import torch
        >>> from samuel.torch import Samuel
        >>> w = torch.nn.Parameter(torch.tensor([3.0, -2.0]))
        >>> optimizer = Samuel([w], "sgd", lrs=(0.001, 0.1), feedback="full")
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = w.square().sum()
        ...     loss.backward()
        ...     return loss
        >>> for _ in range(50):
        ...     loss = optimizer.step(closure)
        >>> loss.item() < 0.01, round(optimizer.effective_lr, 3)
        (True, 0.1)
        """
        if self._deciding:
            raise RuntimeError("step() inside decision() would train the average: leave the with block first")
        if evaluate is not None and self._feedback != "loss":
            raise ValueError(f"evaluate= is for feedback='loss', got feedback={self._feedback!r}; leave it out")
        if self._feedback != "linear":
            return self._step_experts(closure, evaluate)  # pyright: ignore[reportAttributeAccessIssue]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._step()  # pyright: ignore[reportAttributeAccessIssue]
        return loss

    @torch.compiler.disable
    @torch.no_grad()
    def _step(self) -> None:
        self._refuse_gradients()
        for decision, groups in zip(self._attached(), self._sharing(), strict=True):
            assert isinstance(decision, Decision), "linear feedback needs no other"
            decision.step([self.param_groups[i] for i in groups])

    @torch.compiler.disable
    @torch.no_grad()
    def _step_experts(self, closure: Callable[[], Any] | None, evaluate: Callable[[], Any] | None) -> Any:
        if closure is None:
            raise TypeError(
                f"feedback={self._feedback!r} evaluates the loss at every expert: call step(closure) with a function "
                "that clears the gradients, evaluates the loss, calls backward and returns the loss; or use "
                "feedback='linear'"
            )

        def checked() -> Any:
            loss = closure()
            self._refuse_gradients()
            return loss

        sharing = self._sharing()
        if not sharing:  # nothing to train
            with torch.enable_grad():
                return checked()
        (population,) = self._attached()
        assert isinstance(population, Population), "full and loss feedback need experts"
        return population.step([self.param_groups[i] for i in sharing[0]], checked, evaluate)

    # Groups and state

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, also in the middle of a run: they join the running blocks where they stand."""
        own = param_group.get("lrs") if isinstance(param_group, dict) else None
        if isinstance(param_group, dict):
            if own is not None and self._feedback != "linear":
                raise ValueError(
                    f"with feedback={self._feedback!r} all parameters share one list of rates: give lrs to Samuel, not "
                    f"to a group, got {own!r}"
                )
            _check_options({**self.defaults, **param_group})
            lrs = self._lrs if own is None else check_rates(own)
            param_group = {**param_group, "lrs": lrs, "shares_rate": own is None}
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for p in group["params"]:
            if not (p.is_floating_point() or p.is_complex()) and self._feedback != "linear":
                self.param_groups.pop()
                raise TypeError(f"Samuel trains floating-point and complex parameters, got one of {p.dtype}")
            if is_spread(p) and self._feedback != "linear":
                self.param_groups.pop()
                raise TypeError(
                    f"feedback={self._feedback!r} needs whole parameters in every process, got one of shape "
                    f"{tuple(p.shape)} that is spread over processes; use feedback='linear'"
                )
        try:
            self._base.refuse_split(group)
        except ValueError:
            self.param_groups.pop()
            raise
        group["effective_lr"] = float(self._experts(len(self.param_groups) - 1).rate) * float(group["lr"])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned, to the bit; on another device or in another dtype, too.

        Raises:
            ValueError: if it was made by another optimizer or with other options; nothing has changed then.
        """
        found: dict[str, Any] = {}

        def look(_: Optimizer, final: dict[str, Any]) -> None:
            self._refuse_state(final)
            found.update(final)

        def mend(_: Optimizer) -> None:
            # Torch has cast everything to the dtype of the parameters, and 16 bits are too few.
            ours = [p for group in self.param_groups for p in group["params"]]
            theirs = [place for group in found["param_groups"] for place in group["params"]]
            for place, p in zip(theirs, ours, strict=True):
                if place in found["state"]:
                    entries = found["state"][place]
                    self.state[p] = {name: _cloned(value) for name, value in entries.items()}
            # As all options of groups, the rates are those that were saved.
            self._lrs = next((group["lrs"] for group in self.param_groups if group["shares_rate"]), self._lrs)

        hooks = [
            self.register_load_state_dict_pre_hook(look),
            self.register_load_state_dict_post_hook(mend, prepend=True),
        ]
        try:
            super().load_state_dict(state_dict)
        finally:
            for hook in hooks:
                hook.remove()

    def __getstate__(self) -> dict[str, Any]:
        own = ("_base", "_rule", "_lrs", "_anchor_dtype", "_foreach", "_compiled", "_feedback", "_buffers")
        return {**super().__getstate__(), **{name: getattr(self, name) for name in own}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._decisions = []  # made anew from the state
        self._deciding = False

    def _plan(self, lrs: Sequence[float] | None) -> Rays | Panel:
        """How the learning rate is found: by rays, or by a panel of experts."""
        make: Any = follow if self._feedback == "linear" else usual_panel
        return make(learning_rates=lrs, base=self._base.name, **self._rule)

    def _trained(self, group: dict[str, Any]) -> list[Tensor]:
        """The parameters of a group that are trained, or were: frozen ones cost nothing."""
        if self._feedback != "linear":
            return group["params"]
        return [p for p in group["params"] if p.requires_grad or p.grad is not None or p in self.state]

    def _sharing(self) -> list[list[int]]:
        """The parameter groups that share a rate, as places in `param_groups`."""
        filled = [i for i, group in enumerate(self.param_groups) if self._trained(group)]
        shared = [i for i in filled if self.param_groups[i]["shares_rate"]]
        return [*([shared] if shared else []), *([i] for i in filled if i not in shared)]

    def _attached(self) -> list[Decision | Population]:
        """The decisions, made anew where the state or the parameters are not what they were."""
        sharing = [[self.param_groups[i] for i in groups] for groups in self._sharing()]
        params = [[self._trained(group) for group in groups] for groups in sharing]
        fits = len(self._decisions) == len(sharing) and all(
            decision.fits(some, self.state) for decision, some in zip(self._decisions, params, strict=True)
        )
        for decision, groups in zip(self._decisions if fits else (), sharing, strict=fits):
            self._refuse_other_rates(decision, groups)
        if not fits:
            buffers = self._buffer_averages()
            self._decisions = []
            for pair in zip(sharing, params, strict=True):
                # Where several rates are found, buffers keep pace with the first.
                self._decisions.append(self._made(*pair, None if self._decisions else buffers))
        return self._decisions

    def _buffer_averages(self) -> dict[str, Tensor]:
        """The averages of buffers, by name, from wherever in the state they are."""
        each = [entry for entries in self.state.values() for entry in entries.items()]
        return {name: value for name, value in each if name.startswith(f"{BUFFER}:")}

    def _made(
        self, groups: list[dict[str, Any]], params: list[list[Tensor]], buffers: dict[str, Tensor] | None
    ) -> Decision | Population:
        plan = self._plan(groups[0]["lrs"])
        if isinstance(plan, Panel):
            return Population(plan, self._base, groups, self.state, self._buffers)
        trained = [{**group, "params": some} for group, some in zip(groups, params, strict=True)]
        numbers = self._numbers([p for some in params for p in some], plan, groups[0]["shares_rate"])
        options = (self._foreach, self._anchor_dtype, self._compiled)
        averages = BufferAverages(self._buffers, buffers) if plan.averages and buffers is not None else None
        return Decision(plan, self._base, trained, self.state, numbers, *options, averages)

    def _numbers(self, params: Sequence[Tensor], plan: Rays | Panel, shared: bool) -> dict[str, Any]:
        """What is known about the experts of some parameters: entries in the state of the first, if nothing changed.

        Where groups have changed places it is another's. Where the first has left, it is still in the state, and those
        that shared a rate with it go on from there.
        """
        if isinstance(plan, Panel):
            return self.state.get(params[0], {}) if params else {}
        present = {p for group in self.param_groups for p in group["params"]}
        began = any(p in self.state for p in params)
        left = [p for p in self.state if p not in present] if shared and began else []
        shape = (plan.slots, len(plan.learning_rates), plan.Q)
        for p in (*params, *left):
            entries = self.state.get(p, {})
            weights = entries.get(f"{RAYS}:weights:value")
            if weights is not None and tuple(weights.shape) == shape:
                return {name: value for name, value in entries.items() if name.startswith(f"{RAYS}:")}
        return {}

    def _experts(self, group: int) -> Any:
        """What is known about the experts of a parameter group."""
        if not -len(self.param_groups) <= group < len(self.param_groups):
            raise ValueError(f"there is no parameter group {group}; there are {len(self.param_groups)}")
        group %= len(self.param_groups)
        together = next((groups for groups in self._sharing() if group in groups), [group])
        params = [p for i in together for p in self._trained(self.param_groups[i])]
        plan = self._plan(self.param_groups[group]["lrs"])
        numbers = self._numbers(params, plan, self.param_groups[group]["shares_rate"])
        return experts.experts_of(plan, numbers) if isinstance(plan, Panel) else experts_of(plan, numbers)

    # Refusing what cannot work

    def _refuse_other_rates(self, decision: Decision | Population, groups: Sequence[dict[str, Any]]) -> None:
        for group in groups:
            if tuple(group["lrs"]) != tuple(decision.learning_rates):
                raise ValueError(
                    f"the candidate rates cannot change in a run: they are {tuple(decision.learning_rates)}, and a "
                    f"parameter group now says lrs={group['lrs']!r}; change lr, which multiplies them, or begin anew"
                )

    def _refuse_gradients(self) -> None:
        for group in self.param_groups:
            _check_options(group, waiting=False)
            self._base.refuse_split(group)
            for p in group["params"]:
                if p.grad is not None and p.grad.is_sparse:
                    raise RuntimeError(
                        f"Samuel does not support sparse gradients, got one for a parameter of shape {tuple(p.shape)}; "
                        "use an embedding with sparse=False, or a separate optimizer for that parameter"
                    )

    def _refuse_state(self, state_dict: dict[str, Any]) -> None:
        groups = state_dict["param_groups"]
        if any("lrs" not in group or "shares_rate" not in group for group in groups):
            raise ValueError("the state dict was made by another optimizer: its parameter groups have no lrs")
        for name in ("lr", "weight_decay", "maximize"):
            if any(name not in group for group in groups):
                raise ValueError(f"the state dict is not whole: a parameter group has no {name}")
        for name in self._base.options:
            if any(name not in group for group in groups):
                raise ValueError(
                    f"the state dict was made with another base: its parameter groups have no {name}, an option of "
                    f"{self._base.make.__name__}"
                )
        ours = [p for group in self.param_groups for p in group["params"]]
        theirs = [(place, group) for group in groups for place in group["params"]]
        if len(ours) != len(theirs):
            return  # torch says it
        for (place, group), p in zip(theirs, ours, strict=True):
            self._base.refuse_split({**group, "params": [p]})
            entries = state_dict["state"].get(place, {})
            if not entries:
                continue
            plan = self._plan(group["lrs"])
            if isinstance(plan, Panel):
                experts.refuse_entries(entries, p, plan, self._base, len(self._buffers()))
            else:
                refuse_entries(entries, p, plan, self._base)
        if self._feedback == "linear":
            self._refuse_buffers(state_dict["state"])

    def _refuse_buffers(self, state: dict[Any, dict[str, Any]]) -> None:
        """An error unless the averages of buffers in a state are those of ours."""
        averages = any(AVERAGE in entries for entries in state.values())
        ours = averaged_buffers(self._buffers()) if averages else {}
        each = [entry for entries in state.values() for entry in entries.items()]
        theirs = {name: value for name, value in each if name.startswith(f"{BUFFER}:")}
        if theirs.keys() != ours.keys():
            raise ValueError(
                f"the state dict was made with averages of {len(theirs)} buffers, and there are {len(ours)} to average "
                "now; give the same buffers= as then"
            )
        for name, value in theirs.items():
            if value.shape != ours[name].shape:
                raise ValueError(
                    f"the state dict has {name!r} of shape {tuple(value.shape)}, and the buffer has "
                    f"{tuple(ours[name].shape)}"
                )


def _untensored(value: Any) -> Any:
    """The number in a tensor of no dimension, a whole one as such; anything else as it is."""
    if not isinstance(value, Tensor) or value.ndim > 0 or value.is_complex():
        return value
    number = value.item()
    return int(number) if float(number).is_integer() and not isinstance(number, bool) else number


def _refuse_given(options: dict[str, Any], where: str, feedback: str) -> None:
    """An error for an option that was given and means nothing here."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name} is for {where}, got {name}={value!r} with feedback={feedback!r}; leave it out")


def _check_options(options: dict[str, Any], waiting: bool = True) -> None:
    """Refuse impossible options; those that a device has only if we may wait for it."""
    for name in ("lr", "weight_decay"):
        value = options[name]
        if isinstance(value, Tensor) and not waiting and value.device.type != "cpu":
            continue
        if isinstance(value, Tensor):
            if value.numel() != 1:
                raise ValueError(f"{name} must be one number, got a tensor of shape {tuple(value.shape)}")
            value = float(value.detach())
        number = isinstance(value, Real) and not isinstance(value, bool)
        least = 0 if waiting else -NEGLIGIBLE  # where a scheduler may end that was to end at 0
        if not number or not least <= float(value) < float("inf"):
            raise ValueError(f"{name} must be a number of at least 0, got {value!r}")
    if not isinstance(options["maximize"], bool):
        raise ValueError(f"maximize must be True or False, got {options['maximize']!r}")


def _cloned(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _checked_dtype(dtype: Any) -> torch.dtype | None:
    if dtype in (None, torch.bfloat16, torch.float32, torch.float64):
        return dtype
    raise ValueError(f"anchor_dtype must be torch.bfloat16, or a wider floating-point dtype, got {dtype!r}")
