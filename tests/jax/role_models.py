"""Trees of parameters that have roles: of flax linen and nnx, and with the names and shapes of equinox and haiku.

Nothing is computed: the trees hold shapes. Equinox and haiku are no dependency of the tests, so their trees are written
out, with classes and names as equinox 0.13.8 and dm-haiku 0.0.17 make them.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx

WIDTH, HIDDEN, VOCABULARY, HEADS = 32, 80, 101, 4
WORDS = jnp.zeros((2, 5), jnp.int32)
SEQUENCE = jnp.zeros((2, 5, WIDTH))
IMAGE = jnp.zeros((2, 16, 16, 3))


def shapes_of(module, *inputs):
    return jax.eval_shape(module.init, jax.random.key(0), *inputs)


# Flax linen


class Block(nn.Module):
    @nn.compact
    def __call__(self, x, _=None):
        x = x + nn.MultiHeadDotProductAttention(HEADS, qkv_features=24, name="attention")(nn.LayerNorm()(x))
        y = nn.Dense(HIDDEN, name="up")(nn.LayerNorm()(x))
        return x + nn.Dense(WIDTH, name="down")(nn.gelu(y)), None


class Transformer(nn.Module):
    tied: bool = False

    @nn.compact
    def __call__(self, words):
        embed = nn.Embed(VOCABULARY, WIDTH, name="tokens")
        x = embed(words) + self.param("pos_embed", nn.initializers.normal(), (1, 5, WIDTH))
        x = x + nn.Embed(5, WIDTH, name="position_embeddings")(jnp.arange(5))
        for _ in range(2):
            x, _ = Block()(x)
        x = nn.LayerNorm(name="ln_f")(x)
        return embed.attend(x) if self.tied else nn.Dense(VOCABULARY, name="lm_head")(x)


class Scanned(nn.Module):
    """Three layers whose parameters lie in one array each, and the experts of a mixture likewise."""

    @nn.compact
    def __call__(self, words):
        x = nn.Embed(VOCABULARY, WIDTH)(words)
        layers = nn.scan(Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        x, _ = layers(name="layers")(x, None)
        experts = nn.vmap(nn.Dense, variable_axes={"params": 0}, split_rngs={"params": True}, in_axes=None, axis_size=6)
        x = experts(HIDDEN, name="experts")(x).mean(0)
        w1 = self.param("moe_w1", nn.initializers.normal(), (6, HIDDEN, 48))
        return nn.Dense(WIDTH, name="head")(x @ w1[0])


class ScannedBare(nn.Module):
    """Layers without biases and norms in one array each, and layers with heads that are no attention."""

    @nn.compact
    def __call__(self, x):
        dense = nn.scan(
            BareLayer, variable_axes={"params": 0}, split_rngs={"params": True}, length=3, metadata_params={}
        )
        x, _ = dense()(x, None)
        y = nn.DenseGeneral((HEADS, 6), name="query")(x)
        y = nn.DenseGeneral(WIDTH, axis=(-2, -1), name="out")(y)
        y = nn.DenseGeneral((HEADS, 6), use_bias=False, name="key")(y)
        y = nn.DenseGeneral((HEADS, 6), name="split")(y.reshape(*y.shape[:-2], -1))
        return nn.DenseGeneral((3, HEADS, 6), use_bias=False, name="mixed")(y[..., 0])


class BareLayer(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        return nn.Dense(WIDTH, use_bias=False, name="mlp")(x), None


class ResNet(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(8, (7, 7), use_bias=False)(x)
        x = nn.BatchNorm(use_running_average=True)(x)
        x = nn.Conv(16, (3, 3), feature_group_count=2)(x)
        x = nn.GroupNorm(4)(x)
        x = nn.Conv(16, (3, 3), feature_group_count=16, name="depthwise")(x)
        x = nn.ConvTranspose(12, (4, 4), strides=(2, 2))(x)
        x = x * self.param("layer_scale", nn.initializers.ones, (1, 1, 1, 12))
        return nn.Dense(10)(x.mean((1, 2)))


class Vision(nn.Module):
    """The layout of Google's vision transformer."""

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(WIDTH, (4, 4), strides=(4, 4), name="embedding")(x)
        x = x.reshape(x.shape[0], -1, WIDTH)
        x = x + self.param("cls", nn.initializers.zeros, (1, 1, WIDTH))
        x = x + self.param("pos_embedding", nn.initializers.normal(), (1, 16, WIDTH))
        return nn.Dense(1, name="value")(nn.Dense(10, name="head")(x.mean(1)))


