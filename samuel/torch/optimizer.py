"""The optimizer: parameter groups, options, state dicts and diagnostics, following the contract of `torch.optim`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, fields, replace
from difflib import get_close_matches
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from samuel.core import roles as rules
from samuel.core.options import refuse_unknown
from samuel.core.rate_search import RateSearch, search_for
from samuel.core.roles import Role, orthogonalisation_flops
from samuel.core.rule import Rule, RuleState
from samuel.torch.average import BatchStatistics, swapped
from samuel.torch.bases import NAMED, Named, resolve
from samuel.torch.engine import AVERAGE, OFFSET, STEP, SUM, Engine, cloned, is_stopped
from samuel.torch.local import is_split, local_real
from samuel.torch.muon import has_fast_bfloat16, orthogonalise_
from samuel.torch.roles import roles, roles_of_groups

KNOWN = (
    "base", "learning_rates", "lr", "steps", "weight_decay", "average", "on_shift", "clip", "search", "state_dtype",
    "maximize", "foreach", "capturable",
)  # fmt: skip
RULE = "samuel"
"""Entry of every group of a state dict: the state of the rule and the options it belongs to."""
NEAR_END = 0.9
"""After this fraction of a run with a known end, rates are small and the parameters as good as their average."""
SMALL_LR, EARLY = 0.1, 50
"""A multiplier at most `SMALL_LR` after `EARLY` steps is probably meant as a learning rate."""


class Samuel(Optimizer):
    """Optimizer without a learning rate: it searches for the rate while training, again after each shift of the data.

        optimizer = samuel.torch.Samuel(model)          # instead of AdamW(model.parameters(), lr=...)
        ...                                             # the training loop is unchanged
        with optimizer.averaged():                      # the parameters to evaluate and save
            evaluate(model)

    Muon updates the matrices and Adam all other parameters, each with its own learning rate. Roles are found from the
    modules; `print(optimizer)` lists them. All candidate rates are evaluated with the one gradient of the step; see
    `samuel.core.rule`.

    Args:
        params: the model; or parameters, named parameters or parameter groups, as for other optimizers. Processes of
            `DistributedDataParallel` share the orthogonalisation. A group may set `role="matrix"`, `"table"` or
            `"vector"`; otherwise names and shapes decide. Each role becomes a parameter group.
        base: "muon" (Adam for all that is not a matrix), "adam", "adagrad", "momentum", "sgd", a torch optimizer class,
            or a `functools.partial` of one with its options, such as `partial(torch.optim.Adam, betas=(0.9, 0.95))`.
        learning_rates: candidate learning rates. By default six decades in steps of half a decade, where people sweep
            for that base: from 1e-6 to 1, and from 1e-5 to 10 for SGD and Adagrad. A long list costs nothing.
        lr: multiplier of the learning rate for schedulers; 1 leaves the rate unchanged.
        steps: number of steps of the whole run, if known: rates then fall linearly to 0 at its end, and no scheduler is
            needed. Without it they fall with the root of time, and the averaged parameters are the ones to use.
        weight_decay: decoupled weight decay of matrices and tables; vectors (biases, factors of norms) have none,
            unless their group sets `weight_decay`.
        average: keep averaged parameters, at the cost of one copy. By default if `steps` is not given.
        on_shift: what to do when the gradient norm leaps because the data have shifted: "restart" the search, with what
            was learned about rates, or "ignore" it.
        clip: largest norm of the whole gradient. Clip here and not before: the shift detector needs the unclipped norm.
        search: settings of the search, a `samuel.core.RateSearch`, in place of the default for the base.
        state_dtype: dtype of the direction sum, its lag and the average: by default bfloat16 for parameters in
            bfloat16, and otherwise float32 (float64 for parameters in float64).
        maximize: maximize the objective.
        foreach: accepted for compatibility; without effect.
        capturable: accepted for compatibility: a step can always be captured in a CUDA graph.

    >>> import torch
    >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
    <torch...>
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    >>> x = torch.randn(64, 4)
    >>> y = x[:, :2] * x[:, 2:]
    >>> optimizer = Samuel(model)
    >>> for _ in range(300):
    ...     loss = (model(x) - y).square().mean()
    ...     optimizer.zero_grad()
    ...     loss.backward()
    ...     optimizer.step()
    >>> with optimizer.averaged():
    ...     bool((model(x) - y).square().mean() < 0.3)
    True
    """

    def __init__(
        self,
        params: Any,
        base: Any = "muon",
        learning_rates: Sequence[float] | None = None,
        lr: float | Tensor = 1.0,
        *,
        steps: int | None = None,
        weight_decay: float = 0.1,
        average: bool | None = None,
        on_shift: str = "restart",
        clip: float | None = None,
        search: RateSearch | None = None,
        state_dtype: torch.dtype | None = None,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        **unknown: Any,
    ) -> None:
        self._base = resolve(base)
        for name in unknown:
            if any(name in options for options in (self._base.options, *NAMED.values())):
                raise TypeError(
                    f"{name} is an option of the base: give it in a parameter group, "
                    f"{{'params': ..., {name!r}: {unknown[name]!r}}}, or in the base, such as "
                    "functools.partial(torch.optim.Adam, betas=(0.9, 0.95))"
                )
        refuse_unknown(unknown, KNOWN)
        self.base = base if isinstance(base, str) else self._base.name
        self._rule = Rule(
            search=search_for(self._base.search, learning_rates, search),
            groups=self._base.searches,
            steps=steps,
            average=steps is None if average is None else average,
            on_shift=on_shift,
            clip=clip,
        )
        if state_dtype not in (None, torch.bfloat16, torch.float32, torch.float64):
            raise ValueError(f"state_dtype must be torch.bfloat16, float32 or float64, got {state_dtype!r}")
        if foreach not in (None, True, False):
            raise ValueError(f"foreach must be None, True or False, got {foreach!r}")
        self._state_dtype = state_dtype
        group = None
        if isinstance(params, nn.parallel.DistributedDataParallel):
            params, group = params.module, params.process_group
        self._model = params if isinstance(params, nn.Module) else None
        self._role_of: dict[Tensor, Role] = {}
        self._names: dict[Tensor, str] = {}
        self._engine = Engine(self._rule, self._base, state_dtype, orthogonalise_, group)
        self._statistics: BatchStatistics | None = None
        self._is_averaged = False
        self._calls, self._highest, self._warned = 0, 0.0, set()
        self._checked, self._on_its_way = (EARLY, 0.0), None
        defaults = {
            "lr": lr, "weight_decay": weight_decay, "maximize": maximize, "foreach": foreach, "capturable": capturable,
            **self._base.options, "role": None, RULE: None,
        }  # fmt: skip
        self._check(defaults)
        groups = _as_groups(params)
        super().__init__(self._split(groups), defaults)
        self._warn_of_guesses()
        self._warn_of_small(defaults["lr"])

    # Diagnostics

    @property
    def steps(self) -> int | None:
        """Number of steps of the whole run; None if not given."""
        return self._rule.steps

    @property
    def on_shift(self) -> str:
        """What happens when the data shift: "restart" or "ignore"."""
        return self._rule.on_shift

    @property
    def learning_rates(self) -> tuple[float, ...]:
        """The candidate learning rates."""
        return tuple(self._rule.search.learning_rates)

    @property
    def shifts(self) -> int:
        """Number of shifts of the data so far. Reading it synchronises with the device."""
        return 0 if self._engine.rule_state is None else int(self._engine.rule_state.detector.shifts)

    @property
    def skipped(self) -> int:
        """Number of skipped gradients: not finite, or blown up. Reading it synchronises with the device."""
        return 0 if self._engine.rule_state is None else int(self._engine.rule_state.skipped)

    @property
    def roles(self) -> dict[str, Role]:
        """The role of every parameter, by its name or, without names, its index."""
        return {self._names[p]: self._role_of[p] for group in self.param_groups for p in group["params"]}

    def weights(self) -> Tensor:
        """Weight of every candidate rate relative to its prior, one row per search: equal before the first step.

        A list is too short if `effective_lr` stays within a factor of 3 of its largest or smallest candidate.

        >>> Samuel([torch.zeros(2)], "adam", learning_rates=(0.1, 0.01)).weights()
        tensor([[0.5000, 0.5000]])
        """
        return self._rule.search.evidence(self._rule_state().search).clone()

    def extend(self, steps: int) -> None:
        """Extend a run beyond the given number of steps, without a leap of the rate.

        Args:
            steps: number of steps of the whole run, including those so far.

        >>> optimizer = Samuel(torch.nn.Linear(2, 1), steps=100)
        >>> optimizer.extend(150)
        >>> optimizer.steps
        150
        """
        extended = self._rule.extend(self._rule_state(), steps)
        self._engine.rule_state = cloned(extended)
        self._rule = self._engine.rule = replace(self._rule, steps=int(steps))
        self._warned.discard("overrun")

    def averaged(self) -> AbstractContextManager[None]:
        """Context in which the model has the averaged parameters: those to evaluate, deploy and save.

        They average about the last ninth of the steps since the last shift. If the optimizer was given the model, its
        batch statistics are averaged as well. Without an average (the default with `steps`), parameters are unchanged.

        >>> p = torch.nn.Parameter(torch.zeros(2))
        >>> optimizer = Samuel([p], "sgd")
        >>> p.grad = torch.ones(2)
        >>> optimizer.step()
        >>> trained = p.detach().clone()
        >>> with optimizer.averaged():
        ...     bool((p > trained).all())  # between the last two
        True
        >>> torch.equal(p, trained)
        True
        """
        self._warn_of_noise()
        return self._exchanged()

    @contextmanager
    def _exchanged(self) -> Iterator[None]:
        if self._is_averaged:
            raise RuntimeError("averaged() cannot be nested: the model already has the averaged parameters")
        if not self._rule.average:
            yield
            return
        kept = ((p, self.state.get(p, {})) for group in self.param_groups for p in group["params"])
        averaged = [(p, self._engine.average(p, entries)) for p, entries in kept if entries.keys() & {AVERAGE, OFFSET}]
        params, values = [p for p, _ in averaged], [value for _, value in averaged]
        statistics = self._statistics.pairs() if self._statistics is not None else ([], [])
        with swapped([*params, *statistics[0]], [*values, *statistics[1]], self._model):
            self._is_averaged = True
            try:
                yield
            finally:
                self._is_averaged = False

    def __repr__(self) -> str:
        steps = "" if self.steps is None else f", steps={self.steps}"
        rates = ", ".join(f"{group['role']} {float(group['effective_lr']):.3g}" for group in self.param_groups)
        return f"Samuel(base={self.base!r}{steps}, learning rate: {rates})"

    def __str__(self) -> str:
        return "\n".join([repr(self), *self._table()])

    def _table(self) -> Iterator[str]:
        """Name, shape, role and weight decay of every parameter, and the cost of orthogonalisation."""
        rows = [("parameter", "shape", "role", "decay", "")]
        flops = 0.0
        for group in self.param_groups:
            for p in group["params"]:
                role = self._role_of[p]
                note = f"{role.why}, a guess" if role.guessed else role.why
                decay = f"{float(group['weight_decay']):g}"
                rows.append((self._names[p], "x".join(map(str, p.shape)) or "()", role.kind, decay, note))
                flops += orthogonalisation_flops(role, p.shape) if self._base.orthogonalises(role) else 0.0
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        for row in rows:
            yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        if flops:
            yield f"orthogonalisation: {flops / 1e12:.3g} TFLOP a step"

    # Step

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update the parameters with their gradients.

        Args:
            closure: recomputes the loss and its gradients; called once.

        Returns:
            The loss of the closure, or None.
        """
        if self._is_averaged:
            raise RuntimeError("step() inside averaged() would train the averaged parameters; call it outside")
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._init_group()
        moves = self._engine.step(self.param_groups)
        if moves is None:
            return loss
        if self._statistics is not None:
            self._statistics.average(moves.pace)
        self._publish_rates()
        if not torch.compiler.is_compiling():
            self._watch_schedule()
        return loss

    def _init_group(self) -> None:
        """Checks and storage before a step. `torch.compile` runs this method of optimizers instead of tracing it."""
        for group in self.param_groups:
            self._check(group, waiting=False)
            for p in group["params"]:
                if p.grad is not None and p.grad.is_sparse:
                    raise RuntimeError(
                        f"Samuel does not support sparse gradients, got one for parameter {self._names[p]!r} of shape "
                        f"{tuple(p.shape)}; use an embedding with sparse=False, or a separate optimizer for it"
                    )
        self._engine.prepare(self.param_groups, self.state, self._role_of)
        for bucket in self._engine.buckets:
            has_fast_bfloat16(bucket.device.type)  # cached: a compiled step cannot query it
        if self._rule.average and self._statistics is None:
            self._statistics = BatchStatistics(self._model, {})

    def _publish_rates(self) -> None:
        rates = self._rule_state().search.rate
        for group in self.param_groups:
            rate = rates[self._search_of(group)]
            on_host = rate.device.type == "cpu" and not torch.compiler.is_compiling()
            lr = group["lr"]
            if on_host:
                group["effective_lr"] = float(rate) * float(lr)
            else:
                group["effective_lr"] = rate * (lr.to(rate.device) if isinstance(lr, Tensor) else lr)

    # Groups

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, also during a run, as one group per role.

        >>> optimizer = Samuel(torch.nn.Linear(3, 2), "muon")
        >>> optimizer.add_param_group({"params": [torch.zeros(100, 2)], "role": "table"})
        >>> [group["role"] for group in optimizer.param_groups]
        ['matrix', 'vector', 'table']
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        self._refuse_unknown_entries(param_group)
        self._check({**self.defaults, **param_group})
        if "_roles" in param_group:
            parts = [param_group]
        else:
            parts = self._split([self._with_names(param_group)])
        count = len(self.param_groups)
        try:
            for part in parts:
                found = part.pop("_roles")
                super().add_param_group(part)
                self._accept(self.param_groups[-1], found)
        except Exception:
            del self.param_groups[count:]
            raise

    def _with_names(self, group: dict[str, Any]) -> dict[str, Any]:
        """A group with names for its parameters if the other groups have names."""
        params = group["params"]
        named = any("param_names" in other for other in self.param_groups)
        if not named or isinstance(params, set):
            return dict(group)
        params = [params] if isinstance(params, Tensor) else list(params)
        count = len(self._names)
        return {**group, "params": [p if isinstance(p, tuple) else (str(count + i), p) for i, p in enumerate(params)]}

    def _split(self, groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Split groups by role; the roles of the parameters are added under `_roles`."""
        for group in groups:
            params = group["params"]
            if isinstance(params, set):
                raise TypeError("optimizer parameters need to be organized in ordered collections, but got sets")
            group["params"] = [params] if isinstance(params, Tensor) else list(params)
            for entry in group["params"]:
                if not isinstance(entry[1] if isinstance(entry, tuple) else entry, Tensor):
                    raise TypeError(
                        f"optimizer can only optimize Tensors, but one of the params is {type(entry).__name__}"
                    )
        if self._model is not None and len(groups) == 1 and not self._role_of:
            found = [roles(self._model)]
        else:
            found = roles_of_groups(groups)
        parts: list[dict[str, Any]] = []
        for group, known in zip(groups, found, strict=True):
            by_kind: dict[str, tuple[list[Any], list[Role]]] = {}
            for entry, role in zip(group["params"], known.values(), strict=True):
                p = entry[1] if isinstance(entry, tuple) else entry
                if p.is_complex() and role.kind == "matrix":
                    role = rules.vector("complex numbers")
                entries, own = by_kind.setdefault(role.kind, ([], []))
                entries.append(entry)
                own.append(role)
            for kind in sorted(by_kind, key=rules.KINDS.index):
                part = {**group, "params": by_kind[kind][0], "role": kind, "_roles": by_kind[kind][1]}
                if kind == "vector":
                    part.setdefault("weight_decay", 0.0)
                parts.append(part)
            if not by_kind:
                parts.append({**group, "role": "vector", "_roles": []})
        return parts

    def _accept(self, group: dict[str, Any], found: list[Role]) -> None:
        names = group.get("param_names") or [str(len(self._names) + i) for i in range(len(found))]
        for p, name in zip(group["params"], names, strict=True):
            if self._rule.average and self._model is None and is_split(p):
                raise ValueError(
                    f"{name!r} of shape {tuple(p.shape)} is sharded over processes: pass the model instead of its "
                    "parameters, which averaged() needs; or average=False"
                )
        for p, role, name in zip(group["params"], found, names, strict=True):
            self._role_of[p], self._names[p] = role, name
        state = self._engine.rule_state or self._rule.start(np.zeros(()))
        group["effective_lr"] = float(state.search.rate[self._search_of(group)]) * float(group["lr"])

    def _search_of(self, group: dict[str, Any]) -> int:
        return 1 if self._base.searches == 2 and group["role"] != "matrix" else 0

    def _rule_state(self) -> RuleState:
        state = self._engine.rule_state
        return self._engine.start(self.param_groups) if state is None else state

    # State

    def state_dict(self) -> dict[str, Any]:
        """The state of the parameters, the groups, and the state of the rule."""
        if self._is_averaged:
            warnings.warn(
                "state_dict() inside averaged(): a run resumed from it and the averaged parameters would not continue "
                "this one; save both outside of averaged()",
                stacklevel=2,
            )
        self._engine.store(self.state)
        found = super().state_dict()
        saved: dict[str, Any] = self._options()
        saved["search"] = {**asdict(self._rule.search), "learning_rates": list(self.learning_rates)}
        saved["rule"] = {name: value.clone() for name, value in _flattened(self._rule_state())}
        if self._statistics is not None:
            saved["statistics"] = dict(self._statistics.entries)
        found["param_groups"] = [{**group, RULE: saved} for group in found["param_groups"]]
        return found

    def _options(self) -> dict[str, Any]:
        """The options that the state of the rule belongs to, without the search."""
        own = {each.name: getattr(self._rule, each.name) for each in fields(self._rule) if each.name != "search"}
        own = {name: value.item() if hasattr(value, "item") else value for name, value in own.items()}
        return {"base": self.base, **own}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue exactly from a state of `state_dict`, also on another device.

        Raises:
            ValueError: if it belongs to another optimizer or other options; nothing is changed then.
        """
        found: dict[str, Any] = {}

        def look(_: Optimizer, final: dict[str, Any]) -> None:
            self._refuse_state(final)
            found.update(final)

        def mend(_: Optimizer) -> None:
            # Torch has cast everything to the dtype of the parameters.
            ours = [p for group in self.param_groups for p in group["params"]]
            theirs = [place for group in found["param_groups"] for place in group["params"]]
            counts: dict[Any, Tensor] = {}
            for place, p in zip(theirs, ours, strict=True):
                if place in found["state"]:
                    device = local_real(p).device
                    entries = {name: _placed(value, device) for name, value in found["state"][place].items()}
                    if STEP in entries:  # parameters with the same number of gradients share one tensor
                        entries[STEP] = counts.setdefault((device, float(entries[STEP])), entries[STEP])
                    self.state[p] = entries
            self._restore(found["param_groups"], ours)

        hooks = [
            self.register_load_state_dict_pre_hook(look),
            self.register_load_state_dict_post_hook(mend, prepend=True),
        ]
        try:
            super().load_state_dict(state_dict)
        finally:
            for hook in hooks:
                hook.remove()

    def _restore(self, groups: list[dict[str, Any]], params: list[Tensor]) -> None:
        for group in self.param_groups:
            group[RULE] = None
        saved = groups[0][RULE] if groups else {}
        self._engine.forget()
        began = [p for p in params if SUM in self.state.get(p, {})]
        if "rule" in saved:
            device = local_real(began[0]).device if began else torch.device("cpu")
            state = _unflattened(self._rule_state(), saved["rule"], device)
            self._engine.rule_state, self._calls = state, int(state.round)
        self._statistics = None
        if self._rule.average:
            self._statistics = BatchStatistics(self._model, saved.get("statistics", {}))

    def _refuse_state(self, state_dict: dict[str, Any]) -> None:
        groups = state_dict["param_groups"]
        if any(group.get(RULE) is None for group in groups):
            raise ValueError("the state dict is of another optimizer: its groups have no state of Samuel's rule")
        saved = groups[0][RULE] if groups else None
        if saved is None:
            return
        for name, value in self._options().items():
            if name not in saved:
                raise ValueError(f"the state dict is incomplete: it has no {name}")
            if saved[name] != value:
                hint = f"; create the optimizer with steps={saved[name]}, load, and call extend(...) for a longer run"
                raise ValueError(
                    f"the state dict has {name}={saved[name]!r}, and this optimizer {name}={value!r}"
                    f"{hint if name == 'steps' else ''}"
                )
        theirs = saved["search"]
        for name, value in asdict(self._rule.search).items():
            value = list(value) if name == "learning_rates" else value
            same = list(theirs[name]) if name == "learning_rates" else theirs[name]
            if same != value:
                raise ValueError(f"the search of the state dict has {name}={same}, and that of this optimizer {value}")
        for group, mine in zip(groups, self.param_groups, strict=False):
            for name in ("lr", "weight_decay", "maximize", "role", *self._base.options):
                if name not in group:
                    raise ValueError(f"the state dict is incomplete: a parameter group has no {name}")
            if group["role"] != mine["role"]:
                raise ValueError(
                    f"the state dict has a group of role {group['role']!r} where this optimizer has {mine['role']!r}: "
                    "pass the parameters in the same form as before, or set the roles by group"
                )
        ours = [p for group in self.param_groups for p in group["params"]]
        theirs = [place for group in groups for place in group["params"]]
        for place, p in zip(theirs, ours, strict=False):
            self._refuse_entries(self._names[p], p, state_dict["state"].get(place, {}))

    def _refuse_entries(self, name: str, p: Tensor, entries: dict[str, Any]) -> None:
        if not entries:
            return
        needed = [STEP, SUM, *self._base.vectors(self._role_of[p])]
        needed += [AVERAGE] * (self._rule.average and OFFSET not in entries)
        for key in needed:
            if key not in entries:
                raise ValueError(f"the state dict is incomplete: the state of {name!r} has no {key!r}")
        for key, value in entries.items():
            if isinstance(value, Tensor) and not key.startswith("base:") and key != STEP and value.shape != p.shape:
                raise ValueError(
                    f"the state dict has {key!r} of shape {tuple(value.shape)} for {name!r} of shape {tuple(p.shape)}"
                )

    def __getstate__(self) -> dict[str, Any]:
        self._engine.store(self.state)
        left_out = ("_engine", "_on_its_way", "_zero_grad_profile_name")
        own = {name: value for name, value in self.__dict__.items() if name not in left_out}
        own = {name: value for name, value in own.items() if "hook" not in name}
        return {**super().__getstate__(), **own, "_kept_rule_state": self._engine.rule_state}

    def __setstate__(self, state: dict[str, Any]) -> None:
        rule_state = state.pop("_kept_rule_state", None)
        super().__setstate__(state)
        if "_rule" in state:
            self._engine = Engine(self._rule, self._base, self._state_dtype, orthogonalise_)
            self._engine.rule_state, self._on_its_way = rule_state, None

    # Errors and warnings

    def _refuse_unknown_entries(self, group: Mapping[str, Any]) -> None:
        """An error for an option of the whole optimizer in a parameter group, and for a misspelt option.

        Other entries are left alone: schedulers and other libraries keep numbers of their own in groups.
        """
        usable = ["params", *(name for name in self.defaults if name != RULE)]
        for name in group:
            if name in usable or name == RULE:
                continue
            if name in KNOWN:
                raise TypeError(f"{name} is an option of the whole optimizer, not of a group: Samuel(..., {name}=...)")
            if close := get_close_matches(name, usable, 1, cutoff=0.85):
                raise TypeError(f"unknown option {name!r} of a parameter group; did you mean {close[0]!r}?")

    def _check(self, options: Mapping[str, Any], waiting: bool = True) -> None:
        """An error for invalid options; values on a device are read only if `waiting`."""
        for name in ("lr", "weight_decay"):
            value = options[name]
            if isinstance(value, Tensor):
                if not waiting:
                    continue
                if value.numel() != 1:
                    raise ValueError(f"{name} must be one number, got a tensor of shape {tuple(value.shape)}")
                value = float(value.detach())
            number = isinstance(value, Real) and not isinstance(value, bool)
            least = 0 if waiting else -1e-12  # rounding of a scheduler that ends at 0
            if not number or not least <= float(value) < float("inf"):
                raise ValueError(f"{name} must be a number of at least 0, got {value!r}")
        if not isinstance(options["maximize"], bool):
            raise ValueError(f"maximize must be True or False, got {options['maximize']!r}")
        if waiting or isinstance(self._base, Named):
            self._base.check(dict(options))

    def _warn_once(self, what: str, text: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            warnings.warn(text, stacklevel=4)

    def _warn_of_guesses(self) -> None:
        if not (isinstance(self._base, Named) and self._base.searches == 2):
            return
        text = rules.guess_warning(
            self.roles,
            "Give the model, or named parameters, or a group's role='matrix', 'table' or 'vector'; print(optimizer) "
            "shows all roles",
        )
        if text:
            self._warn_once("guesses", text)

    def _warn_of_noise(self) -> None:
        if self._rule.average or self.steps is None:
            return
        done = int(self._rule_state().round)
        if 0 < done < NEAR_END * self.steps:
            self._warn_once(
                "noise",
                f"averaged() changes nothing, because steps={self.steps} was given and no average is kept: after "
                f"{done} steps the parameters still have the noise of large steps; to evaluate them before the end, "
                "give average=True",
            )

    def _warn_of_small(self, lr: Any) -> None:
        if not isinstance(lr, Tensor) and 0 < lr <= SMALL_LR:
            self._warn_once(
                "small",
                f"lr={lr:g} multiplies the learning rate that Samuel finds and should be about 1; leave lr out, and "
                "let schedulers vary it around 1",
            )

    def _watch_schedule(self) -> None:
        """Warn of unlikely multipliers, and of a run beyond its number of steps; never waits for a device."""
        self._calls += 1
        lrs = [group["lr"] for group in self.param_groups if not isinstance(group["lr"], Tensor)]
        lr = max((lr for lr in lrs if not is_stopped(lr)), default=None)
        if lr is not None:
            self._highest = max(self._highest, lr)
            self._watch_small(lr)
            if self.steps is not None and lr < 0.9 * self._highest:
                self._warn_once(
                    "falling",
                    f"rates fall twice: with Samuel(steps={self.steps}) they fall to 0, and the schedule of lr falls "
                    f"as well (now {lr:g}, before {self._highest:g}); use a constant schedule, or leave steps out",
                )
        if self.steps is not None and self._calls > self.steps and "overrun" not in self._warned:
            self._calls = self._rounds()
            if self._calls > self.steps:
                self._warn_once(
                    "overrun",
                    f"the run continues beyond steps={self.steps}: the last learning rate is kept; call "
                    "optimizer.extend(steps) for a longer run",
                )

    def _rounds(self) -> int:
        """Number of steps without skipped ones; from a GPU it arrives a few steps later, so that none waits."""
        rounds = self._rule_state().round
        if rounds.device.type != "cuda":
            return int(rounds)
        if self._on_its_way is None:
            if not torch.cuda.is_current_stream_capturing():
                event = torch.cuda.Event()
                copy = rounds.to("cpu", non_blocking=True)
                event.record()
                self._on_its_way = copy, event
        elif self._on_its_way[1].query():
            (copy, _), self._on_its_way = self._on_its_way, None
            return int(copy)
        return min(self._calls, self.steps or self._calls)

    def _watch_small(self, lr: float) -> None:
        """Warn of a multiplier that stays small, unless it is a warm-up to a larger one."""
        if self._calls == 1:
            self._checked = EARLY, lr
        at, before = self._checked
        if self._calls != at or self._highest > SMALL_LR:
            return
        peaks = [group.get("max_lr", group.get("initial_lr", 0)) for group in self.param_groups]  # of schedulers
        if lr > 1.2 * before and any(not isinstance(peak, Tensor) and peak > SMALL_LR for peak in peaks):
            self._checked = 2 * at, lr
        else:
            self._warn_of_small(self._highest)


def _as_groups(params: Any) -> list[dict[str, Any]]:
    """Parameters in any form, as parameter groups."""
    if isinstance(params, nn.Module):
        return [{"params": list(params.named_parameters())}]
    if isinstance(params, Tensor):
        raise TypeError(
            "params argument given to the optimizer should be a module or an iterable of Tensors or dicts, but got "
            f"{params.type()}"
        )
    entries = list(params)
    if not entries:
        raise ValueError("optimizer got an empty parameter list")
    if isinstance(entries[0], dict):
        return [dict(entry) for entry in entries]
    return [{"params": entries}]


def _flattened(state: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """The arrays of a state of the rule, by name."""
    for name, value in zip(state._fields, state, strict=True):
        if isinstance(value, tuple):
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _unflattened(like: Any, named: Mapping[str, Any], device: torch.device, prefix: str = "") -> Any:
    """A state of the rule from arrays by name, with the structure of another."""
    return type(like)(
        *(
            _unflattened(value, named, device, f"{prefix}{name}.")
            if isinstance(value, tuple)
            else named[f"{prefix}{name}"].detach().to(device, copy=True)
            for name, value in zip(like._fields, like, strict=True)
        )
    )


def _placed(value: Any, device: torch.device) -> Any:
    return value.detach().to(device, copy=True) if isinstance(value, Tensor) else value
