# SPDX-License-Identifier: Apache-2.0
"""The core on devices that answer differently from openmps, as Apple's may: tests replace methods of openmps."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support import run_python

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="replaces methods of openmps")

BEFORE = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import mpscnn
from messages import name_of, replace

ID, BOOL, COUNT = ctypes.c_void_p, ctypes.c_ubyte, ctypes.c_ulong
x = np.random.default_rng(0).standard_normal((2, 5, 4, 6), dtype=np.float32)
weight = np.random.default_rng(1).standard_normal((8, 6, 3, 3), dtype=np.float32)
"""


def run(program: str) -> str:
    return run_python(BEFORE + program, str(Path(__file__).parent))


def test_images_with_memory_of_their_own_are_synchronized() -> None:
    """Results, loss images, gradients, statistics and exported weights; not temporary images."""
    assert run("""
shared = []
def answers(original):
    return lambda self, _, asked: 0 if "bytesNoCopy" in name_of(asked) else original(self, _, asked)
replace("+[NSObject instancesRespondToSelector:]", BOOL, [ID], answers)

seen = []
for kind in ("MPSImage", "MPSState"):
    def counts(original, kind=kind):
        return lambda self, _, commands: (seen.append(kind), original(self, _, commands))[1]
    replace(f"-[{kind} synchronizeOnCommandBuffer:]", None, [ID], counts)

def since(shown):
    print(shown, *seen)
    seen.clear()

print(mpscnn.Device().shares_images)
conv = mpscnn.Convolution(weight, padding=1)
with mpscnn.CommandBuffer() as commands:
    middle = mpscnn.NeuronReLU().encode(commands, mpscnn.Image.from_array(x), temporary=True)
    y = conv.encode(commands, middle)
since("one of two kernels")
print(np.abs(y.numpy() - conv(np.maximum(x, 0))).max() == 0)
seen.clear()
with mpscnn.CommandBuffer() as commands:
    state = conv.export_weights(commands)
since("weights")
with mpscnn.CommandBuffer() as commands:
    y, state = conv.encode(commands, mpscnn.Image.from_array(x), with_state=True)
    seen.clear()
    conv.gradient.encode(commands, y, mpscnn.Image.from_array(x), state)
since("gradient")
mpscnn.Loss("mean_squared_error")(x, x)
since("loss")
mpscnn.BatchNormalizationStatistics()(x)
since("statistics")
""").splitlines() == [
        "False",
        "one of two kernels MPSImage",
        "True",
        "weights MPSState",
        "gradient MPSState MPSImage",
        "loss MPSImage MPSImage MPSImage",  # of two images a loss each
        "statistics MPSState",
    ]


def test_a_device_with_memory_of_its_own_is_refused() -> None:
    assert run("""
replace("-[MTLDeviceOnEngine hasUnifiedMemory]", BOOL, [], lambda original: lambda self, _: 0)
try:
    mpscnn.Device()
except NotImplementedError as error:
    print(error)
""").endswith(" has memory of its own, and arrays are the CPU's: Apple silicon is needed.\n")


def test_memory_that_the_cpu_does_not_see_is_no_array() -> None:
    """Of states, which MPS makes: private buffers answer NULL [MTLBuffer.h]."""
    assert (
        run("""
with mpscnn.CommandBuffer() as commands:
    state = mpscnn.Convolution(weight).export_weights(commands)
replace("-[MTLBufferOnEngine contents]", ID, [], lambda original: lambda self, _: None)
for look in (lambda: state.weights, lambda: np.asarray(state.weights)):
    try:
        look()
    except NotImplementedError as error:
        print(error)
""")
        == "Buffer: this device does not show the CPU its memory.\n" * 2
    )


def test_convolutions_ask_for_the_float_accumulator() -> None:
    assert (
        run("""
def tells(original):
    return lambda self, _, option: (print(option), original(self, _, option))[1]
for kind in ("MPSCNNConvolution", "MPSCNNConvolutionTranspose"):
    replace(f"-[{kind} setAccumulatorPrecisionOption:]", None, [COUNT], tells)
mpscnn.Convolution(weight)
mpscnn.FullyConnected(weight.reshape(8, -1))
mpscnn.ConvolutionTranspose(weight)
""")
        == "1\n1\n1\n"
    )


def test_sums_of_gradients_are_made_of_one_optimizer_and_buffer() -> None:
    """A batch in two parts, three steps: the optimizer, what adds the parts, and one sum for each parameter."""
    assert run("""
optimizers, buffers = [], []
replace("-[MPSNNOptimizerStochasticGradientDescent initWithDevice:momentumScale:useNesterovMomentum:"
        "optimizerDescriptor:]", ID, [ID, ctypes.c_float, BOOL, ID],
        lambda original: lambda *a: (optimizers.append(0), original(*a))[1])
conv = mpscnn.Convolution(weight, np.zeros(8, np.float32), padding=1)
gradient = conv.gradient
sgd = mpscnn.OptimizerStochasticGradientDescent(0.1)
with mpscnn.CommandBuffer() as commands:
    values = sgd.state_for(conv.export_weights(commands))
replace("-[MTLDeviceOnEngine newBufferWithLength:options:]", ID, [COUNT, COUNT],
        lambda original: lambda *a: (buffers.append(0), original(*a))[1])
image = mpscnn.Image.from_array(x)
for _ in range(3):
    with mpscnn.CommandBuffer() as commands:
        states = []
        for part in range(2):
            y, state = conv.encode(commands, image, with_state=True)
            gradient.encode(commands, y, image, state)
            states.append(state)
        buffers.clear()
        sgd.encode(commands, states, values)
        print(len(optimizers), len(buffers))
""").splitlines() == ["2 2", "2 0", "2 0"]
