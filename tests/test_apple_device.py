# SPDX-License-Identifier: Apache-2.0
"""The core on a device that behaves like Apple's (MPSCNN_DEVICE=apple), partly with replaced methods of openmps."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support import run_python

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="what openmps does, and methods of it replaced")

BEFORE = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import mpscnn
from messages import replace, send

ID, BOOL, COUNT = ctypes.c_void_p, ctypes.c_ubyte, ctypes.c_ulong
x = np.random.default_rng(0).standard_normal((2, 5, 4, 6), dtype=np.float32)
weight = np.random.default_rng(1).standard_normal((8, 6, 3, 3), dtype=np.float32)
"""


def run(program: str, device: str = "apple") -> str:
    return run_python(BEFORE + program, str(Path(__file__).parent), MPSCNN_DEVICE=device)


def alike(program: str) -> str:
    """Return the output, and check that it is the same on openmps's own device, up to the order of sums."""
    rounded = """
def show(name, values):
    values = np.asarray(values, np.float64)
    print(name, values.shape, np.round(values / np.abs(values).max(), 4).sum().round(2), f"{np.abs(values).max():.4g}")
"""
    outputs = [run(rounded + program, device) for device in ("apple", "openmps")]
    assert outputs[0] == outputs[1]
    assert "nan" not in outputs[0]
    return outputs[0]


def test_a_name_that_is_no_device() -> None:
    assert run("""
try:
    mpscnn.Device()
except ValueError as error:
    print(error)
""", device="zz") == "MPSCNN_DEVICE (zz) is not openmps or apple.\n"  # fmt: skip


def test_nothing_beyond_apples_interface() -> None:
    assert run("""
device = mpscnn.Device()
print(device.shares_images)
for ask in (lambda: mpscnn.Image.from_array(x, copy=False), lambda: device.cached_bytes):
    try:
        ask()
    except (BufferError, NotImplementedError) as error:
        print(error)
""").splitlines()[:2] == [
        "False",
        "Image: the array cannot be shared: this device's images have memory of their own.",
    ]


def test_what_the_cpu_reads_is_synchronized() -> None:
    """Results, losses, gradients, statistics, weights. Before it, images are NaN, and states 0."""
    alike("""
conv = mpscnn.Convolution(weight, np.ones(8, np.float32), padding=1)
show("call", conv(x))
with mpscnn.CommandBuffer() as commands:
    middle = mpscnn.NeuronReLU().encode(commands, mpscnn.Image.from_array(x), temporary=True)
    y = conv.encode(commands, middle)
    weights = conv.export_weights(commands)
show("encode", y.numpy())
show("weights", weights.weights)
show("biases", weights.biases)
loss = mpscnn.Loss("mean_squared_error")
show("loss", loss(x, x + 1)[0])
show("gradient of the loss", loss(x, x + 1)[1])
state = mpscnn.BatchNormalizationStatistics()(x)
show("mean", state.mean)
show("variance", state.variance)
""")


