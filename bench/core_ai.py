# SPDX-License-Identifier: Apache-2.0
"""Networks beside Apple's Core AI: ``python -m bench core_ai``.

Apple's package coreai-torch converts a PyTorch module, and the runtime of coreai-core runs the result on macOS and on
Linux, there on the CPU. A call takes seconds on Linux, so this section is not part of `networks`, and has to be asked
for. Needs ``pip install coreai-torch`` and Python 3.11 or newer.
"""

from __future__ import annotations

import asyncio
import io
import tempfile
import warnings
from contextlib import AsyncExitStack, ExitStack, closing, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mpscnn
from mpscnn import benchmarking
from mpscnn.benchmarking import Contestant
from mpscnn.errors import MissingPackageError

from . import networks

NETWORKS = ("resnet50", "mobilenet_v2")


def _contestant(module: Any, x: NDArray[np.float32], stack: ExitStack) -> Contestant:
    """Return a module as a contestant in Core AI's runtime; its model is closed with the stack."""
    try:
        from coreai.runtime import NDArray as CoreArray
        from coreai_torch import TorchConverter, get_decomp_table
    except ModuleNotFoundError:
        raise MissingPackageError("Core AI", "coreai-torch") from None
    import torch

    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")  # of torch.export; the converter prints its progress
        exported = torch.export.export(module, (torch.from_numpy(x),)).run_decompositions(get_decomp_table())
        converter = TorchConverter().add_exported_program(exported, input_names=["x"], output_names=["y"])
        program = converter.to_coreai()
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    loop = stack.enter_context(closing(asyncio.new_event_loop()))
    models = AsyncExitStack()
    stack.callback(lambda: loop.run_until_complete(models.aclose()))
    asset = program.save_asset(folder / "network.aimodel")
    function = loop.run_until_complete(models.enter_async_context(asset.executable())).load_function("main")

    def run() -> list[NDArray[Any]]:
        results = loop.run_until_complete(function({"x": CoreArray(x)}))
        return [results["y"].numpy()]

    return Contestant("coreai", benchmarking.metadata_version("coreai-core"), "float32", run)


def run(seconds: float = 1.0, case: str = "") -> list[dict[str, Any]]:
    """Return comparisons as dicts, of one image each: at least nine rounds. `case` is a part of a name."""
    found = []
    for name in NETWORKS:
        if case not in f"{name}, batch 1":
            continue
        module, shape = networks._module(name).eval(), networks.SHAPE
        network = mpscnn.load(module, input_shapes=(1, *shape))
        x = np.random.default_rng(0).standard_normal((1, *shape), dtype=np.float32)
        own = benchmarking.ours(network, {next(iter(network.inputs)): x})
        with ExitStack() as stack:
            # Core AI first: PyTorch's contestant changes the layout of the module's parameters.
            peers, absent = benchmarking.peers({
                "coreai": lambda module=module, x=x, stack=stack: _contestant(module, x, stack),
                "torch": lambda module=module, x=x: benchmarking.torch_contestant(module, {"x": x}),
            })  # fmt: skip
            found.append(benchmarking.compare(name, 1, [own, *peers], seconds, absent=absent).to_dict())
    return found
