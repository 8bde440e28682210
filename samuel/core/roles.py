"""Roles of parameters, from their names and shapes: matrix, table or vector.

    matrix    maps inputs to outputs: linear layers, convolutions, joined projections and gates, stacks of experts
    table     rows that are looked up by index: embeddings, and output layers as wide as their vocabulary
    vector    everything else: norms, biases, scalars, learned tokens, tables of positions

A base such as Muon makes the step of a matrix orthogonal and leaves tables and vectors to Adam; weight decay is for
matrices and tables. `samuel.torch.roles` and `samuel.jax.roles` find the roles of a model's parameters; this module has
what both share, and works on names and shapes alone.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

Kind = Literal["matrix", "table", "vector"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Role:
    """Role of one parameter, and for a matrix which axes are its rows and columns.

    Axes that are neither rows nor columns are stacked: each of their indices is a matrix of its own.

    Args:
        kind: "matrix", "table" or "vector".
        rows: the axes that make up the rows, usually the outputs; only of a matrix.
        columns: the axes that make up the columns, usually the inputs; only of a matrix.
        parts: numbers of rows of matrices joined along the rows, such as query, key and value; empty for a single
            matrix.
        guessed: whether the role follows from the shape alone, not from a known module or name.
        why: the reason for the role, in a few words.

    >>> joined = Role("matrix", rows=(0,), columns=(1,), parts=(4, 4, 4), why="joined query, key, value")
    >>> matrices(joined, (12, 8))
    ((3, 4, 8),)
    """

    kind: Kind
    rows: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()
    parts: tuple[int, ...] = ()
    guessed: bool = False
    why: str = ""


def vector(why: str, *, guessed: bool = False) -> Role:
    """Role of a parameter that goes to Adam without weight decay.

    >>> vector("bias").kind
    'vector'
    """
    return Role("vector", guessed=guessed, why=why)


def table(why: str, *, guessed: bool = False) -> Role:
    """Role of a parameter whose rows are looked up by index, which goes to Adam.

    >>> table("embedding").kind
    'table'
    """
    return Role("table", guessed=guessed, why=why)


def matrix(
    shape: Sequence[int],
    rows: Iterable[int],
    columns: Iterable[int],
    why: str,
    *,
    parts: Sequence[int] = (),
    guessed: bool = False,
) -> Role:
    """Role of a parameter of one or several matrices; "vector" if they have a single row or column.

    >>> matrix((64, 3, 5, 5), (0,), (1, 2, 3), "convolution").kind
    'matrix'
    >>> matrix((1, 64), (0,), (1,), "linear").why
    'linear, a single row'
    """
    parts = () if len(parts) <= 1 else tuple(parts)
    role = Role("matrix", tuple(rows), tuple(columns), parts, guessed, why)
    sizes = matrices(role, shape)
    if any(min(m, n) == 0 for _, m, n in sizes):
        return vector(f"{why}, empty", guessed=guessed)
    for side, word in ((1, "row"), (2, "column")):
        if any(size[side] == 1 for size in sizes):
            return vector(f"{why}, a single {word}", guessed=guessed)
    return role


def flattened(shape: Sequence[int], why: str, *, guessed: bool = False) -> Role:
    """Role of a matrix whose first axis is its rows and all others its columns, the layout of torch.

    >>> matrices(flattened((8, 3, 5, 5), "convolution"), (8, 3, 5, 5))
    ((1, 8, 75),)
    """
    return matrix(shape, (0,), range(1, len(shape)), why, guessed=guessed)


def stacked(role: Role, axes: int) -> Role:
    """Role of a stack, along leading axes, of parameters with this role.

    >>> matrices(stacked(flattened((8, 3), "linear"), 1), (12, 8, 3))
    ((12, 8, 3),)
    """
    rows, columns = (tuple(axis + axes for axis in side) for side in (role.rows, role.columns))
    return replace(role, rows=rows, columns=columns)


def matrices(role: Role, shape: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
    """Number, rows and columns of the matrices in a parameter, grouped by shape; empty if it is no matrix.

    >>> matrices(Role("matrix", (1,), (2,), (30, 10, 10)), (5, 50, 20))
    ((5, 30, 20), (10, 10, 20))
    """
    if role.kind != "matrix":
        return ()
    stack = math.prod(shape[axis] for axis in stack_of(role, len(shape)))
    rows, columns = (math.prod(shape[axis] for axis in side) for side in (role.rows, role.columns))
    counts: dict[int, int] = {}
    for part in role.parts or (rows,):
        counts[part] = counts.get(part, 0) + stack
    return tuple((count, part, columns) for part, count in counts.items())


def stack_of(role: Role, dimensions: int) -> tuple[int, ...]:
    """The axes of a matrix parameter that are stacked: neither rows nor columns.

    >>> stack_of(Role("matrix", rows=(1,), columns=(2,)), 3)
    (0,)
    """
    return tuple(axis for axis in range(dimensions) if axis not in role.rows + role.columns)


def orthogonalisation_flops(role: Role, shape: Sequence[int], iterations: int = 5) -> float:
    """Floating-point operations of orthogonalising a parameter's step; 0 if it is no matrix.

    An iteration on a matrix of sides m <= n is the Gram matrix and its product with the matrix, `2 m^2 n` operations
    each, and the square of the Gram matrix, `2 m^3`.

    >>> orthogonalisation_flops(Role("matrix", (0,), (1,)), (768, 3072)) / 1e12
    0.0407...
    """
    total = 0
    for count, rows, columns in matrices(role, shape):
        short, long = min(rows, columns), max(rows, columns)
        total += count * (2 * (2 * short * short * long) + 2 * short**3)
    return float(iterations * total)


# Roles given by the user


def checked(name: str, shape: Sequence[int], role: str | Role, found: Role | None = None) -> Role:
    """The role that a user gives to a parameter; a `ValueError` that names the parameter if the role does not fit.

    Args:
        name: of the parameter, for the error.
        shape: of the parameter.
        role: "matrix", "table" or "vector", or a `Role`.
        found: the role found automatically, whose axes are used if it is a matrix as well.

    >>> checked("layer.bias", (8,), "matrix")
    Traceback (most recent call last):
        ...
    ValueError: role='matrix' does not fit parameter 'layer.bias' of shape (8,): a matrix has two dimensions or more...
    """
    kind = role.kind if isinstance(role, Role) else role
    if kind not in KINDS:
        raise ValueError(f"role of parameter {name!r} must be one of {', '.join(map(repr, KINDS))}, got {kind!r}")
    misfit = f"role={kind!r} does not fit parameter {name!r} of shape {tuple(shape)}"
    if kind != "vector" and len(shape) < 2:
        raise ValueError(f"{misfit}: a {kind} has two dimensions or more; use role='vector'")
    if isinstance(role, Role):
        given = replace(role, guessed=False, why=role.why or "given")
        _check_axes(name, shape, given)
    elif kind == "matrix" and found is not None and found.kind == "matrix":
        given = replace(found, guessed=False, why="given")
    elif kind == "matrix":
        given = flattened(shape, "given")
    else:
        given = Role(kind, why="given")
    if kind == "matrix" and (given.kind != kind or any(min(m, n) < 2 for _, m, n in matrices(given, shape))):
        raise ValueError(f"{misfit}: a matrix has at least two rows and two columns; use role='vector'")
    return given


def guess_warning(roles: Mapping[str, Role], remedy: str) -> str:
    """Warning about roles that were guessed; empty if none was.

    Args:
        roles: the roles by name.
        remedy: what to do about them.

    >>> theta = vector("3 dimensions that nothing explains", guessed=True)
    >>> print(guess_warning({"theta": theta}, "Give the model"))
    the roles of 1 of 1 parameters are guesses: vector: theta. Give the model
    """
    guessed = {name: role for name, role in roles.items() if role.guessed}
    if not guessed:
        return ""
    lists = []
    for kind in KINDS:
        names = [name for name, role in guessed.items() if role.kind == kind]
        if names:
            rest = f" and {len(names) - 5} more" if len(names) > 5 else ""
            lists.append(f"{kind}: {', '.join(names[:5])}{rest}")
    return f"the roles of {len(guessed)} of {len(roles)} parameters are guesses: {'; '.join(lists)}. {remedy}"


def _check_axes(name: str, shape: Sequence[int], role: Role) -> None:
    axes = role.rows + role.columns
    if role.kind != "matrix":
        if axes or role.parts:
            raise ValueError(f"only a matrix has rows, columns and parts, got {role!r} for parameter {name!r}")
        return
    if not (role.rows and role.columns) or len({*axes}) < len(axes) or not {*axes} <= {*range(len(shape))}:
        raise ValueError(
            f"rows and columns of parameter {name!r} must be different axes of its shape {tuple(shape)}, at least one "
            f"each, got rows={role.rows} and columns={role.columns}"
        )
    rows = math.prod(shape[axis] for axis in role.rows)
    if role.parts and (min(role.parts) < 1 or sum(role.parts) != rows):
        raise ValueError(
            f"parts of parameter {name!r} must be positive and add up to its {rows} rows, got {role.parts}"
        )


# Names

POSITIONS = {"pos", "position", "positions", "positional", "wpe", "rope", "rotary", "rel", "relative"}
"""Words in the names of tables of positions."""
NORMS = {"norm", "norms", "ln", "bn", "gn"}
"""Words in the names of norms, beside those that end in "norm"."""
EMBEDDINGS = {
    "embed",
    "embedding",
    "embeddings",
    "embedder",
    "emb",
    "wte",
    "wse",
    "vocab",
    "vocabulary",
    "codebook",
    "lookup",
}
"""Words in the names of tables."""
NOT_LOOKED_UP = {"patch", "patches", "time", "timestep", "proj", "projection", "conv", "linear", "mlp", "dense"}
"""Words in the names of layers that are called embeddings."""
VECTORS = {
    "bias",
    "biases",
    "scale",
    "scales",
    "shift",
    "shifts",
    "gamma",
    "beta",
    "gain",
    "offset",
    "offsets",
    "magnitude",
}
"""Words in the names of parameters that are added to activations or multiply them one by one."""
TOKENS = {"token", "tokens", "cls", "prompt", "prompts", "latents", "queries", "registers"}
"""Words in the names of parameters that are learned inputs."""
NOT_TEXT = {
    "type",
    "types",
    "segment",
    "label",
    "labels",
    "class",
    "classes",
    "task",
    "domain",
    "time",
    "timestep",
    "step",
}
"""Words in the names of tables that are not a vocabulary of the outputs."""
EXPERTS = {"expert", "experts", "moe"}
"""Words in the names of stacks of matrices."""
LINEARS = {
    "linear", "lin", "dense", "fc", "proj", "projection", "mlp", "ffn", "query", "key", "value", "attn", "attention",
    "classifier", "head", "gate", "up", "down", "router", "readout", "q", "k", "v", "o", "wq", "wk", "wv", "wo", "wi",
    "qkv", "kv", "out", "output", "pooler", "lora", "hidden", "w",
}  # fmt: skip
"""Words in the names of linear layers."""
OUTPUTS = {
    "head", "output", "out", "decoder", "logits", "generator", "predictions", "readout", "unembed",
    "fc_out", "proj_out", "out_proj", "output_projection", "output_layer", "lm_head", "final",
}  # fmt: skip
"""Names of output layers, if they are as wide as the vocabulary."""
SURELY_OUTPUTS = {"lm_head", "embed_out", "unembed", "unembedding", "output_embedding", "to_logits"}
"""Names of output layers, whatever their width."""
WEIGHTS = {"weight", "kernel", "w", "weight_v", "weight_orig", "original", "original1"}
"""Names of the main parameter of a layer."""
JOINED = {
    "qkv": 3, "to_qkv": 3, "c_attn": 3, "in_proj": 3, "qkv_proj": 3, "wqkv": 3, "in_proj_weight": 3,
    "kv": 2, "to_kv": 2, "kv_proj": 2, "wkv": 2, "gate_up_proj": 2,
}  # fmt: skip
"""Names of layers that join several matrices along their rows, and how many."""
ADAPTERS = {"base_layer", "default", "lora_B", "parametrizations", "original", "original1", "weight"}
"""Parts of a path that wrappers put between a layer and its parameters."""


def words(name: str) -> set[str]:
    """The words of a name in lower case, without numbers.

    >>> sorted(words("LayerNorm_0")), sorted(words("relative_position_bias"))
    (['layer', 'norm'], ['bias', 'position', 'relative'])
    """
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return {word for word in re.split(r"[^a-z]+", spaced.lower()) if word}


def is_norm(name: str) -> bool:
    """Whether a module of this name is a norm.

    >>> [is_norm(name) for name in ("ln_1", "RMSNorm", "layernorm_before", "normal")]
    [True, True, True, False]
    """
    found = words(name)
    return bool(found & NORMS) or any(word.endswith("norm") for word in found)


def is_positions(*names: str) -> bool:
    """Whether one of these names is of a table of positions.

    >>> is_positions("embeddings", "position_embeddings"), is_positions("composition")
    (True, False)
    """
    return any(words(name) & POSITIONS for name in names)


def joined(name: str, rows: int, columns: int) -> tuple[tuple[int, ...], bool]:
    """Rows of each matrix joined in a layer of this name, empty for a single one, and whether that is certain.

    With shared heads, query, key and value have different numbers of rows, so thirds are certain only if each has as
    many rows as there are inputs.

    >>> joined("qkv", 96, 32), joined("qkv_proj", 64, 32), joined("fc", 96, 32)
    (((32, 32, 32), True), ((), False), ((), True))
    """
    count = JOINED.get(name.lower(), 1)
    if count == 3 and name.lower() == "c_attn" and rows == 2 * columns:
        count = 2  # keys and values of cross-attention
    if count == 1 or (name.lower() == "in_proj" and rows != 3 * columns):
        return (), True  # in state space models, in_proj has another meaning
    if rows % count:
        return (), False
    return (rows // count,) * count, count == 2 or rows == 3 * columns or name.lower() == "to_qkv"


def outputs(layers: Mapping[str, int], vocabularies: Iterable[int], *, ordered: bool = True) -> dict[str, bool]:
    """Names of output layers as wide as a vocabulary, and whether that is a guess.

    Args:
        layers: names of all linear layers, in the order of the model, and their numbers of outputs.
        vocabularies: numbers of rows of its tables, without those of positions.
        ordered: whether the order is that of the model, so that the last layer is known.

    >>> outputs({"fc1": 64, "fc2": 16, "lm_head": 101}, [101])
    {'lm_head': False}
    >>> outputs({"0": 64, "1": 64, "2": 64}, [64])  # all as wide as the vocabulary: the last one, as a guess
    {'2': True}
    """
    vocabularies = {*vocabularies}
    own = {name: re.split(r"[./]", name)[-1].lower() for name in layers}
    sure = [name for name in layers if own[name] in SURELY_OUTPUTS]
    if sure:
        return dict.fromkeys(sure, False)
    wide = [name for name, width in layers.items() if width in vocabularies and own[name] in OUTPUTS]
    if wide:
        return {wide[-1]: False}
    wide = [name for name, width in layers.items() if width == max(vocabularies, default=-1)]
    if wide and (wide[-1] == [*layers][-1] if ordered else len(wide) == 1):
        return {wide[-1]: len(wide) > 1 or not ordered}
    return {}


def by_name(
    name: str,
    shape: Sequence[int],
    *,
    inputs_first: bool = False,
    bias: Sequence[int] | None = None,
) -> Role:
    """Role of a parameter from its name and shape.

    Args:
        name: its path in the model, with dots.
        shape: its shape.
        inputs_first: whether the outputs are the last axis of a layer's main parameter (JAX), not the first (torch).
        bias: the shape of the layer's bias, if there is one: its outputs.

    >>> by_name("blocks.0.attn.qkv.weight", (96, 32)).parts
    (32, 32, 32)
    >>> by_name("pos_embed", (1, 64, 384)).kind
    'vector'
    >>> by_name("theta", (5, 8, 8)).guessed
    True
    """
    *path, leaf = name.split(".")
    path = [part for part in path if part not in ADAPTERS]
    module, parent = (["", "", *path])[-1], (["", "", *path])[-2]
    main = leaf in WEIGHTS
    if "lora_embedding_A" in path and len(shape) == 2:
        return table("adapter of an embedding")
    if "lora_embedding_B" in path and len(shape) == 2:
        return flattened(shape, "adapter of an embedding")
    if len(shape) == 0 or max(shape, default=1) == math.prod(shape):
        return vector(_kind_of_vector(leaf, module, shape))
    if (words(leaf) & VECTORS and not main) or is_norm(leaf) or re.fullmatch(r"b\d*|g|weight_g|original0", leaf):
        return vector(_kind_of_vector(leaf, module, shape))
    if is_norm(module) and (main or leaf in ("scale", "offset")):
        return vector("norm")
    if is_positions(leaf, *([module, parent] if _names_table(leaf, module) else [])):
        return vector("table of positions")
    if main and len(shape) == 2 and is_positions(module) and not words(module) & NOT_LOOKED_UP:
        return vector("table of positions")
    if not main and words(leaf) & TOKENS:
        return vector("learned input")
    if len(shape) == 2 and _names_table(leaf, module):
        return table("embedding")
    if main and module.lower() in SURELY_OUTPUTS and len(shape) == 2:
        return table("output layer")
    if leaf.startswith("weight_hh") and len(shape) == 2:
        return gates(shape, shape, module)
    if leaf == "in_proj_weight":
        return split(flattened(shape, "attention"), leaf, shape)
    if any(words(part) & EXPERTS for part in (leaf, module, parent)) and len(shape) == 3:
        columns, rows = ((1,), (2,)) if inputs_first else ((2,), (1,))
        return matrix(shape, rows, columns, "stack of experts")
    layer = module if main else leaf
    role = _layer(layer, shape, inputs_first=inputs_first, main=main, bias=bias)
    return split(role, layer, shape)


def _kind_of_vector(leaf: str, module: str, shape: Sequence[int]) -> str:
    """Description, for the user, of a parameter that is no matrix."""
    if math.prod(shape) == 1:
        return "scalar"
    if is_positions(leaf):
        return "table of positions"
    if is_norm(module) or is_norm(leaf):
        return "norm"
    if words(leaf) & {"bias", "biases"} or re.fullmatch(r"b\d*", leaf):
        return "bias"
    return "learned input" if words(leaf) & TOKENS else "vector"


def _names_table(leaf: str, module: str) -> bool:
    """Whether a name is of an embedding."""
    own = words(leaf) if leaf not in WEIGHTS else words(module)
    if leaf in ("embedding", "embeddings"):
        own = own | {"embedding"}
        return not (words(leaf) & NOT_LOOKED_UP)
    return bool(own & EMBEDDINGS) and not own & NOT_LOOKED_UP


def gates(shape: Sequence[int], recurrent: Sequence[int], module: str = "") -> Role:
    """Role of the joined gates of a recurrent layer, outputs first.

    Args:
        shape: of the parameter.
        recurrent: shape of the parameter that maps the state to the gates, whose sides give their number.
        module: the name of the module, which identifies it where the state is projected.

    >>> gates((80, 24), (80, 20)).parts, gates((80, 24), (80, 12), "lstm").parts
    ((20, 20, 20, 20), (20, 20, 20, 20))
    """
    counts = [count for word, count in (("lstm", 4), ("gru", 3), ("rnn", 1)) if word in words(module)]
    rows, state = recurrent
    if rows % state == 0 and rows // state in (1, 3, 4):
        counts.insert(0, rows // state)
    if rows != shape[0] or not counts or rows % counts[0]:
        return flattened(shape, "recurrent, gates not separated", guessed=True)
    return matrix(shape, (0,), (1,), "joined gates", parts=(rows // counts[0],) * counts[0])


def split(role: Role, name: str, shape: Sequence[int], inputs: int | None = None) -> Role:
    """The role of a layer that, by its name, joins several matrices: they become its parts.

    Args:
        role: of the layer as one matrix.
        name: of the layer.
        shape: of its main parameter.
        inputs: number of inputs, if it differs from the number of columns.

    >>> split(flattened((96, 32), "linear"), "qkv", (96, 32)).why
    'joined query, key, value'
    """
    if role.kind != "matrix" or role.parts:
        return role
    rows, columns = (math.prod(shape[axis] for axis in side) for side in (role.rows, role.columns))
    parts, certain = joined(name, rows, columns if inputs is None else inputs)
    if not parts:
        return role if certain else replace(role, guessed=True, why="joined, parts not separated")
    why = "joined query, key, value" if len(parts) == 3 else f"joined, {len(parts)} parts"
    return matrix(shape, role.rows, role.columns, why, parts=parts, guessed=role.guessed or not certain)


def _layer(name: str, shape: Sequence[int], *, inputs_first: bool, main: bool, bias: Sequence[int] | None) -> Role:
    """Role of the main parameter of a layer, or of a parameter with the name of one."""
    last = len(shape) - 1
    found = words(name)
    if len(shape) == 2:
        known = bool(found & LINEARS) or bias is not None or re.fullmatch(r"w[a-z]?\d*|fc\d+|[ih][ifgorzn]_?", name)
        if bias is not None and shape[0] != shape[1] and tuple(bias) in (tuple(shape[:1]), tuple(shape[1:])):
            inputs_first = bias[0] == shape[1]
        rows, columns = ((1,), (0,)) if inputs_first else ((0,), (1,))
        return matrix(shape, rows, columns, "linear", guessed=not known)
    if not main:
        return by_shape(shape, inputs_first=inputs_first)
    if shape[last - 1 if inputs_first else 1] == 1 and found & {"depthwise", "dw", "dwconv", "depth"}:
        return vector("convolution, depthwise")
    if any(word.startswith("conv") for word in found) or found & {"downsample", "patch", "stem"}:
        role = _convolution(shape, "convolution", inputs_first=inputs_first)
        if shape[last - 1 if inputs_first else 1] == 1 and "stem" not in found:
            return replace(role, guessed=True, why="convolution of one channel, or depthwise")
        return role
    if bias is not None and inputs_first and 0 < len(bias) <= last and tuple(shape[-len(bias) :]) == tuple(bias):
        first = len(shape) - len(bias)
        why = "linear in heads" if len(bias) > 1 else "linear or convolution"
        return matrix(shape, range(first, len(shape)), range(first), why)
    if bias is not None and not inputs_first and tuple(bias) == tuple(shape[:1]):
        return _convolution(shape, "linear or convolution", inputs_first=False)
    if inputs_first and len(shape) == 3:
        if name in ("query", "key", "value", "q", "k", "v"):
            return matrix(shape, (1, 2), (0,), "linear in heads")
        if name in ("out", "o"):
            return matrix(shape, (2,), (0, 1), "linear in heads")
    return by_shape(shape, inputs_first=inputs_first)


def _convolution(shape: Sequence[int], why: str, *, inputs_first: bool, guessed: bool = False) -> Role:
    """Role of a kernel whose outputs are its last axis (with inputs first) or its first."""
    last = len(shape) - 1
    rows, columns = ((last,), range(last)) if inputs_first else ((0,), range(1, last + 1))
    return matrix(shape, rows, columns, why, guessed=guessed)


def by_shape(shape: Sequence[int], *, inputs_first: bool = False) -> Role:
    """Role of a parameter from its shape alone; every matrix or table is a guess.

    Two dimensions are a matrix, or a table if one is far larger; a small square kernel is a convolution; any other with
    three or more dimensions goes to Adam.

    >>> [by_shape(shape).kind for shape in ((8,), (8, 4), (50_000, 768), (8, 3, 5, 5), (12, 8, 4))]
    ['vector', 'matrix', 'table', 'matrix', 'vector']
    """
    if len(shape) < 2 or max(shape) == math.prod(shape):
        return vector("vector" if math.prod(shape) != 1 else "scalar")
    if len(shape) == 2:
        if shape[0] >= 10_000 and shape[0] >= 8 * shape[1]:
            return table("far more rows than columns", guessed=True)
        rows, columns = ((1,), (0,)) if inputs_first else ((0,), (1,))
        return matrix(shape, rows, columns, "two dimensions", guessed=True)
    kernel = shape[:-2] if inputs_first else shape[2:]
    if len(kernel) >= 2 and len({*kernel}) == 1 and kernel[0] <= 16:
        return _convolution(shape, "shape of a convolution", inputs_first=inputs_first, guessed=True)
    return vector(f"{len(shape)} dimensions that nothing explains", guessed=True)


def in_order(shapes: Sequence[Sequence[int]]) -> list[Role]:
    """Roles of the parameters of a model from their shapes and order.

    Tables come first in a model, and the next parameter works on their columns, not their rows.

    >>> bert = [(101, 32), (24, 32), (2, 32), (32,), (32,), (32, 32), (32,), (80, 32), (80,)]
    >>> [role.kind for role in in_order(bert)][:7:2]
    ['table', 'table', 'vector', 'vector']
    """
    found = [by_shape(shape) for shape in shapes]
    for place, (shape, after) in enumerate(itertools.pairwise(shapes)):
        takes = after[1] if len(after) > 1 else after[0] if after else 0
        if len(shape) != 2 or shape[0] == shape[1] or takes != shape[1] or after == shape:
            break
        found[place] = table("before the layers, as wide as they are", guessed=True)
    widths = {shape[0] for shape, role in zip(shapes, found, strict=True) if role.kind == "table"}
    matrices_at = [place for place, role in enumerate(found) if role.kind == "matrix" and len(shapes[place]) == 2]
    if matrices_at and shapes[matrices_at[-1]][0] == max(widths, default=-1):
        found[matrices_at[-1]] = table("last, as wide as the first table", guessed=True)
    return found


# Display


@dataclass(frozen=True)
class Row:
    """One parameter of `describe`."""

    name: str
    shape: tuple[int, ...]
    role: Role
    decay: float = 0.0


def describe(rows: Iterable[Row], iterations: int = 5) -> str:
    """A table of parameters: name, shape, role, weight decay, and TFLOP of orthogonalisation per step.

    Layers that differ only in their number share a line.

    Args:
        rows: the parameters.
        iterations: of the orthogonalisation; 0 for a base without it.

    >>> weight = Row("layers.0.weight", (8, 4), flattened((8, 4), "linear"), 0.1)
    >>> print(describe([weight, replace(weight, name="layers.1.weight"), Row("bias", (8,), vector("bias"))]))
    parameter        count  shape   role    decay  TFLOP    found by
    layers.*.weight      2  (8, 4)  matrix    0.1  6.4e-09  linear
    bias                 1  (8,)    vector      0           bias
    3 parameters, 72 numbers: 64 in matrices, 0 in tables, 8 in vectors; 6.4e-09 TFLOP a step; no guesses
    """
    rows = list(rows)
    alike: dict[Row, list[str]] = {}
    for row in rows:
        pattern = replace(row, name=re.sub(r"(?<![^./_])\d+(?![^./_])", "*", row.name))
        alike.setdefault(pattern, []).append(row.name)
    lines = [("parameter", "count", "shape", "role", "decay", "TFLOP", "found by")]
    for row, names in alike.items():
        name, count = row.name if len(names) > 1 else names[0], len(names)
        cost = count * orthogonalisation_flops(row.role, row.shape, iterations) / 1e12
        shown = f"{cost:.2g}" if cost else ""
        why = f"guess: {row.role.why}" if row.role.guessed else row.role.why
        lines.append((name, str(count), str(row.shape), _summary(row), f"{row.decay:g}", shown, why))
    text = _aligned(lines, right=(1, 4))
    sizes = {kind: sum(math.prod(row.shape) for row in rows if row.role.kind == kind) for kind in KINDS}
    total = sum(orthogonalisation_flops(row.role, row.shape, iterations) for row in rows) / 1e12
    guesses = sum(row.role.guessed for row in rows)
    parts = ", ".join(f"{size:,} in {'matrices' if kind == 'matrix' else kind + 's'}" for kind, size in sizes.items())
    return (
        f"{text}\n{len(rows)} parameters, {sum(sizes.values()):,} numbers: {parts}; {total:.2g} TFLOP a step; "
        f"{guesses or 'no'} {'guess' if guesses == 1 else 'guesses'}"
    )


def _summary(row: Row) -> str:
    """A role in a few words: its kind, and the number and shape of its matrices."""
    sizes = matrices(row.role, row.shape)
    count = sum(size[0] for size in sizes)
    if not sizes or (count == 1 and len(row.shape) == 2):
        return row.role.kind
    return "matrix, " + " + ".join(f"{n} of {m} x {k}" for n, m, k in sizes)


def _aligned(lines: Sequence[Sequence[str]], right: Sequence[int]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