def test_states_of_several_images() -> None:
    """Kernels with one state per image and with one for all; temporary images; some of the images."""
    alike("""
x = np.concatenate([x, x[::-1] * 2])
gamma, beta = np.linspace(1, 2, 6, dtype=np.float32), np.ones(6, np.float32)

def both(kernel, *sources, temporary=False, values=(), offset=None):
    with mpscnn.CommandBuffer() as commands:
        read = [mpscnn.Image.from_array(source) for source in sources]
        if temporary:
            read = [mpscnn.NeuronLinear(2).encode(commands, image, temporary=True) for image in read]
            for image in read:
                image.read_count = 2
        y, state = kernel.encode(commands, *read, with_state=True)
        incoming = mpscnn.NeuronLinear(0.5).encode(commands, y, temporary=temporary)
        if temporary:
            incoming.read_count = len(sources)
        gradients = kernel.gradients if len(sources) > 1 else [kernel.gradient]
        # A product's gradient sees the other source.
        found = [gradient.encode(commands, incoming, seen, state) for gradient, seen in zip(gradients, read[::-1])]
    show(type(kernel).__name__, y.numpy())
    for gradient in found:
        show("  gradient", gradient.numpy())
    for name in values:
        show("  " + name, getattr(state, name))

conv = mpscnn.Convolution(weight, np.ones(8, np.float32), padding=1)
for temporary in (False, True):
    both(conv, x, temporary=temporary, values=("grad_weight", "grad_bias"))
    both(mpscnn.ConvolutionTranspose(weight.transpose(1, 0, 2, 3)[:, :6], padding=1), x, temporary=temporary)
    both(mpscnn.GroupNormalization(gamma, beta, groups=2), x, temporary=temporary, values=("grad_gamma", "grad_beta"))
    both(mpscnn.Multiply(), x, np.flip(x, 1).copy(), temporary=temporary)
    both(mpscnn.PoolingMax(2), x, temporary=temporary)
    both(mpscnn.Dropout(0.5, seed=3), x, temporary=temporary)
# Images 2 and 3 of the source become 1 and 2 of the result.
relu = mpscnn.NeuronReLU(offset=(0, 0, 2), clip_rect=((0, 0, 1), (5, 4, 2)))
with mpscnn.CommandBuffer() as commands:
    y = mpscnn.Image.from_array(np.ones((4, 5, 4, 6), np.float32))
    relu.encode(commands, mpscnn.Image.from_array(x), out=y, with_state=True)
expected = np.ones((4, 5, 4, 6))
expected[1:3] = np.maximum(x[2:], 0)
assert (y.numpy() == expected.astype(np.float32)).all()
""")


def test_states_that_batch_normalization_shares() -> None:
    alike("""
gamma, beta = np.linspace(1, 2, 6, dtype=np.float32), np.ones(6, np.float32)
kernel = mpscnn.BatchNormalization(gamma, beta)
for temporary in (False, True):
    state = mpscnn.BatchNormalizationState(6)
    with mpscnn.CommandBuffer() as commands:
        source = mpscnn.Image.from_array(x)
        if temporary:
            source = mpscnn.NeuronLinear(2).encode(commands, source, temporary=True)
            source.read_count = 4
        mpscnn.BatchNormalizationStatistics().encode(commands, source, state)
        y = kernel.encode(commands, source, state)
        mpscnn.BatchNormalizationStatisticsGradient().encode(commands, y, source, state)
        gradient = kernel.gradient.encode(commands, y, source, state)
    show("result", y.numpy())
    show("gradient", gradient.numpy())
    show("gamma", state.grad_gamma)
""")


def test_training() -> None:
    """Parameters after three steps with four images: convolutions, both normalizations, a sum, dropout."""
    alike("""
layers = [
    ("a", "Conv2d", {"in_channels": 6, "out_channels": 8, "kernel_size": 3, "padding": 1}),
    ("n", "BatchNorm2d", {"num_features": 8}),
    ("r", "ReLU"),
    ("b", "Conv2d", {"in_channels": 8, "out_channels": 8, "kernel_size": 1}),
    ("g", "GroupNorm", {"num_groups": 2, "num_channels": 8}),
    ("s", "Add", {"inputs": ["r", "g"]}),
    ("p", "AdaptiveAvgPool2d", {"output_size": 1}),
    ("f", "Flatten"),
]
trainer = mpscnn.Trainer(layers, input_shapes=(4, 6, 5, 4), seed=1)
data = np.ascontiguousarray(np.concatenate([x, x[::-1] * 2]).transpose(0, 3, 1, 2))
for _ in range(3):
    step = trainer.step(data, np.array([0, 1, 2, 3]))
    print(round(step.loss, 4))
for name, values in trainer.state_dict().items():
    show(name, values)
""")


NETWORK = """
graph = mpscnn.Graph()
value = graph.input("x", channels=6, layout="NHWC")
for options in ({"padding": 1}, {"padding": 1}, {}):
    value = graph.add("Convolution", value, weight=weight[:6], **options)
graph.output(value, "y", layout="NHWC")
net = mpscnn.Network(graph)
"""


