# SPDX-License-Identifier: Apache-2.0
"""Make a folder of Triton's model repository from a network: NAME/config.pbtxt, NAME/1/model.py, NAME/1/model.mpscnn.

python examples/triton_server/make_repository.py features.mpscnn models [--name NAME] [--max-batch 8] [--threads 2]
tritonserver --model-repository models
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import mpscnn

MODEL = Path(__file__).resolve().parent / "model.py"
DATATYPES = ("FP32", "FP16", "UINT8", "UINT16")  # that networks take


def configuration(
    network: mpscnn.Network,
    name: str,
    *,
    datatype: str = "FP32",
    max_batch: int = 8,
    max_delay: float = 2.0,
    threads: int | None = None,
    gpus: Sequence[int] = (),
) -> str:
    """Return config.pbtxt. Shapes are without the batch; free extents are -1."""

    def tensors(key: str, of: Iterable[tuple[str, str, Iterable[int | None]]]) -> list[str]:
        lines = []
        for tensor, type_of_it, extents in of:
            dims = ", ".join(str(extent or -1) for extent in extents)
            lines += [f"{key} {{", f"  name: {json.dumps(tensor)}", f"  data_type: TYPE_{type_of_it}"]
            lines += [f"  dims: [ {dims} ]", "}"]
        return lines

    inputs = []
    for tensor, spec in network.inputs.items():
        extents = {"H": spec.height, "W": spec.width, "C": spec.channels}
        inputs.append((tensor, datatype, [extents[letter] for letter in spec.layout[1:]]))
    result = "FP16" if str(network.dtype) == "float16" else "FP32"
    outputs = [
        (tensor, result, [None] * (len(output.layout) - 1) if output.shape is None else output.shape)
        for tensor, output in network.outputs.items()
    ]
    group = f"kind: KIND_GPU gpus: [ {', '.join(map(str, gpus))} ]" if gpus else "kind: KIND_CPU"
    lines = [
        f"name: {json.dumps(name)}",
        'backend: "python"',
        f"max_batch_size: {max_batch}",
        f"dynamic_batching {{ max_queue_delay_microseconds: {round(1000 * max_delay)} }}",
        f"instance_group [ {{ count: 1 {group} }} ]",
        *tensors("input", inputs),
        *tensors("output", outputs),
    ]
    if threads is not None:
        lines.append(f'parameters {{ key: "threads" value {{ string_value: "{threads}" }} }}')
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path, help="a model that mpscnn.load takes")
    parser.add_argument("repository", type=Path, help="folder of the model repository; it is made if needed")
    parser.add_argument("--name", help="name of the model (default: the file's)")
    parser.add_argument("--datatype", choices=DATATYPES, default="FP32", help="of the inputs (default: %(default)s)")
    parser.add_argument("--max-batch", type=int, default=8, help="rows of a batch (default: %(default)s)")
    parser.add_argument("--max-delay", type=float, default=2.0, help="milliseconds (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="threads of an instance (default: all processors)")
    parser.add_argument("--gpus", type=int, nargs="*", default=(), help="numbers of GPUs; default: the CPU")
    options = parser.parse_args(arguments)

    network = mpscnn.load(options.model)
    name = options.name or options.model.name.partition(".")[0]
    folder = options.repository / name
    (folder / "1").mkdir(parents=True, exist_ok=True)
    text = configuration(
        network, name, datatype=options.datatype, max_batch=options.max_batch, max_delay=options.max_delay,
        threads=options.threads, gpus=options.gpus,
    )  # fmt: skip
    (folder / "config.pbtxt").write_text(text)
    shutil.copyfile(MODEL, folder / "1" / "model.py")
    network.save(folder / "1" / "model.mpscnn")
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