class Recurrent(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.RNN(nn.OptimizedLSTMCell(10))(x)
        x = nn.RNN(nn.LSTMCell(12))(x)
        return nn.RNN(nn.GRUCell(14))(x)


# Flax nnx


class NnxBlock(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.RMSNorm(WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(HEADS, WIDTH, 24, decode=False, rngs=rngs)
        self.mlp = nnx.Sequential(nnx.Linear(WIDTH, HIDDEN, rngs=rngs), nnx.gelu, nnx.Linear(HIDDEN, WIDTH, rngs=rngs))


class NnxTransformer(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
        self.pos_embed = nnx.Param(jnp.zeros((1, 5, WIDTH)))
        self.blocks = nnx.List([NnxBlock(rngs) for _ in range(2)])
        self.readout = nnx.Linear(WIDTH, VOCABULARY, rngs=rngs)


class NnxScanned(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
        self.layers = nnx.split_rngs(splits=3)(nnx.vmap(NnxBlock))(rngs)
        self.head = nnx.Linear(WIDTH, 10, rngs=rngs)


class NnxResNet(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(3, 8, (3, 3), rngs=rngs)
        self.bn = nnx.BatchNorm(8, rngs=rngs)
        self.up = nnx.ConvTranspose(8, 12, (4, 4), rngs=rngs)
        self.linear = nnx.Linear(12, 10, rngs=rngs)


class NnxOthers(nnx.Module):
    def __init__(self, rngs):
        self.lstm = nnx.OptimizedLSTMCell(16, 10, rngs=rngs)
        self.plain = nnx.LSTMCell(16, 12, rngs=rngs)
        self.gru = nnx.GRUCell(16, 10, rngs=rngs)
        self.general = nnx.LinearGeneral(16, (4, 6), rngs=rngs)
        self.einsum = nnx.Einsum("ab,bcd->acd", (16, 4, 6), rngs=rngs)
        self.lora = nnx.LoRA(16, 2, 8, rngs=rngs)
        self.mixing = nnx.Param(jnp.zeros((3, 4)))
        self.temperature = nnx.Param(jnp.zeros(()))


class NnxNormed(nnx.Module):
    def __init__(self, rngs):
        self.normed = nnx.WeightNorm(nnx.Linear(4, 5, rngs=rngs), rngs=rngs)


def nnx_parameters(module):
    return nnx.state(nnx.eval_shape(lambda: module(nnx.Rngs(0))), nnx.Param)


# Equinox: modules are trees, layers have outputs first.


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def as_tree(made):
    return jax.tree_util.register_dataclass(dataclasses.dataclass(made))


@as_tree
class Linear:
    weight: Any
    bias: Any


@as_tree
class Conv2d:
    weight: Any
    bias: Any


@as_tree
class LayerNorm:
    weight: Any
    bias: Any


@as_tree
class Embedding:
    weight: Any


@as_tree
class LSTMCell:
    weight_ih: Any
    weight_hh: Any
    bias: Any


@as_tree
class MultiheadAttention:
    query_proj: Any
    key_proj: Any
    value_proj: Any
    output_proj: Any


@as_tree
class Equinox:
    words: Any
    positions: Any
    patches: Any
    norm: Any
    attention: Any
    cell: Any
    layers: Any
    stacked: Any
    cls_token: Any
    mixing: Any
    head: Any


def equinox():
    attention = MultiheadAttention(*[Linear(shape(24, 32), None)] * 3, Linear(shape(32, 24), None))
    return Equinox(
        words=Embedding(shape(101, 32)),
        positions=Embedding(shape(24, 32)),
        patches=Conv2d(shape(32, 3, 4, 4), shape(32, 1, 1)),
        norm=LayerNorm(shape(5, 32), shape(5, 32)),
        attention=attention,
        cell=LSTMCell(shape(40, 32), shape(40, 10), shape(40)),
        layers=[Linear(shape(80, 32), shape(80)), Linear(shape(32, 80), shape(32))],
        stacked=Linear(shape(6, 80, 32), shape(6, 80)),
        cls_token=shape(1, 32),
        mixing=shape(7, 12),
        head=Linear(shape(101, 32), shape(101)),
    )


# Haiku: a dictionary of modules with slashes in their names, inputs first.


def haiku():
    norm = {"scale": shape(32), "offset": shape(32)}
    block = "transformer/~/block_0"
    return {
        "transformer": {"positional_embeddings": shape(24, 32)},
        "transformer/~/embed": {"embeddings": shape(101, 32)},
        f"{block}/layer_norm": norm,
        f"{block}/multi_head_attention/query": {"w": shape(32, 24), "b": shape(24)},
        f"{block}/multi_head_attention/linear": {"w": shape(24, 32), "b": shape(32)},
        f"{block}/mlp/~/linear_0": {"w": shape(32, 80), "b": shape(80)},
        "__layer_stack_no_per_layer/block/linear": {"w": shape(6, 32, 80), "b": shape(6, 80)},
        "__layer_stack_no_per_layer/block/layer_norm": {"scale": shape(6, 32), "offset": shape(6, 32)},
        "conv2_d": {"w": shape(3, 3, 8, 16), "b": shape(16)},
        "batch_norm": {"scale": shape(1, 1, 1, 16), "offset": shape(1, 1, 1, 16)},
        "lstm/linear": {"w": shape(26, 40), "b": shape(40)},
        "gru": {"w_i": shape(16, 30), "w_h": shape(10, 30), "b": shape(30)},
        "head/logits": {"w": shape(32, 101)},
    }


MODELS = {
    "linen transformer": partial(shapes_of, Transformer(), WORDS),
    "linen transformer, tied": partial(shapes_of, Transformer(tied=True), WORDS),
    "linen scanned": partial(shapes_of, Scanned(), WORDS),
    "linen scanned bare": partial(shapes_of, ScannedBare(), SEQUENCE),
    "linen ResNet": partial(shapes_of, ResNet(), IMAGE),
    "linen vision": partial(shapes_of, Vision(), IMAGE),
    "linen recurrent": partial(shapes_of, Recurrent(), SEQUENCE),
    "nnx transformer": partial(nnx_parameters, NnxTransformer),
    "nnx scanned": partial(nnx_parameters, NnxScanned),
    "nnx ResNet": partial(nnx_parameters, NnxResNet),
    "nnx others": partial(nnx_parameters, NnxOthers),
    "equinox": equinox,
    "haiku": haiku,
}
if hasattr(nnx, "WeightNorm"):  # not in the oldest flax
    MODELS["nnx normed"] = partial(nnx_parameters, NnxNormed)
