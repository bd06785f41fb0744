# SPDX-License-Identifier: Apache-2.0
"""Metal functions against the package's kernels and PyTorch (CPU, channels_last, the same threads), interleaved in one
run.

A function and a kernel are encoded on a command buffer, from images to an image, and waited for: about 20 us in total.
PyTorch writes to a given tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import mpscnn

from .rows import Shape
from .timing import interleaved

SIZE: Shape = (1, 540, 960, 32)
PICTURE: Shape = (1, 540, 960, 4)
HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
COPY = """
kernel void copy(texture2d_array<float, access::read> x [[texture(0)]],
                 texture2d_array<float, access::write> y [[texture(1)]], uint3 gid [[thread_position_in_grid]]) {
    y.write(x.read(gid.xy, gid.z), gid.xy, gid.z);
}
"""
ADD = """
kernel void add(texture2d_array<float, access::read> a [[texture(0)]],
                texture2d_array<float, access::read> b [[texture(1)]],
                texture2d_array<float, access::write> y [[texture(2)]], uint3 gid [[thread_position_in_grid]]) {
    y.write(a.read(gid.xy, gid.z) + b.read(gid.xy, gid.z), gid.xy, gid.z);
}
"""
# Those of docs/metal_functions.md.
SWISH = """
kernel void swish(texture2d_array<float, access::read> x [[texture(0)]],
                  texture2d_array<float, access::write> y [[texture(1)]],
                  constant float& beta [[buffer(0)]], uint3 gid [[thread_position_in_grid]]) {
    float4 v = x.read(gid.xy, gid.z);
    y.write(v / (1.0f + exp(-beta * v)), gid.xy, gid.z);
}
"""
DEPTH_TO_SPACE = """
kernel void depth_to_space(texture2d_array<float, access::read> x [[texture(0)]],
                           texture2d_array<float, access::write> y [[texture(1)]],
                           uint3 gid [[thread_position_in_grid]]) {
    uint slices = y.get_array_size(), part = gid.y % 2 * 2 + gid.x % 2;
    y.write(x.read(gid.xy / 2, part * slices + gid.z), gid.xy, gid.z);
}
"""
BILATERAL = """
struct Params { float2 sigma; int radius; };
kernel void bilateral(texture2d<float, access::read> x [[texture(0)]],
                      texture2d<float, access::write> y [[texture(1)]],
                      constant Params& p [[buffer(0)]], uint2 gid [[thread_position_in_grid]]) {
    float4 center = x.read(gid), sum = 0.0f;
    float total = 0.0f;
    for (int dy = -p.radius; dy <= p.radius; ++dy)
        for (int dx = -p.radius; dx <= p.radius; ++dx) {
            int2 at = clamp(int2(gid) + int2(dx, dy), int2(0), int2(x.get_width() - 1, x.get_height() - 1));
            float4 v = x.read(uint2(at));
            float2 d = float2(dx * dx + dy * dy, dot(v - center, v - center)) / (2.0f * p.sigma * p.sigma);
            sum += exp(-d.x - d.y) * v;
            total += exp(-d.x - d.y);
        }
    y.write(sum / total, gid);
}
"""
SIGMA, RADIUS = (2.0, 0.2), 3


@dataclass(frozen=True)
class Row:
    """A function, the closest kernel, and PyTorch's statement of the module torch, the result and the sources."""

    name: str
    source: str
    shapes: tuple[Shape, ...]
    theirs: Callable[..., Any]
    kernel: Callable[[], Any] | None = None
    values: tuple[Any, ...] = ()
    out: Shape | None = None  # None: the first source's


def _params() -> Any:
    params = np.zeros((), [("sigma", "f4", 2), ("radius", "i4"), ("pad", "i4")])
    params["sigma"], params["radius"] = SIGMA, RADIUS
    return params


