#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mutation testing: make small errors in kernels, and in the code that runs networks; check that the tests fail.

    tools/mutations.py                   all mutations, one build and one run of tests for each
    tools/mutations.py --kernel Add      those of one kernel
    tools/mutations.py --kernel Network  those of networks
    tools/mutations.py --check           only check that every kernel has a mutation and every file of COMPONENTS has
                                         two, and that each mutation can be applied

Input: tests/mutations/*.json, lists of
    {"kernel": row of the table or name in COMPONENTS, "file": source, "find": text that occurs there once,
     "replace": text, "why": sentence, "tests": file of tests (default tests/test_forward.py),
     "select": pytest's -k (default: cases of the kernel; needed for COMPONENTS)}

A gradient kernel made from a forward kernel has the forward kernel's cases, and tests/test_gradient.py by default.

Works on a copy of the tracked files in build/mutations. Exit status 1 if a mutation is not detected; 2 if one cannot be
applied or built, or if the unmodified code fails.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLES = ROOT / "tests" / "mutations"
COPY = ROOT / "build" / "mutations"
# Code with mutations in addition to the kernels, at least two in each file.
COMPONENTS = {
    "CpuTraining": (
        "csrc/openmps/engine/cpu/convolution/onednn/filter_layout.cpp",
        "csrc/openmps/engine/cpu/convolution/products.cpp",
        "csrc/openmps/engine/cpu/normalization/sums.cpp",
    ),
    "CpuVectors": (
        "csrc/openmps/engine/plan/narrowing.cpp",
        "csrc/openmps/engine/cpu/convolution/bands.cpp",
        "csrc/openmps/engine/cpu/convolution/depthwise_rows.inc",
        "csrc/openmps/engine/cpu/convolution/few_outputs.inc",
        "csrc/openmps/engine/cpu/convolution/gated.inc",
        "csrc/openmps/engine/cpu/convolution/pointwise_kernels.inc",
        "csrc/openmps/engine/cpu/convolution/separable.cpp",
        "csrc/openmps/engine/cpu/convolution/separable.inc",
        "csrc/openmps/engine/cpu/convolution/tiles.cpp",
        "csrc/openmps/engine/cpu/convolution/tiles.hpp",
        "csrc/openmps/engine/cpu/convolution/tiles_source.cpp",
        "csrc/openmps/engine/cpu/convolution/transpose_subpixel.cpp",
        "csrc/openmps/engine/cpu/convolution/winograd_convolution.inc",
        "csrc/openmps/engine/cpu/convolution/winograd_weights.inc",
        "csrc/openmps/engine/cpu/pointwise/vectors.hpp",
        "csrc/openmps/engine/cpu/pooling/pool_columns.cpp",
        "csrc/openmps/engine/cpu/pooling/pool_columns.inc",
        "csrc/openmps/engine/cpu/reduction/pixel_sums.inc",
        "csrc/openmps/engine/shared/pixels.cpp",
    ),
    "Quantization": (
        "csrc/openmps/engine/plan/quantization.cpp",
        "csrc/openmps/engine/cpu/quantized/quantized.cpp",
        "csrc/openmps/engine/cpu/convolution/onednn/quantized_conv.cpp",
        "csrc/openmps/engine/cpu/quantized/depthwise.cpp",
        "csrc/openmps/engine/cpu/quantized/byte_sums.hpp",
        "csrc/openmps/engine/cpu/quantized/byte_vectors.inc",
        "csrc/openmps/engine/cpu/quantized/elementwise.cpp",
        "csrc/openmps/engine/cpu/quantized/products.cpp",
        "csrc/openmps/engine/plan/number_maps.cpp",
        "python/mpscnn/_numbers.py",
        "python/mpscnn/quantization.py",
    ),
    "CudaKernels": (
        "csrc/openmps/engine/cuda/normalization.cpp",
        *(
            f"csrc/openmps/engine/cuda/kernels/{name}.hpp"
            for name in (
                "conv_few_inputs",
                "conv_few_outputs",
                "conv_product",
                "conv_weights_3x3",
                "conv_weights_stem",
                "normalization",
                "tensor_cores",
            )
        ),
    ),
    "Tuning": (
        "csrc/openmps/engine/cpu/choices.cpp",
        "csrc/openmps/engine/cpu/convolution/convolution.cpp",
        "python/mpscnn/tuning.py",
    ),
    "WeightsUpdate": ("csrc/core/loss/update_call.cpp", "csrc/core/loss/weights_update.mm"),
    "YOLOLoss": ("csrc/core/loss/yolo_loss.mm", "csrc/openmps/engine/cpu/loss/loss.cpp"),
    "Training": ("csrc/core/network/training_plan.cpp",),
    "Graph": (
        "csrc/core/graph/graph_normalization.mm",
        "csrc/core/graph/graph_object.mm",
        "csrc/core/graph/graph_padding.mm",
        "csrc/core/graph/graph_states.mm",
        "csrc/core/graph/graph_weights.mm",
        "csrc/core/graph/mps_graph.mm",
        "csrc/openmps/mps/MPSNNGraph.mm",
        "csrc/openmps/mps/MPSNNGraph+Encode.mm",
        "python/mpscnn/graph_export.py",
        "python/mpscnn/mps_graph.py",
    ),
    "Importers": (
        "python/mpscnn/detection.py",
        "python/mpscnn/importing/aten/shape.py",
        "python/mpscnn/importing/onnx/patterns.py",
        "python/mpscnn/importing/onnx/walk.py",
        "python/mpscnn/importing/ops/deformable.py",
        "python/mpscnn/importing/ops/positions.py",
        "python/mpscnn/importing/ops/reduction.py",
        "python/mpscnn/importing/torch_caches.py",
        "python/mpscnn/importing/torch_export.py",
        "python/mpscnn/importing/torch_functional.py",
        "python/mpscnn/importing/torch_guards.py",
        "python/mpscnn/importing/torch_independent.py",
        "python/mpscnn/importing/torch_numbers.py",
        "python/mpscnn/importing/torch_module.py",
        "python/mpscnn/importing/torch_patterns.py",
        "python/mpscnn/importing/torch_positions.py",
        "python/mpscnn/importing/torch_questions.py",
        "python/mpscnn/importing/torch_replay.py",
        "python/mpscnn/importing/torch_results.py",
        "python/mpscnn/importing/torch_tracing.py",
    ),
    "MetalFunction": (
        "csrc/openmps/engine/cpu/function/fibers.cpp",
        "csrc/openmps/engine/cpu/function/function.cpp",
        "csrc/openmps/engine/function/library/simd.hpp",
        "csrc/openmps/engine/function/library/textures.hpp",
        "csrc/openmps/metal/MTLSampler.mm",
    ),
    "Network": (
        "csrc/bindings/bind_network.cpp",
        "csrc/core/call/boundary.cpp",
        "csrc/core/network/network_call.cpp",
        "csrc/core/data_source/data_source.mm",
        "csrc/core/network/in_node.hpp",
        "csrc/core/network/network.cpp",
        "csrc/core/network/network_plan.cpp",
        "csrc/core/network/plan_sized_nodes.cpp",
        "csrc/core/network/profile.cpp",
        "csrc/openmps/engine/plan/fusion.cpp",
        "python/mpscnn/file_format.py",
        "python/mpscnn/graph.py",
        "python/mpscnn/loading.py",
        "python/mpscnn/memory.py",
        "python/mpscnn/network.py",
        "python/mpscnn/passes.py",
        "python/mpscnn/profiling.py",
        "python/mpscnn/stream.py",
    ),
}
MIN_IN_FILE = 2
# A mutated program may hang, which counts as detected.
MAX_SECONDS = 900


@dataclass(frozen=True)
class Mutation:
    kernel: str
    file: str
    find: str
    replace: str
    why: str
    tests: str = ""
    select: str = ""

    def __str__(self) -> str:
        return f"{self.kernel}: {self.why} ({self.file})"

    def applied(self, source: str) -> str:
        count = source.count(self.find)
        if count != 1:
            raise ValueError(f"{self}: the text to find occurs {count} times, not once: {self.find!r}")
        return source.replace(self.find, self.replace)


def all_mutations() -> list[Mutation]:
    return [Mutation(**entry) for path in sorted(TABLES.glob("*.json")) for entry in json.loads(path.read_text())]


def kernels() -> set[str]:
    """Return the names of the table's rows, from its source, so that a check needs no build."""
    return set(re.findall(r'\{\.name = "(\w+)"', (ROOT / "csrc/table/kernels.cpp").read_text()))


@cache
def forward_kernels() -> dict[str, str]:
    """Return the forward kernel of each gradient kernel that is made from one."""
    rows = (ROOT / "csrc/table/kernels.cpp").read_text().split("{.name = ")[1:]
    found = {re.match(r'"(\w+)"', row): re.search(r'\.forward = "(\w+)"', row) for row in rows}
    return {name[1]: forward[1] for name, forward in found.items() if name and forward}


def check(mutations: list[Mutation]) -> list[str]:
    """Return the errors in the lists of mutations."""
    names, wrong = kernels(), []
    wrong += [f"{name} has no mutation" for name in sorted(names - {mutation.kernel for mutation in mutations})]
    for component, files in COMPONENTS.items():
        for file in files:
            count = sum(mutation.kernel == component and mutation.file == file for mutation in mutations)
            if count < MIN_IN_FILE:
                wrong.append(f"{component}: {file} has {count} mutations, less than {MIN_IN_FILE}")
    for mutation in mutations:
        if mutation.kernel in COMPONENTS:
            if not mutation.select:
                wrong.append(f"{mutation}: there is no select")
        elif mutation.kernel not in names:
            wrong.append(f"{mutation}: there is no such kernel")
        try:
            if mutation.applied((ROOT / mutation.file).read_text()) == (ROOT / mutation.file).read_text():
                wrong.append(f"{mutation}: changes nothing")
        except (OSError, ValueError) as error:
            wrong.append(str(error))
    return wrong


class Workshop:
    """A copy of the tree in which mutations are built and tested."""

    def __init__(self, python: str) -> None:
        # The same relative path as other builds, so that ccache reuses their results.
        self.python, self.source, self.build = python, COPY / "source", COPY / "source" / "build" / "mutations"
        names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        tracked = set(filter(None, names.split("\0")))
        for name in tracked:
            origin, target = ROOT / name, self.source / name
            if not origin.is_file():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists() or target.read_bytes() != origin.read_bytes():
                shutil.copyfile(origin, target)
        for file in self.source.glob("csrc/**/*"):  # CMake compiles all files that it finds
            if file.is_file() and str(file.relative_to(self.source)) not in tracked:
                file.unlink()
        launcher = [f"-DCMAKE_{kind}_COMPILER_LAUNCHER=ccache" for kind in ("CXX", "OBJCXX") if shutil.which("ccache")]
        options = ["-DCMAKE_BUILD_TYPE=Release", f"-DPython_EXECUTABLE={python}", "-DMPSCNN_BUILD_TESTS=ON"]
        options += launcher
        self._run(["cmake", "-S", str(self.source), "-B", str(self.build), "-G", "Ninja", *options], check=True)

    def _run(
        self, command: list[str], check: bool = False, seconds: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        path = f"{pathlib.Path(self.python).parent}{os.pathsep}{os.environ['PATH']}"
        environment = os.environ | {
            "PYTHONPATH": str(self.build / "package"),
            "PATH": path,
            "MPSCNN_CPP_TESTS": str(self.build / "tests"),
            "CCACHE_BASEDIR": str(self.source),
            "CCACHE_NOHASHDIR": "1",
        }
        done = subprocess.run(
            command, cwd=self.source, env=environment, capture_output=True, text=True, timeout=seconds
        )
        if check and done.returncode != 0:
            sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
        return done

    def builds(self) -> bool:
        return self._run(["cmake", "--build", str(self.build)]).returncode == 0

    def passes(self, tests: str, select: str) -> bool:
        command = [self.python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", tests, "-k", select]
        try:
            done = self._run(command, seconds=MAX_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        if done.returncode > 1:  # negative: the process was ended by a signal
            sys.exit(f"pytest {tests} -k {select!r} ran no test:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
        return done.returncode == 0

    def sees(self, group: list[Mutation]) -> Iterator[tuple[Mutation, bool | None]]:
        """Apply all mutations and yield for each whether a test of its kernel fails; None if the build fails."""
        before = {mutation.file: (self.source / mutation.file).read_text() for mutation in group}
        for mutation in group:
            (self.source / mutation.file).write_text(mutation.applied(before[mutation.file]))
        try:
            builds = self.builds()
            for mutation in group:
                yield mutation, not self.passes(*selection(mutation)) if builds else None
        finally:
            for file, text in before.items():
                (self.source / file).write_text(text)


def groups(mutations: list[Mutation], together: bool) -> list[list[Mutation]]:
    """Group mutations: one by one, or together if they have different kernels and files.

    Mutations of COMPONENTS are always alone, because their tests would detect each other's. A gradient kernel counts as
    its forward kernel, because its tests run both.
    """
    found: list[list[Mutation]] = []
    tried = {mutation: forward_kernels().get(mutation.kernel, mutation.kernel) for mutation in mutations}
    for mutation in mutations:
        for group in found if together and mutation.kernel not in COMPONENTS else []:
            if all(
                tried[mutation] != tried[other] and mutation.file != other.file and other.kernel not in COMPONENTS
                for other in group
            ):
                group.append(mutation)
                break
        else:
            found.append([mutation])
    return found


def selection(mutation: Mutation) -> tuple[str, str]:
    """Return the file of tests and pytest's -k."""
    forward = forward_kernels().get(mutation.kernel)
    tests = mutation.tests or ("tests/test_gradient.py" if forward else "tests/test_forward.py")
    return tests, mutation.select or f"[{forward or mutation.kernel}/"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", action="append", help="only mutations of this row or component; may be repeated")
    parser.add_argument("--check", action="store_true", help="build and run nothing")
    parser.add_argument(
        "--together",
        action="store_true",
        help="several mutations per build, of different kernels and files: a third of the time",
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--python", default=sys.executable, help="Python with the tests' packages; default: this one")
    arguments = parser.parse_args()

    mutations = all_mutations()
    wrong = check(mutations)
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 2
    if arguments.check:
        print(f"{len(mutations)} mutations of {len(kernels())} kernels and networks can be applied")
        return 0
    if arguments.kernel:
        unknown = set(arguments.kernel) - kernels() - set(COMPONENTS)
        if unknown:
            parser.error(f"--kernel {', '.join(sorted(unknown))}: no such row or component")
        mutations = [mutation for mutation in mutations if mutation.kernel in arguments.kernel]

    from tqdm import tqdm

    begin = time.monotonic()
    workshop = Workshop(arguments.python)
    if not workshop.builds():
        sys.exit("the unbroken code does not build")
    for tests in sorted({selection(mutation)[0] for mutation in mutations}):
        chosen = {select for m in mutations for file, select in [selection(m)] if file == tests}
        if not workshop.passes(tests, " or ".join(sorted(chosen))):
            print(f"the unbroken code fails {tests}", file=sys.stderr)
            return 2
    seen: dict[Mutation, bool | None] = {}
    with tqdm(total=len(mutations), unit="mutation", disable=None) as progress:
        for group in groups(mutations, arguments.together):
            progress.set_postfix_str(", ".join(mutation.kernel for mutation in group))
            for mutation, found in workshop.sees(group):
                seen[mutation] = found
                progress.update()
                if not found:
                    progress.write(f"{'not seen' if found is False else 'does not build'}: {mutation}")
    counts = {what: list(seen.values()).count(key) for what, key in (("seen", True), ("not seen", False))}
    counts["not built"] = list(seen.values()).count(None)
    if arguments.json:
        rows = [{"kernel": m.kernel, "file": m.file, "why": m.why, "seen": found} for m, found in seen.items()]
        print(json.dumps({**counts, "mutations": rows}, indent=1))
    else:
        names = {mutation.kernel for mutation in seen}
        what = ", ".join(names) if len(names) == 1 else f"{len(names)} names"
        print(
            f"{counts['seen']} of {len(seen)} mutations of {what} are seen by the tests "
            f"({counts['not seen']} are not, {counts['not built']} do not build), {time.monotonic() - begin:.0f} s"
        )
    return 2 if counts["not built"] else 1 if counts["not seen"] else 0


if __name__ == "__main__":
    sys.exit(main())