def test_images_of_networks_are_kept() -> None:
    """Two images serve consecutive calls, and two more a call in flight."""
    assert run(
        NETWORK
        + """
made = []
replace("-[MPSImage initWithDevice:imageDescriptor:]", ID, [ID, ID],
        lambda original: lambda *a: (made.append(0), original(*a))[1])
first = net(x)
print(len(made))
for _ in range(3):
    assert (net(x) == first).all() and (net(x * 2) != first).any()
print(len(made))
list(net.stream([x] * 6, in_flight=2))
print(len(made))
net(x[:, :3])
print(len(made))
"""
    ).splitlines() == ["2", "2", "4", "6"]


def test_temporary_images_are_announced() -> None:
    assert run(NETWORK + """
lists = []
replace("+[MPSTemporaryImage prefetchStorageWithCommandBuffer:imageDescriptorList:]", None, [ID, ID],
        lambda original: lambda *a: (lists.append(send(a[3], "count", COUNT)), original(*a))[1])
net(x)
print(lists)
""") == "[2]\n"  # fmt: skip


def test_much_work_is_committed_in_parts() -> None:
    """Work is committed once it reaches the limit, without an effect on results, temporary images and handlers."""
    assert run(
        NETWORK
        + """
parts = []
replace("-[MPSCommandBuffer commitAndContinue]", None, [],
        lambda original: lambda *a: (parts.append(0), original(*a))[1])
whole = net(x)
print(len(parts))
mpscnn.Device()._set_most_work(2 * 5 * 4 * 6 * 6 * 9)  # of the first and the second kernel
print((net(x) == whole).all(), len(parts))
print(all((y == whole).all() for y in net.stream([x] * 3)), len(parts))
"""
    ).splitlines() == ["0", "True 2", "True 8"]


def test_64_command_buffers() -> None:
    """More open ones are refused; for committed ones, creation waits."""
    assert run("""
held = [mpscnn.CommandBuffer() for _ in range(64)]
try:
    mpscnn.CommandBuffer()
except RuntimeError as error:
    print(error)
for commands in held:
    commands.commit()
for _ in range(200):
    last = mpscnn.CommandBuffer()
    last.commit()
last.wait()
print(last.status)
""").splitlines() == [
        "CommandBuffer: 64 command buffers of the device are open, the maximum: commit() or drop one first.",
        "completed",
    ]


def test_handlers_have_run_when_wait_returns() -> None:
    """Also when the process ends."""
    assert run("""
import threading, time
seen = []
def handler():
    time.sleep(0.05)
    seen.append(threading.get_ident() != threading.main_thread().ident)
commands = mpscnn.CommandBuffer()
commands.add_completed_handler(handler)
commands.commit()
commands.wait()
print(seen)
last = mpscnn.CommandBuffer()
last.add_completed_handler(lambda: (time.sleep(0.2), print("late", flush=True)))
last.commit()
""") == "[True]\nlate\n"  # fmt: skip


def test_a_device_with_memory_of_its_own_is_refused() -> None:
    assert run("""
replace("-[MTLDeviceOnEngine hasUnifiedMemory]", BOOL, [], lambda original: lambda self, _: 0)
try:
    mpscnn.Device()
except NotImplementedError as error:
    print(error)
""").endswith(" has memory of its own, and arrays are the CPU's: Apple silicon is needed.\n")


def test_memory_that_the_cpu_does_not_see_is_no_array() -> None:
    """States made by MPS may have private buffers, whose contents are NULL [MTLBuffer.h]."""
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
    """A batch in two parts, three steps: the optimizer, the kernel that adds parts, and one sum for each parameter."""
    assert run("""
optimizers, buffers = [], []
replace("-[MPSNNOptimizerStochasticGradientDescent initWithDevice:momentumScale:useNesterovMomentum:"
        "optimizerDescriptor:]", ID, [ID, ctypes.c_float, BOOL, ID],
        lambda original: lambda *a: (optimizers.append(0), original(*a))[1])
replace("-[MPSNNOptimizerStochasticGradientDescent initWithDevice:learningRate:]", ID, [ID, ctypes.c_float],
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