def _depth_to_space(torch: Any, out: Any, x: Any) -> None:
    n, c, h, w = x.shape
    parts = x.permute(0, 2, 3, 1).view(n, h, w, 2, 2, c // 4).permute(0, 1, 3, 2, 4, 5)
    out.permute(0, 2, 3, 1).view(parts.shape).copy_(parts)


def _bilateral(torch: Any, out: Any, x: Any) -> None:
    h, w = x.shape[2:]
    padded = torch.nn.functional.pad(x, [RADIUS] * 4, mode="replicate")
    total, weights = torch.zeros_like(x), torch.zeros_like(x[:, :1])
    for dy in range(2 * RADIUS + 1):
        for dx in range(2 * RADIUS + 1):
            v = padded[:, :, dy : dy + h, dx : dx + w]
            space = ((dy - RADIUS) ** 2 + (dx - RADIUS) ** 2) / (2 * SIGMA[0] ** 2)
            weight = torch.exp(-space - ((v - x) ** 2).sum(1, keepdim=True) / (2 * SIGMA[1] ** 2))
            total += weight * v
            weights += weight
    torch.divide(total, weights, out=out)


def rows() -> list[Row]:
    whole = lambda: mpscnn.Slice(SIZE[1:3])  # noqa: E731
    return [
        Row("copy", COPY, (SIZE,), lambda torch, out, x: out.copy_(x), whole),
        Row("add", ADD, (SIZE, SIZE), lambda torch, out, a, b: torch.add(a, b, out=out), mpscnn.Add),
        Row(
            "swish",
            SWISH,
            (SIZE,),
            lambda torch, out, x: torch.ops.aten.silu.out(x, out=out),
            values=(1.0,),
        ),
        Row(
            "depth_to_space", DEPTH_TO_SPACE, (SIZE,), _depth_to_space, out=(1, 2 * SIZE[1], 2 * SIZE[2], SIZE[3] // 4)
        ),
        Row("bilateral", BILATERAL, (PICTURE,), _bilateral, values=(_params(),)),
    ]


def _contestants(row: Row) -> tuple[dict[str, Callable[[], object]], int]:
    """Return the contestants, and the number of bytes read and written."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, np.float32) * 0.2 + 0.5 for shape in row.shapes]
    images = [mpscnn.Image.from_array(array) for array in arrays]
    out = mpscnn.Image(row.out or row.shapes[0])
    function = mpscnn.metal_function(HEAD + row.source, row.name)

    def ours() -> None:
        with mpscnn.CommandBuffer() as commands:
            function.encode(commands, *images, *row.values, out=out)

    found: dict[str, Callable[[], object]] = {"function": ours}
    if row.kernel is not None:
        kernel, of_kernel = row.kernel(), mpscnn.Image(out.shape)

        def kernels() -> None:
            with mpscnn.CommandBuffer() as commands:
                kernel.encode(commands, *images, out=of_kernel)

        found["kernel"] = kernels
    try:
        import torch
    except ImportError:
        torch = None
    if torch is not None:
        tensors = [torch.from_numpy(array).permute(0, 3, 1, 2) for array in arrays]  # channels_last without a copy
        of_torch = np.empty(out.shape, np.float32)
        result = torch.from_numpy(of_torch).permute(0, 3, 1, 2)

        def theirs() -> None:
            with torch.inference_mode():
                row.theirs(torch, result, *tensors)

        found["torch"] = theirs
        ours(), theirs()
        difference = np.abs(out.numpy() - of_torch).max()
        assert difference <= 1e-5, f"{row.name} differs by {difference}"
    return found, sum(array.nbytes for array in arrays) + 4 * int(np.prod(out.shape))


def run(seconds: float = 1.0, case: str = "", best: bool = False) -> list[dict[str, Any]]:
    """Return rows with seconds per call and GB/s of the function; each row takes about `seconds`."""
    results = []
    for row in rows():
        if case not in row.name:
            continue
        contestants, moved = _contestants(row)
        times = interleaved(contestants, seconds, best=best)
        results.append(
            {
                "case": row.name,
                "shape": list(row.shapes[0]),
                "seconds": times,
                "gigabytes": moved / times["function"] / 1e9,
            }
        )
    return results
