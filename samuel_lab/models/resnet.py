"""Residual networks (He et al. 2016): ResNet-18 for small images, ResNet-50 for large ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

# Normal, scaled by fan-out (He et al., ICCV 2015), as in most ResNets.
_KERNEL = nn.initializers.variance_scaling(2.0, "fan_out", "normal")


class Block(nn.Module):
    """A residual block: two convolutions of 3x3, or with `bottleneck` 1x1, 3x3, 1x1, and a shortcut.

    Attributes:
        channels: of its inner convolutions; a bottleneck's last has four times as many.
        stride: of its first 3x3 convolution ("v1.5" for a bottleneck).
        bottleneck: the kind of block.
        zero_init: start as the identity: the last normalisation begins at 0.
        dtype: of the computation.
    """

    channels: int
    stride: int = 1
    bottleneck: bool = False
    zero_init: bool = True
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """The block's output."""
        convolution = partial(nn.Conv, use_bias=False, dtype=self.dtype, kernel_init=_KERNEL)
        norm = partial(_norm, train=train, dtype=self.dtype)
        last = norm(name="last_norm", scale_init=nn.initializers.zeros if self.zero_init else nn.initializers.ones)
        wide = partial(convolution, kernel_size=(3, 3), padding=1)
        if self.bottleneck:
            features = 4 * self.channels
            y = nn.relu(norm()(convolution(self.channels, (1, 1))(x)))
            y = nn.relu(norm()(wide(self.channels, strides=self.stride)(y)))
            y = last(convolution(features, (1, 1))(y))
        else:
            features = self.channels
            y = nn.relu(norm()(wide(features, strides=self.stride)(x)))
            y = last(wide(features)(y))
        if x.shape[-1] != features or self.stride != 1:
            x = norm()(convolution(features, (1, 1), strides=self.stride)(x))
        return nn.relu(x + y)


class ResNet(nn.Module):
    """A residual network: a stem, stages of blocks, the mean over the image, and a linear layer.

    Attributes:
        blocks: blocks per stage; every stage but the first halves the image and doubles the channels.
        classes: number of classes.
        width: channels of the first stage.
        bottleneck: the kind of blocks.
        small_images: a stem of one 3x3 convolution (for 32x32 pixels), not of a 7x7 convolution and pooling that reduce
            the image by a factor of 4.
        zero_init: start blocks as the identity, which makes large learning rates safer.
        dtype: of the computation, such as `jnp.bfloat16` on GPUs; parameters and statistics are float32.

    >>> network = ResNet((1, 1), classes=10, width=8)
    >>> images = jnp.zeros((2, 32, 32, 3))
    >>> jax.eval_shape(network.init_with_output, jax.random.key(0), images)[0].shape
    (2, 10)
    """

    blocks: Sequence[int]
    classes: int
    width: int = 64
    bottleneck: bool = False
    small_images: bool = True
    zero_init: bool = True
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, images: jax.Array, train: bool = False) -> jax.Array:
        """A score for every class, from images of shape `(N, height, width, channels)`."""
        x = images.astype(self.dtype)
        stem = partial(nn.Conv, self.width, use_bias=False, dtype=self.dtype, kernel_init=_KERNEL, name="stem")
        x = stem((3, 3), padding=1)(x) if self.small_images else stem((7, 7), strides=2, padding=3)(x)
        x = nn.relu(_norm(train=train, dtype=self.dtype, name="stem_norm")(x))
        if not self.small_images:
            x = nn.max_pool(x, (3, 3), (2, 2), padding=((1, 1), (1, 1)))  # pyright: ignore[reportArgumentType]
        for stage, count in enumerate(self.blocks):
            for number in range(count):
                block = Block(
                    channels=self.width * 2**stage,
                    stride=2 if stage > 0 and number == 0 else 1,
                    bottleneck=self.bottleneck,
                    zero_init=self.zero_init,
                    dtype=self.dtype,
                    name=f"stage{stage + 1}_block{number + 1}",
                )
                x = block(x, train)
        return nn.Dense(self.classes, dtype=self.dtype, name="head")(x.mean(axis=(1, 2)))


ResNet18 = partial(ResNet, (2, 2, 2, 2))
"""ResNet-18 for small images: `ResNet18(classes=10)` has 11.17 million parameters."""

ResNet50 = partial(ResNet, (3, 4, 6, 3), bottleneck=True, small_images=False)
"""ResNet-50 for images like ImageNet's: `ResNet50(classes=1000)` has 25.56 million parameters."""


def _norm(train: bool, **options: Any) -> nn.BatchNorm:
    return nn.BatchNorm(use_running_average=not train, momentum=0.9, epsilon=1e-5, **options)
