"""The residual networks are the well-known ones."""

import jax
import jax.numpy as jnp
import pytest

from samuel_lab.models import ResNet, ResNet18, ResNet50, Task


def shapes(network, side):
    """Shapes of parameters, and of what comes out of every part; nothing is computed."""
    images = jax.ShapeDtypeStruct((2, side, side, 3), jnp.float32)

    def apply(images):
        variables = network.init(jax.random.key(0), images)
        return variables["params"], network.apply(variables, images, capture_intermediates=True)[1]["intermediates"]

    params, parts = jax.eval_shape(apply, images)
    return Task.parameters(params), {
        name: part["__call__"][0].shape for name, part in parts.items() if name != "__call__"
    }


@pytest.mark.parametrize(
    ("network", "side", "count"),
    [
        (ResNet18(classes=10), 32, 11_173_962),
        (ResNet18(classes=1000, small_images=False), 224, 11_689_512),
        (ResNet50(classes=1000), 224, 25_557_032),
    ],
    ids=["ResNet-18 for CIFAR-10", "ResNet-18 for ImageNet", "ResNet-50 for ImageNet"],
)
def test_parameter_counts_are_the_well_known_ones(network, side, count):
    assert shapes(network, side)[0] == count


def test_resnet18_for_small_images_does_not_shrink_them_in_its_stem():
    _, parts = shapes(ResNet18(classes=10), 32)
    assert parts["stem"] == (2, 32, 32, 64)
    assert parts["stage1_block2"] == (2, 32, 32, 64)
    assert parts["stage4_block2"] == (2, 4, 4, 512)
    assert parts["head"] == (2, 10)


def test_resnet50_has_stages_of_3_4_6_and_3_bottlenecks():
    _, parts = shapes(ResNet50(classes=1000), 224)
    assert parts["stem"] == (2, 112, 112, 64)
    assert parts["stage1_block3"] == (2, 56, 56, 256)
    assert parts["stage2_block4"] == (2, 28, 28, 512)
    assert parts["stage3_block6"] == (2, 14, 14, 1024)
    assert parts["stage4_block3"] == (2, 7, 7, 2048)
    assert len(parts) == 3 + 4 + 6 + 3 + 3


@pytest.mark.parametrize(("zero_init", "scale"), [(True, 0.0), (False, 1.0)])
def test_blocks_begin_as_their_shortcut_if_asked_to(zero_init, scale):
    network = ResNet((1,), classes=2, width=3, zero_init=zero_init)

    @jax.jit
    def last_scale(key):
        params = network.init(key, jnp.zeros((1, 4, 4, 3)))["params"]
        return params["stage1_block1"]["last_norm"]["scale"]

    assert last_scale(jax.random.key(0)).tolist() == [scale] * 3
