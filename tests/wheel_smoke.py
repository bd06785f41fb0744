# SPDX-License-Identifier: Apache-2.0
"""Tests an installed wheel: import, origin of the loaded libraries, and one convolution against NumPy.

Not a pytest file: `make wheel` and the wheel workflow run it with the wheel's own Python, which has only NumPy.
"""

import sys
import time
from pathlib import Path

import numpy as np

started = time.perf_counter()
import mpscnn  # noqa: E402

import_time = time.perf_counter() - started


def check_convolution() -> None:
    """3x3, padding 1, odd sizes, more channels than four; the reference is a sum over the window's offsets."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 7, 5, 6), dtype=np.float32)
    weight = rng.standard_normal((9, 6, 3, 3), dtype=np.float32)
    bias = rng.standard_normal(9, dtype=np.float32)
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    expected = np.tile(bias.astype(np.float64), (2, 7, 5, 1))
    for i in range(3):
        for j in range(3):
            expected += padded[:, i : i + 7, j : j + 5] @ weight[:, :, i, j].T.astype(np.float64)
    y = mpscnn.Convolution(weight, bias, layout="OIHW", padding=1)(x)
    error = float(np.abs(y - expected).max())
    if error > 2e-5:
        sys.exit(f"The convolution differs from NumPy's by {error:.3g}, more than 2e-5.")
    print(f"convolution: greatest difference from NumPy {error:.2g}")


def check_libraries() -> None:
    """On Linux: libraries from outside the environment must exist on machines without GNUstep; no engine for tests."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return
    site = Path(mpscnn.__file__).resolve().parent.parent
    system = ("libc.", "libm.", "libdl.", "libpthread.", "librt.", "libutil.", "ld-linux", "libstdc++.", "libgcc_s.")
    # Python's own, and the C library's character sets.
    system += (
        "UTF-",
        "libcrypto.",
        "libssl.",
        "libz.",
        "libexpat.",
        "libpython",
        "libcrypt.",
        "libnss",
        "libresolv.",
        "liblzma.",
        "libbz2.",
        "libffi.",
    )
    loaded = {Path(line.split(maxsplit=5)[5]) for line in maps.read_text().splitlines() if ".so" in line}
    prefixes = (site, Path(sys.base_prefix).resolve() / "lib" / f"python3.{sys.version_info.minor}")
    strangers = sorted(
        str(path)
        for path in loaded
        if not any(path.is_relative_to(prefix) for prefix in prefixes) and not path.name.startswith(system)
    )
    if strangers:
        sys.exit(f"Loaded from outside the wheel: {', '.join(strangers)}")
    print(f"libraries: {len(loaded)} loaded, all from the wheel or the base system")
    try:
        mpscnn.Device("cuda-host")
    except ValueError:
        return
    sys.exit("The wheel has the kernels of the engine cuda-host (MPSCNN_CUDA_HOST), which are for tests.")


check_libraries()
print(f"import: {import_time * 1e3:.0f} ms after NumPy")
device = mpscnn.Device()
if device.is_supported:
    check_convolution()
else:  # as on virtual machines of hosted runners
    print(f"{device.name} has no Metal Performance Shaders: nothing was computed.")
