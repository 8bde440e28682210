"""Roles of the parameters of PyTorch models: matrix, table or vector, found from modules and names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from samuel.core import roles as rules
from samuel.core.roles import Role

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
GATES = {nn.LSTM: 4, nn.LSTMCell: 4, nn.GRU: 3, nn.GRUCell: 3, nn.RNN: 1, nn.RNNCell: 1}
"""Recurrent modules, and how many gates they join in one parameter."""


def roles(model: nn.Module) -> dict[str, Role]:
    """Find the role of every parameter of a model: matrix, table or vector.

    Known modules decide, names otherwise. A role that follows from neither is a guess (`role.guessed`): "matrix" for
    two dimensions, and "vector", updated by Adam, for three or more.

    Args:
        model: the model, including frozen parameters.

    Returns:
        The roles by name, in the order of `model.named_parameters()`; a shared parameter has one entry.

    >>> model = nn.Sequential(nn.Embedding(100, 16), nn.Linear(16, 48), nn.LayerNorm(48))
    >>> {name: role.kind for name, role in roles(model).items()}
    {'0.weight': 'table', '1.weight': 'matrix', '1.bias': 'vector', '2.weight': 'vector', '2.bias': 'vector'}
    """
    named = dict(model.named_parameters())
    if not named:
        raise ValueError(f"{type(model).__name__} has no parameters; make the optimizer after the model's layers")
    _refuse_shapeless(named)
    names: dict[Tensor, str] = {p: name for name, p in named.items()}
    modules = dict(model.named_modules())
    found: dict[str, Role] = {}
    for path, module in modules.items():
        for leaf, p in module.named_parameters(recurse=False, remove_duplicate=False):
            role = _role(path, module, leaf, p, modules)
            name = names[p]
            found[name] = _stronger(found[name], role) if name in found else role
    widths = _widths(modules)
    for path, guessed in rules.outputs(widths, _vocabularies(modules, found, names)).items():
        for p in _weights(modules, path):
            if p.shape[0] == widths[path]:
                found[names[p]] = rules.table("output layer, as wide as the vocabulary", guessed=guessed)
    return {name: found[name] for name in named}


def roles_of_named(named: Iterable[tuple[str, Tensor]]) -> dict[str, Role]:
    """Find the role of every parameter from its name, or without names from shapes and their order.

    Args:
        named: pairs of name and parameter, as from `model.named_parameters()`. If all names are empty or numbers, the
            roles are guesses.

    >>> layer = nn.Linear(16, 48)
    >>> {name: role.kind for name, role in roles_of_named([("wte.weight", torch.zeros(100, 16))]).items()}
    {'wte.weight': 'table'}
    >>> [role.guessed for role in roles_of_named([("0", layer.weight), ("1", layer.bias)]).values()]
    [True, False]
    """
    pairs = dict(named)
    _refuse_shapeless(pairs)
    shapes = [tuple(p.shape) for p in pairs.values()]
    if all(not name or name.isdigit() for name in pairs):
        return dict(zip(pairs, rules.in_order(shapes), strict=True))
    sizes = dict(zip(pairs, shapes, strict=True))
    found = {name: _named(name, sizes) for name in pairs}
    for name, guess in zip(pairs, rules.in_order(shapes), strict=True):
        if found[name].guessed and found[name].kind == "matrix" and guess.kind == "table":
            found[name] = guess
    tables = {
        sizes[name][0]
        for name, role in found.items()
        if role.kind == "table" and not rules.words(_own(name)[0]) & rules.NOT_TEXT
    }
    layers = {
        name.removesuffix(".weight"): sizes[name][0]
        for name, role in found.items()
        if role.kind == "matrix" and len(sizes[name]) == 2 and name.endswith(".weight") and "lora_" not in name
    }
    for path, guessed in rules.outputs(layers, tables).items():
        found[f"{path}.weight"] = rules.table("output layer, as wide as the vocabulary", guessed=guessed)
    return found


def roles_of_groups(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Role]]:
    """Find the roles of parameter groups, each of which may set `role=` for its parameters.

    Args:
        groups: parameter groups of a torch optimizer: "params" are parameters or pairs of name and parameter; "role" is
            "matrix", "table", "vector" or a `Role`, and optional.

    Returns:
        For each group the roles by name, in the order of its parameters. The name of a parameter without one is its
        index over all groups, such as "3".

    >>> groups = [{"params": [torch.zeros(100, 16)], "role": "table"}, {"params": [torch.zeros(16)]}]
    >>> [{name: role.kind for name, role in group.items()} for group in roles_of_groups(groups)]
    [{'0': 'table'}, {'1': 'vector'}]
    """
    pairs: list[list[tuple[str, Tensor]]] = []
    seen: dict[Tensor, str] = {}
    names: set[str] = set()
    for group in groups:
        params = group["params"]
        own: list[tuple[str, Tensor]] = []
        for entry in [params] if isinstance(params, Tensor) else params:
            name, p = entry if isinstance(entry, tuple) else (str(len(seen)), entry)
            if p in seen:
                raise ValueError(f"parameter {name!r} of shape {tuple(p.shape)} is given twice, first as {seen[p]!r}")
            if name in names:
                raise ValueError(f"two parameters are named {name!r}; give each name once")
            seen[p] = name
            names.add(name)
            own.append((name, p))
        pairs.append(own)
    found = roles_of_named([pair for own in pairs for pair in own])
    return [
        {
            name: found[name]
            if group.get("role") is None
            else rules.checked(name, tuple(p.shape), group["role"], found[name])
            for name, p in own
        }
        for group, own in zip(groups, pairs, strict=True)
    ]


def _refuse_shapeless(named: Mapping[str, Tensor]) -> None:
    for name, p in named.items():
        if isinstance(p, nn.UninitializedParameter):
            raise ValueError(
                f"parameter {name!r} has no shape yet: run one batch through the model before making the optimizer"
            )


def as_matrices(tensor: Tensor, role: Role) -> list[Tensor]:
    """A parameter or its gradient as batches of matrices: parts of equal shape form one batch.

    >>> role = Role("matrix", (0,), (1,), parts=(4, 4, 4))
    >>> [tuple(batch.shape) for batch in as_matrices(torch.zeros(12, 8), role)]
    [(3, 4, 8)]
    """
    stack = rules.stack_of(role, tensor.ndim)
    whole = tensor.permute(*stack, *role.rows, *role.columns)
    count, rows, columns = (_size(tensor.shape, side) for side in (stack, role.rows, role.columns))
    whole = whole.reshape(count, rows, columns)
    if len({*role.parts}) == 1:
        return [whole.reshape(-1, role.parts[0], columns)]
    return list(whole.split(list(role.parts), dim=1)) if role.parts else [whole]


def from_matrices(batches: Sequence[Tensor], role: Role, shape: Sequence[int]) -> Tensor:
    """The tensor from which `as_matrices` makes these batches; its inverse.

    >>> role = Role("matrix", (1,), (0,), parts=(4, 2))
    >>> x = torch.arange(18.0).reshape(3, 6)
    >>> torch.equal(from_matrices(as_matrices(x, role), role, x.shape), x)
    True
    """
    axes = (*rules.stack_of(role, len(shape)), *role.rows, *role.columns)
    count, columns = (_size(shape, side) for side in (rules.stack_of(role, len(shape)), role.columns))
    whole = torch.cat([batch.reshape(count, -1, columns) for batch in batches], dim=1)
    back = [axes.index(axis) for axis in range(len(shape))]
    return whole.reshape([shape[axis] for axis in axes]).permute(back)


def _size(shape: Sequence[int], axes: Sequence[int]) -> int:
    return math.prod([shape[axis] for axis in axes])


# Modules


def _role(path: str, module: nn.Module, leaf: str, p: Tensor, modules: dict[str, nn.Module]) -> Role:
    """The role of a direct parameter of a module."""
    name = f"{path}.{leaf}" if path else leaf
    if isinstance(module, parametrize.ParametrizationList):
        return _parametrised(path, module, leaf, p, modules)
    if leaf.endswith(("_g", "_v", "_orig")) and leaf.rpartition("_")[0] in ("weight", "weight_hh_l0", "weight_ih_l0"):
        if leaf.endswith("_g"):  # torch.nn.utils.weight_norm, before parametrisations
            return rules.vector("weight norm")
        leaf = leaf.rpartition("_")[0]
    known = _known(path, module, leaf, tuple(p.shape), modules)
    return known if known is not None else _named(name, {name: tuple(p.shape)})


def _known(
    path: str, module: nn.Module, leaf: str, shape: tuple[int, ...], modules: dict[str, nn.Module]
) -> Role | None:
    """The role of a parameter of a known module; None for other modules."""
    own, parent = _own(path)
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) and leaf == "weight":
        if rules.is_positions(own, parent, type(module).__name__):
            return rules.vector("table of positions")
        return rules.table("embedding")
    if isinstance(module, nn.Linear) and leaf == "weight":
        return _linear(path, own, shape, modules)
    if isinstance(module, CONVOLUTIONS) and leaf == "weight":
        parts = (shape[0] // module.groups,) * module.groups
        role = rules.matrix(shape, (0,), range(1, len(shape)), _convolution(module.groups), parts=parts)
        return rules.split(role, own, shape)
    if isinstance(module, TRANSPOSED) and leaf == "weight":
        parts = (shape[0] // module.groups,) * module.groups
        return rules.matrix(shape, (0,), range(1, len(shape)), _convolution(module.groups), parts=parts)
    if isinstance(module, nn.Bilinear) and leaf == "weight":
        return rules.matrix(shape, (1,), (2,), "bilinear, a matrix for each output")
    for kind, count in GATES.items():
        if isinstance(module, kind) and leaf.startswith(("weight_ih", "weight_hh", "weight_hr")):
            parts = () if leaf.startswith("weight_hr") else (shape[0] // count,) * count
            return rules.matrix(shape, (0,), (1,), "recurrent" if count == 1 else "joined gates", parts=parts)
    if isinstance(module, nn.MultiheadAttention) and leaf.startswith("bias"):
        return rules.vector("bias")
    if type(module).__name__ == "Conv1D" and leaf == "weight" and len(shape) == 2:  # Hugging Face: inputs first
        return rules.split(rules.matrix(shape, (1,), (0,), "linear"), own, shape)
    if type(module).__name__.endswith("Linear") and leaf == "weight" and len(shape) == 2:
        return _linear(path, own, shape, modules)
    if leaf == "weight" and (
        type(module).__module__.startswith("torch.nn.modules") and "Norm" in type(module).__name__
    ):
        return rules.vector("norm")
    if rules.is_norm(type(module).__name__):
        return rules.vector("norm")
    return _experts(module, leaf, shape)


def _linear(path: str, own: str, shape: tuple[int, ...], modules: dict[str, nn.Module]) -> Role:
    """The role of the weight of a linear layer; LoRA output weights are split as the layer they adapt."""
    parts = path.split(".")
    if "lora_A" in parts:
        return rules.flattened(shape, "adapter")
    if "lora_B" not in parts:
        return rules.split(rules.flattened(shape, "linear"), own, shape)
    base = modules.get(".".join([*parts[: parts.index("lora_B")], "base_layer"]))
    weight = getattr(base, "weight", None)
    columns = weight.numel() // shape[0] if isinstance(weight, Tensor) else shape[1]
    return rules.split(rules.flattened(shape, "adapter"), own, shape, columns)


def _convolution(groups: int) -> str:
    return "convolution" if groups == 1 else f"convolution in {groups} groups"


def _experts(module: nn.Module, leaf: str, shape: tuple[int, ...]) -> Role | None:
    """The role of a stack of experts; a joined gate is split if the shape of `down_proj` confirms it."""
    if len(shape) != 3 or not rules.words(type(module).__name__) & rules.EXPERTS:
        return None
    down = getattr(module, "down_proj", None)
    if leaf == "gate_up_proj" and isinstance(down, Tensor) and down.ndim == 3 and shape[1] == 2 * down.shape[2]:
        half = shape[1] // 2
        return rules.matrix(shape, (1,), (2,), "stack of experts, gate and up joined", parts=(half, half))
    if rules.words(leaf) & rules.VECTORS:
        return rules.vector("bias")
    return rules.matrix(shape, (1,), (2,), "stack of experts")


def _parametrised(path: str, module: Any, leaf: str, p: Tensor, modules: dict[str, nn.Module]) -> Role:
    """The role of an original parameter of a parametrisation."""
    above, _, name = path.rpartition(".parametrizations.")
    if not _:
        above, name = "", path.removeprefix("parametrizations.")
    kinds = [type(step).__name__ for step in module]
    owner = modules[above]
    shape = tuple(getattr(owner, name).shape)
    if tuple(p.shape) != shape:
        norm = "_WeightNorm" in kinds
        return rules.vector("weight norm" if norm else f"parametrised by {kinds[0]}", guessed=not norm)
    role = _role(above, owner, name, p, modules)
    if role.kind != "matrix" or {*kinds} <= {"_WeightNorm", "_SpectralNorm"}:
        return role
    if "_Orthogonal" in kinds:
        return rules.vector("parametrised as orthogonal", guessed=True)
    return Role(role.kind, role.rows, role.columns, role.parts, True, f"{role.why}, parametrised by {kinds[0]}")


def _own(path: str) -> tuple[str, str]:
    """The name of a module and of its parent, without path components of wrappers."""
    parts = [part for part in path.split(".") if part not in rules.ADAPTERS and not part.startswith("lora_")]
    return (["", "", *parts])[-1], (["", "", *parts])[-2]


def _stronger(one: Role, other: Role) -> Role:
    """The role of a shared parameter: a table if it is one for either module; known roles before guesses."""
    if "table" in (one.kind, other.kind):
        return one if one.kind == "table" else other
    return other if one.guessed and not other.guessed else one


def _is_linear(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return type(module).__name__.endswith(("Linear", "Conv1D")) and isinstance(weight, Tensor) and weight.ndim == 2


def _widths(modules: dict[str, nn.Module]) -> dict[str, int]:
    """Output sizes of the linear layers of a model, without adapters, in its order."""
    found: dict[str, int] = {}
    for path, module in modules.items():
        if _is_linear(module) and "lora_" not in path:
            weight: Any = module.weight
            found[path] = int(weight.shape[1 if type(module).__name__ == "Conv1D" else 0])
    return found


def _vocabularies(modules: dict[str, nn.Module], found: dict[str, Role], names: dict[Tensor, str]) -> set[int]:
    """Numbers of rows of the embeddings of a model."""
    return {
        int(module.weight.shape[0])
        for path, module in modules.items()
        if isinstance(module, nn.Embedding | nn.EmbeddingBag)
        and module.weight in names
        and found[names[module.weight]].kind == "table"
        and not rules.words(_own(path)[0]) & rules.NOT_TEXT
    }


def _weights(modules: dict[str, nn.Module], path: str) -> list[nn.Parameter]:
    """The weight of a linear layer, or the originals of its parametrisation."""
    module = modules[path]
    inner = modules.get(f"{path}.parametrizations.weight" if path else "parametrizations.weight", module)
    return [p for p in inner.parameters(recurse=False) if p.ndim == 2]


# Names


def _named(name: str, sizes: dict[str, tuple[int, ...]]) -> Role:
    """The role of a parameter from its name and the shapes of all named parameters."""
    shape = sizes[name]
    above, _, leaf = name.rpartition(".")
    if leaf.startswith("weight_ih") and len(shape) == 2:  # the recurrent weight determines the number of gates
        partner = sizes.get(name.replace("weight_ih", "weight_hh"), ())
        if len(partner) == 2:
            return rules.gates(shape, partner, above.rpartition(".")[2])
    bias = sizes.get(f"{above}.bias" if above else "bias") if leaf == "weight" else None
    return rules.by_name(name, shape, bias=bias)
