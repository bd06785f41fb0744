#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Import networks of other libraries with random weights, and compare their results with PyTorch in float64.

    pip install --no-deps --target build/survey pytorchcv timm torchvision transformers segmentation-models-pytorch \\
        spandrel diffusers ultralytics huggingface_hub tokenizers regex einops opencv-python-headless ...
    PYTHONPATH=build/survey tools/survey.py --sample 60 --json build/survey.json --markdown build/survey.md
    PYTHONPATH=build/survey tools/survey.py --sample 250 --json build/survey.json --resume --parameters 100
    PYTHONPATH=build/survey tools/survey.py --only 'timm:convnext.*'
    PYTHONPATH=build/survey tools/survey.py --sample 40 --onnx dynamo --size 96 --keep build/exports
    PYTHONPATH=build/survey tools/survey.py --only 'torchvision:(resnet18|swin_t)' --onnx torchscript --opset 17
    PYTHONPATH=build/survey tools/survey.py --only 'torchvision:swin_t' --speed 10

Libraries that are not installed are left out. No weights are downloaded: they are random, and so are the statistics of
batch normalization. Each network runs in a process of its own, with limits of time and memory, which is forked from one
that has imported the libraries. An image of more than LARGE pixels is made smaller if the network takes that. Outcomes:

    right        each output differs by less than TOLERANCE of the max of float64's
    wrong        it does not, or has another shape
    refused      the import raised an error of mpscnn; the reason is its text
    hanging      the time limit was reached in the import or behind it
    failed       another exception, or the memory limit: a defect of mpscnn
    unavailable  the library or PyTorch cannot make or run it within the limits, or rounding alone makes the result
                 differ: PyTorch's float32 is not right, or float64 is not if each weight changes by a rounding of
                 float32. Not counted
    skipped      the network has more than --parameters millions of them. Not counted
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import math
import multiprocessing
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("YOLO_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

TOLERANCE = 1e-4
LONG = 20  # seconds of processor time of an import
LARGE = 320 * 320  # pixels of an image that float64 takes long for
WAITING = 5  # default limit of real time, in units of that of processor time
MARK = "survey result: "
IMPORTING = "survey: PyTorch's results are known"  # printed before the import
COUNTED = ("right", "refused", "wrong", "hanging", "failed")

Made = tuple[Any, tuple[int, ...]]  # a module, and the shape of its input


# ---- libraries: names of networks, and a function that makes one


def _pytorchcv() -> list[str]:
    from pytorchcv import model_provider

    skipped = (
        "3d",
        "tresnet",
        "jasper",
        "quartznet",
        "alphapose",
        "lwopenpose",
        "ibppose",
        "raft",
        "slk",
        "propainter",
    )
    three_axes = re.compile("|".join(skipped))
    return [name for name in model_provider._models if not three_axes.search(name)]


def _make_pytorchcv(name: str) -> Made:
    from pytorchcv.model_provider import get_model

    module = get_model(name, pretrained=False)
    size = getattr(module, "in_size", (224, 224))
    return module, (1, getattr(module, "in_channels", 3), *size)


def _timm() -> list[str]:
    import timm

    by_module: dict[str, str] = {}
    for name in timm.list_models():  # one of each file: the smallest have the shortest names
        by_module.setdefault(f"{timm.models.model_entrypoint(name).__module__}:{name[:5]}", name)
    return sorted(by_module.values())


def _make_timm(name: str) -> Made:
    import timm

    module = timm.create_model(name, pretrained=False)
    return module, (1, *module.default_cfg["input_size"])


def _torchvision() -> list[str]:
    import torchvision

    models = torchvision.models
    detection = set(models.list_models(module=models.detection))
    skipped = ("raft", "mc3", "r3d", "r2plus1d", "s3d", "mvit", "swin3d", "quantized")
    return [name for name in models.list_models() if name not in detection and not name.startswith(skipped)]


def _make_torchvision(name: str) -> Made:
    import torchvision

    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    segmentation = any(word in name for word in ("fcn", "deeplab", "lraspp"))
    if segmentation:
        options["weights_backbone"] = None
    module = torchvision.models.get_model(name, weights=None, **options)
    return module, (1, 3, 299, 299) if name == "inception_v3" else (1, 3, 224, 224)


_TRANSFORMERS = (
    "ResNet", "RegNet", "ConvNext", "ConvNextV2", "MobileNetV1", "MobileNetV2", "Bit", "EfficientNet", "PoolFormer",
    "FocalNet", "Cvt", "Levit", "MobileViT", "MobileViTV2", "SwiftFormer", "EfficientFormer", "Segformer", "Swin",
    "Swinv2", "Van", "PvtV2", "Pvt", "DeiT", "Dinat", "HGNetV2", "TextNet",
)  # fmt: skip


def _transformers() -> list[str]:
    import transformers

    heads = ("ForImageClassification", "ForSemanticSegmentation", "Model")
    found = []
    for kind in _TRANSFORMERS:
        found += [kind + head for head in heads if hasattr(transformers, kind + head)]
    return found


def _make_transformers(name: str) -> Made:
    import transformers

    kind = next(kind for kind in sorted(_TRANSFORMERS, key=len, reverse=True) if name.startswith(kind))
    config = getattr(transformers, f"{kind}Config")()
    size = 512 if kind == "Segformer" else getattr(config, "image_size", 224)
    size = size if isinstance(size, int) else size[0]
    return getattr(transformers, name)(config), (1, getattr(config, "num_channels", 3), size, size)


def _smp() -> list[str]:
    import segmentation_models_pytorch as smp

    encoders = ("resnet18", "mobilenet_v2", "efficientnet-b0", "timm-regnetx_002", "densenet121", "vgg11_bn")
    networks = sorted(smp.MODEL_ARCHITECTURES_MAPPING)
    return [f"{network}/{encoder}" for network in networks for encoder in encoders] + [
        f"{network}/mit_b0" for network in networks
    ]


def _make_smp(name: str) -> Made:
    import segmentation_models_pytorch as smp

    network, encoder = name.split("/")
    return smp.create_model(network, encoder, encoder_weights=None, classes=4), (1, 3, 128, 128)


# File, class and options.
_SPANDREL = {
    "ESRGAN": "RRDB:RRDBNet:num_blocks=3,num_filters=32",
    "Compact": "SRVGG:SRVGGNetCompact",
    "RCAN": "rcan_arch:RCAN:n_resgroups=2,n_resblocks=2",
    "NAFNet": "NAFNet_arch:NAFNet",
    "SwinIR": "SwinIR:SwinIR:img_size=48,window_size=8",
    "Swin2SR": "Swin2SR:Swin2SR:window_size=8",
    "SPAN": "span:SPAN:num_in_ch=3,num_out_ch=3",
    "SAFMN": "safmn:SAFMN:dim=36",
    "OmniSR": "OmniSR:OmniSR",
    "DnCNN": "network_dncnn:DnCNN",
    "DRUNet": "network_unet:DRUNet:in_nc=4,out_nc=3",
    "SCUNet": "SCUNet:SCUNet",
    "DITN": "DITN_Real:DITN_Real",
    "RealCUGAN": "upcunet_v3:UpCunet2x",
    "PLKSR": "PLKSR:PLKSR",
    "SwiftSRGAN": "SwiftSRGAN:Generator",
    "MixDehazeNet": "MixDehazeNet:MixDehazeNet",
    "FBCNN": "FBCNN:FBCNN",
    "DAT": "DAT:DAT",
    "HAT": "HAT:HAT:window_size=8",
    "MoSR": "mosr_arch:MoSR",
    "SeemoRe": "seemore_arch:SeemoRe",
    "KBNet": "kbnet_s:KBNet_s",
    "RetinexFormer": "retinexformer_arch:RetinexFormer",
    "IPT": "ipt:IPT",
}


def _spandrel() -> list[str]:
    import spandrel  # noqa: F401

    return list(_SPANDREL)


def _make_spandrel(name: str) -> Made:
    import importlib

    file, kind, *rest = _SPANDREL[name].split(":")
    options = {key: int(value) for key, value in (part.split("=") for part in ",".join(rest).split(",") if part)}
    module = getattr(importlib.import_module(f"spandrel.architectures.{name}.__arch.{file}"), kind)
    if kind == "DnCNN":
        options = {"in_nc": 3, "out_nc": 3, "nc": 64, "nb": 17, "act_mode": "R"}
    return module(**options), (1, 4 if kind == "DRUNet" else 3, 64, 64)


_SMALL_KL = {
    "block_out_channels": (32, 64),
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
    "layers_per_block": 2,
    "norm_num_groups": 8,
}
# The autoencoder of Stable Diffusion 1 and 2 [their vae/config.json].
_STABLE_DIFFUSION = {
    "block_out_channels": (128, 256, 512, 512),
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "layers_per_block": 2,
    "latent_channels": 4,
}
_SMALL_DC = {
    **dict.fromkeys(("encoder_block_out_channels", "decoder_block_out_channels"), (32, 64)),
    **dict.fromkeys(("encoder_layers_per_block", "decoder_layers_per_block"), (1, 1)),
    **dict.fromkeys(("encoder_qkv_multiscales", "decoder_qkv_multiscales"), ((), (5,))),
    **dict.fromkeys(("encoder_block_types", "decoder_block_types"), "ResBlock"),
    "latent_channels": 8,
}
_DIFFUSERS: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "AutoencoderKL.decoder": ("AutoencoderKL", _SMALL_KL, (1, 4, 16, 16)),
    "AutoencoderKL.encoder": ("AutoencoderKL", _SMALL_KL, (1, 3, 32, 32)),
    "AutoencoderTiny.decoder": ("AutoencoderTiny", {}, (1, 4, 16, 16)),
    "AutoencoderTiny.encoder": ("AutoencoderTiny", {}, (1, 3, 64, 64)),
    "VQModel.decoder": ("VQModel", {"block_out_channels": (32,), "norm_num_groups": 8}, (1, 3, 16, 16)),
    "VQModel.encoder": ("VQModel", {"block_out_channels": (32,), "norm_num_groups": 8}, (1, 3, 32, 32)),
    "StableDiffusion.decoder": ("AutoencoderKL", _STABLE_DIFFUSION, (1, 4, 8, 8)),
    "AutoencoderDC.decoder": ("AutoencoderDC", _SMALL_DC, (1, 8, 16, 16)),
}


def _diffusers() -> list[str]:
    import diffusers  # noqa: F401

    return list(_DIFFUSERS)


def _make_diffusers(name: str) -> Made:
    import diffusers

    kind, options, shape = _DIFFUSERS[name]
    return getattr(getattr(diffusers, kind)(**options), name.split(".")[1]), shape


def _ultralytics() -> list[str]:
    import ultralytics

    root = Path(ultralytics.__file__).parent / "cfg" / "models"
    kept = re.compile("world|yoloe|-depth|rtdetr")
    return sorted(path.name for path in root.glob("*/*.yaml") if not kept.search(path.name))


def _make_ultralytics(name: str) -> Made:
    from ultralytics import YOLO

    module = YOLO(name, verbose=False).model
    return module.fuse(verbose=False) if hasattr(module, "fuse") else module, (1, 3, 640, 640)


LIBRARIES: dict[str, tuple[Callable[[], list[str]], Callable[[str], Made]]] = {
    "pytorchcv": (_pytorchcv, _make_pytorchcv),
    "timm": (_timm, _make_timm),
    "torchvision": (_torchvision, _make_torchvision),
    "transformers": (_transformers, _make_transformers),
    "smp": (_smp, _make_smp),
    "spandrel": (_spandrel, _make_spandrel),
    "diffusers": (_diffusers, _make_diffusers),
    "ultralytics": (_ultralytics, _make_ultralytics),
}


# ---- one network


def _without_extension() -> None:
    """Define torchvision's operators if its extension, built for another PyTorch, does not load; none is called."""
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    _libraries.append(library)
    for _ in range(50):
        try:
            import torchvision  # noqa: F401
        except RuntimeError as error:
            missing = re.search(r"operator torchvision::(\w+) does not exist", str(error))
            if missing is None:
                raise
            library.define(f"{missing[1]}(Tensor x) -> Tensor")
            for name in [name for name in sys.modules if name.startswith("torchvision")]:
                del sys.modules[name]
        else:
            return


_libraries: list[Any] = []  # kept until the end of the process


def disturb(module: Any) -> None:
    """Set random statistics, scales and shifts of batch normalization, so that no layer is an identity.

    Linear layers that start with weights of 0, as torchvision's ViT's last one, hide all layers in front of them.
    """
    import torch

    for part in module.modules():
        if isinstance(part, torch.nn.Linear) and not part.weight.any():
            part.weight.data.normal_(0, 0.02)
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and part.running_mean is not None:
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)
            if part.weight is not None:
                part.weight.data.uniform_(0.5, 1.5)
                part.bias.data.normal_(0, 0.1)


def _kind(module: Any, x: Any) -> tuple[str, list[Any]]:
    """Return "cnn", "hybrid" (with products of computed matrices) or "transformer", and the outputs."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: collections.Counter[str] = collections.Counter()
    constant = {id(value) for value in (*module.parameters(), *module.buffers())}

    class Counter(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = function._schema.name.removeprefix("aten::")
            if name in ("bmm", "baddbmm") or "scaled_dot_product" in name:
                seen["product"] += not any(id(value) in constant for value in args)
            seen["product"] += "multi_head_attention" in name
            seen["convolution"] += name == "convolution"
            return function(*args, **(kwargs or {}))

    with torch.no_grad(), Counter():
        result = module(x)
    outputs = [leaf for leaf in _leaves(result) if isinstance(leaf, torch.Tensor)]
    if not seen["product"]:
        return "cnn", outputs
    return ("hybrid" if seen["convolution"] > 4 else "transformer"), outputs


def _leaves(value: Any) -> Iterable[Any]:
    from torch.utils import _pytree as pytree

    return pytree.tree_leaves(value)


def _difference(found: Any, expected: list[Any]) -> tuple[float, str]:
    """Return the max difference over outputs, as a part of the max of each, and what differs in shape."""
    import numpy as np

    results = list(found) if isinstance(found, tuple) else [found]
    worst = 0.0
    if len(results) != len(expected):
        return float("inf"), f"{len(results)} outputs, not {len(expected)}"
    for ours, theirs in zip(results, expected, strict=True):
        theirs = np.asarray(theirs, np.float64)
        if ours.shape != theirs.shape:
            return float("inf"), f"shape {ours.shape}, not {theirs.shape}"
        scale = float(np.abs(theirs).max(initial=0)) or 1.0
        error = float(np.abs(ours.astype(np.float64) - theirs).max(initial=0)) / scale
        worst = max(worst, error if np.isfinite(error) else float("inf"))
    return worst, ""


def _amplified(exact: Any, x: Any, expected: list[Any]) -> float:
    """Return the max difference of float64's results, of three draws, if each weight changes by float32's rounding."""
    import copy

    import torch

    worst = 0.0
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        module = copy.deepcopy(exact)
        for weight in (*module.parameters(), *module.buffers()):
            if weight.is_floating_point():
                noise = torch.rand(weight.shape, generator=generator, dtype=weight.dtype) * 2 - 1
                weight.data.mul_(1 + noise * 2.0**-23)
        with torch.no_grad():
            changed = [leaf for leaf in _leaves(module(x.double())) if isinstance(leaf, torch.Tensor)]
        worst = max(worst, _difference(tuple(leaf.numpy() for leaf in changed), expected)[0])
    return worst


def _rounding(module: Any, exact: Any, x: Any, expected: list[Any]) -> tuple[float, float, bool]:
    """Return the error of PyTorch's float32, that of `_amplified`, and whether one of them is beyond the tolerance."""
    import torch

    theirs = [leaf for leaf in _leaves(module(x)) if isinstance(leaf, torch.Tensor)]
    error = _difference(tuple(leaf.numpy() for leaf in theirs), expected)[0]
    amplified = _amplified(exact, x, expected)
    return error, amplified, max(error, amplified) > TOLERANCE


def _exported(
    module: Any, shape: tuple[int, ...], exporter: str, opset: int | None, folder: str, *, is_free: bool = True
) -> str:
    """Write the module as an ONNX model; return its path. `opset` None: PyTorch's.

    `is_free`: with a free batch, as users do. Otherwise for one image.
    """
    import torch

    path = str(Path(folder) / "model.onnx")
    x = torch.zeros((2 if is_free else 1, *shape[1:]))
    with torch.no_grad():
        if exporter == "dynamo":
            shapes = ({0: torch.export.Dim.DYNAMIC},) if is_free else None
            torch.onnx.export(
                module, (x,), path, dynamo=True, dynamic_shapes=shapes, opset_version=opset, verbose=False
            )
        else:
            torch.backends.mha.set_fastpath_enabled(False)  # it has operators that are not exported
            axes = {"input": {0: "batch"}} if is_free else None
            torch.onnx.export(
                module, (x,), path, dynamo=False, input_names=["input"], dynamic_axes=axes, opset_version=opset
            )
    return path


def _keep(row: dict[str, Any], x: Any, exact: Any, expected: list[Any], folder: str, *, is_free: bool = True) -> None:
    """Write inputs and results in float64 of one image and of two beside an export, for `_kept`."""
    import numpy as np
    import torch

    two = torch.rand(1 + is_free, *x.shape[1:]) * 2 - 1
    with torch.no_grad():
        of_two = [leaf for leaf in _leaves(exact(two.double())) if isinstance(leaf, torch.Tensor)]
    results = {f"{key}{i}": y.numpy() for key, ys in (("y", expected), ("z", of_two)) for i, y in enumerate(ys)}
    np.savez(Path(folder, "arrays.npz"), x=x.numpy(), two=two.numpy(), **results)
    Path(folder, "row.json").write_text(json.dumps(row))


def _invalid(folder: str, arrays: Any) -> str:
    """Return what is wrong with an export: ONNX Runtime refuses it, or has other results for one image or two."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(str(Path(folder, "model.onnx")), options)
        for source, key in (("x", "y"), ("two", "z")):
            found = session.run(None, {session.get_inputs()[0].name: arrays[source]})
            expected = [arrays[f"{key}{i}"] for i in range(len(arrays.files)) if f"{key}{i}" in arrays]
            difference, text = _difference(tuple(found), expected)
            if difference > 10 * TOLERANCE:
                return f"ONNX Runtime differs by {difference:.1e} for {arrays[source].shape} {text}"
    except Exception as error:
        return f"ONNX Runtime: {_short(error)}"
    return ""


def _kept(folder: str) -> dict[str, Any] | None:
    """Import and compare an export of an earlier survey; None if there is none, or if it is wrong: rounding may be."""
    import numpy as np

    import mpscnn

    if not Path(folder, "row.json").exists():
        return None
    row: dict[str, Any] = json.loads(Path(folder, "row.json").read_text())
    arrays = np.load(Path(folder, "arrays.npz"))
    print(IMPORTING, flush=True)
    began = time.process_time()
    try:
        net = mpscnn.load(str(Path(folder, "model.onnx")))
    except (mpscnn.ImportError, NotImplementedError, ValueError) as error:
        row |= {"outcome": "refused", "reason": str(error), "import_s": round(time.process_time() - began, 2)}
        if text := _invalid(folder, arrays):
            row |= {"outcome": "unavailable", "reason": f"the export: {text}\n{row['reason']}"}
        return row
    except Exception as error:
        return row | {"outcome": "failed", "reason": f"{type(error).__name__}: {error}"}
    row |= {"import_s": round(time.process_time() - began, 2), "kernels": len(net.graph.nodes), "outcome": "right"}
    row["free"] = all(spec.height is None and spec.width is None for spec in net.inputs.values())
    row["error"] = 0.0
    for source, key in (("x", "y"), ("two", "z")):
        expected = [arrays[f"{key}{i}"] for i in range(len(arrays.files)) if f"{key}{i}" in arrays]
        difference, _ = _difference(net(arrays[source]), expected)
        if difference > TOLERANCE:
            return None
        row["error"] = max(row["error"], difference)
    return row | {"other": "right"}


def _smaller(shape: tuple[int, ...], size: int | None) -> list[tuple[int, ...]]:
    """Return shapes of smaller images, of `size` x `size` pixels and of at most LARGE, and then this one."""
    height, width = shape[2:]
    shapes = [shape] if size is None or size >= min(height, width) else [(*shape[:2], size, size), shape]
    while height * width > LARGE:
        height, width = (32 * math.ceil(extent / 64) for extent in (height, width))
    shapes.insert(-1, (*shape[:2], height, width))
    return list(dict.fromkeys(shapes))


def survey(
    name: str,
    folder: str,
    onnx: str | None = None,
    opset: int | None = None,
    size: int | None = None,
    keep: str | None = None,
    parameters: float = math.inf,
) -> dict[str, Any]:
    """Make, import and compare one network, "library:network"; return its row.

    `onnx`: compare its export by this exporter, in this opset, to a file in `folder`; `keep`: in a folder of this one,
    which a later survey imports again. `size`: of a smaller image, see `_smaller`. `parameters`: limit, in millions.
    """
    import contextlib
    import copy
    import warnings

    if keep and onnx:
        folder = str(Path(keep, f"{onnx}-{opset}", re.sub(r"\W", "_", name)))
        Path(folder).mkdir(parents=True, exist_ok=True)
        if (found := _kept(folder)) is not None:
            return found

    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with contextlib.suppress(Exception):
        _without_extension()
    row: dict[str, Any] = {"name": name, "kind": "", "outcome": "unavailable", "reason": ""}
    library, network = name.split(":", 1)
    try:
        module, shape = LIBRARIES[library][1](network)
        row["parameters"] = sum(value.numel() for value in module.parameters()) / 1e6
        if row["parameters"] > parameters:
            return row | {"outcome": "skipped", "reason": f"{row['parameters']:.0f} M parameters"}
        module = module.float().eval().requires_grad_(False)
        disturb(module)
        exact = copy.deepcopy(module).double()
        for smaller in _smaller(shape, size):
            x = torch.rand(smaller) * 2 - 1
            try:
                row["kind"], expected = _kind(exact, x.double())
            except Exception as error:
                row["reason"] = f"{type(error).__name__}: {_short(error)}"
            else:
                row["reason"] = ""
                break
        if row["reason"]:
            return row
        shape = smaller
        row["shape"] = list(shape)
        row["convolutions"] = sum("Conv" in type(part).__name__ for part in module.modules())
    except Exception as error:
        row["reason"] = f"{type(error).__name__}: {_short(error)}"
        return row
    import mpscnn

    path = ""
    if onnx:
        try:
            path = _exported(module, shape, onnx, opset, folder)
        except Exception as error:
            if size is not None:  # torchscript exports no pooling to more pixels than there are
                return survey(name, folder, onnx, opset, None, keep)
            row["reason"] = f"the export: {type(error).__name__}: {_short(error)}"
            return row
        if keep:
            _keep(row, x, exact, expected, folder)
            found = _kept(folder)
            if found is not None and found["outcome"] == "unavailable":
                # The number of images is a constant in the file: a file for one image.
                with contextlib.suppress(Exception):
                    _exported(module, shape, onnx, opset, folder, is_free=False)
                    _keep(row | {"batch": 1}, x, exact, expected, folder, is_free=False)
                    found = _kept(folder)
            if found is not None:
                return found
    print(IMPORTING, flush=True)
    began = time.process_time()
    try:
        net = mpscnn.load(path) if onnx else mpscnn.load(module, input_shapes=shape)
    except (mpscnn.ImportError, NotImplementedError, ValueError) as error:
        row |= {"outcome": "refused", "reason": str(error), "import_s": round(time.process_time() - began, 2)}
        return row
    except Exception as error:
        row |= {"outcome": "failed", "reason": f"{type(error).__name__}: {error}\n{traceback.format_exc()[-600:]}"}
        return row
    row["import_s"] = round(time.process_time() - began, 2)
    row["kernels"] = len(net.graph.nodes)
    row["free"] = all(spec.height is None and spec.width is None for spec in net.inputs.values())
    row["fixed_by"] = next((spec.fixed_by for spec in net.inputs.values() if spec.fixed_by), "")
    try:
        row["error"], row["reason"] = _difference(net(x), expected)
        row["outcome"] = "right" if row["error"] <= TOLERANCE else "wrong"
        if row["outcome"] == "wrong" and not row["reason"]:
            row["torch_error"], row["amplified"], is_amplified = _rounding(module, exact, x, expected)
            if is_amplified:
                text = (
                    f"PyTorch's float32 differs by {row['torch_error']:.1e}, and float64 by {row['amplified']:.1e} if"
                    " each weight changes by a rounding of float32: these random weights amplify rounding"
                )
                row |= {"outcome": "unavailable", "reason": text}
                return row
    except Exception as error:
        row |= {"outcome": "failed", "reason": f"{type(error).__name__}: {error}"}
        return row
    # If the limit is reached in the next comparison, this one counts.
    print(MARK + json.dumps(row | {"other": "not compared within the limits"}), flush=True)
    try:
        row["other"] = _other_size(net, module, exact, shape, is_file=bool(onnx))
    except Exception as error:
        row["other"] = f"failed: {_short(error)}"
    if row["other"].startswith("wrong"):
        row |= {"outcome": "wrong", "reason": row["other"]}
    return row


SPEED_THREADS = 2
# Sizes for speed() that take minutes in float64.
SPEED_SHAPES = {"diffusers:StableDiffusion.decoder": (1, 4, 32, 32)}
REST = 0.03  # seconds before each call: threads of PyTorch and ONNX Runtime spin for milliseconds after one


def speed(name: str, calls: int, folder: str) -> dict[str, Any]:
    """Time one network for one image in float32 beside PyTorch (channels_last) and ONNX Runtime, call by call.

    Return the medians in ms. The results are compared first.
    """
    import contextlib
    import copy
    import warnings

    import numpy as np
    import torch

    warnings.simplefilter("ignore")
    with contextlib.suppress(Exception):
        _without_extension()
    import onnxruntime

    import mpscnn

    library, network = name.split(":", 1)
    torch.manual_seed(0)
    module, shape = LIBRARIES[library][1](network)
    shape = SPEED_SHAPES.get(name, shape)
    module = module.float().eval().requires_grad_(False)
    disturb(module)
    x = torch.rand(shape) * 2 - 1
    # ultralytics sets the number of threads of its process to one.
    torch.set_num_threads(SPEED_THREADS)
    mpscnn.set_num_threads(SPEED_THREADS)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = SPEED_THREADS
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(_exported(copy.deepcopy(module), shape, "torchscript", 17, folder), options)
    net = mpscnn.load(copy.deepcopy(module), input_shapes=shape)
    module = module.to(memory_format=torch.channels_last)
    image = x.contiguous(memory_format=torch.channels_last)
    contestants: dict[str, Callable[[], Any]] = {
        "mpscnn": lambda: net(x),
        "torch": lambda: module(image),
        "ONNX Runtime": lambda: session.run(None, {session.get_inputs()[0].name: x.numpy()}),
    }
    row: dict[str, Any] = {"name": name, "shape": list(shape), "calls": calls}
    times: dict[str, list[float]] = {key: [] for key in contestants}
    with torch.inference_mode():
        expected = [leaf for leaf in _leaves(contestants["torch"]()) if isinstance(leaf, torch.Tensor)]
        for key in ("mpscnn", "ONNX Runtime"):
            found = tuple(_leaves(contestants[key]()))
            difference, reason = _difference(found[: len(expected)], expected[: len(found)])
            if reason or difference > 10 * TOLERANCE:
                raise ValueError(f"{name}: {key} differs from PyTorch by {difference:.1e}. {reason}")
        for _ in range(calls + 1):
            for key in random.sample(list(contestants), len(contestants)):
                time.sleep(REST)
                began = time.perf_counter()
                contestants[key]()
                times[key].append(time.perf_counter() - began)
    return row | {key: round(float(np.median(values[1:])) * 1e3, 1) for key, values in times.items()}


def speed_table(rows: Iterable[dict[str, Any]]) -> str:
    """Return rows of speed() as Markdown."""
    lines = [
        "| network | mpscnn | torch | ONNX Runtime | torch / mpscnn | ONNX Runtime / mpscnn |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        ours, torchs, theirs = (row[key] for key in ("mpscnn", "torch", "ONNX Runtime"))
        ratios = f"{torchs / ours:.2f} | {theirs / ours:.2f}"
        lines.append(f"| {row['name']} | {ours} | {torchs} | {theirs} | {ratios} |")
    return "\n".join(lines) + "\n"


def _other_size(net: Any, module: Any, exact: Any, shape: tuple[int, ...], *, is_file: bool = False) -> str:
    """Compare a batch of two, of another size if the network takes one; "fixed" if PyTorch alone takes one.

    Large images become smaller, since float64 takes long, and small ones larger.

    `is_file`: an export, which has one size: the windows of an adaptive pooling are numbers in it.
    """
    import torch

    height, width = shape[2:]
    halves = tuple(32 * math.ceil(extent / 64) for extent in (height, width))
    other = (halves[0], halves[1] + 32) if min(height, width) >= 128 else (height + height // 4, width + width // 2)
    sizes = [other, (height + 32, width + 64), (height, width)]
    for size in sizes[2 * is_file :]:
        x = torch.rand(2, shape[1], *size) * 2 - 1
        try:
            with torch.no_grad():
                expected = [leaf for leaf in _leaves(exact(x.double())) if isinstance(leaf, torch.Tensor)]
        except Exception:
            continue
        try:
            found = net(x)
        except ValueError as error:
            return f"fixed: {_short(error)}"
        difference, text = _difference(found, expected)
        if difference > TOLERANCE and not text and _rounding(module, exact, x, expected)[2]:
            return f"unavailable: rounding is amplified at {tuple(x.shape)}"
        return "right" if difference <= TOLERANCE else f"wrong at {tuple(x.shape)}: {text or difference}"
    return "fixed by PyTorch"


def _short(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:200]


# ---- all networks


def run(name: str, seconds: float, wall: float, gigabytes: float, **options: Any) -> dict[str, Any]:
    """Survey one network in a process of its own, with options of `survey`; return its row."""
    began = time.monotonic()
    row: dict[str, Any] = {"name": name, "kind": ""}
    with tempfile.TemporaryDirectory() as folder:
        limits = (seconds, gigabytes)
        process = multiprocessing.get_context("fork").Process(target=_alone, args=(limits, name, folder, options))
        process.start()
        process.join(wall)
        is_late = process.is_alive()
        if is_late:
            process.kill()
            process.join()
        output, errors = (
            path.read_text(errors="replace") if path.exists() else ""
            for path in (Path(folder) / "output", Path(folder) / "errors")
        )
    reason = f"more than {wall:g} s of real time"
    if process.exitcode == -signal.SIGXCPU:
        is_late, reason = True, f"more than {seconds:g} s of processor time"
    lines = [line for line in output.splitlines() if line.startswith(MARK)]
    if lines:
        row = json.loads(lines[-1].removeprefix(MARK))
    elif not is_late:
        row |= {"outcome": "failed", "reason": f"exit status {process.exitcode}: {errors.strip()[-300:]}"}
    elif IMPORTING in output:
        row |= {"outcome": "hanging", "reason": reason}
    else:
        row |= {"outcome": "unavailable", "reason": f"{reason} before the import"}
    return row | {"wall_s": round(time.monotonic() - began, 1)}


def _alone(limits: tuple[float, float], name: str, folder: str, options: dict[str, Any]) -> None:
    """Survey one network in this process, a new one; print its row to a file."""
    seconds, gigabytes = limits
    size = int(gigabytes * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds) + 5))
    for number, file in ((1, "output"), (2, "errors")):
        os.dup2(os.open(Path(folder, file), os.O_WRONLY | os.O_CREAT), number)
    print(MARK + json.dumps(survey(name, folder, **options)), flush=True)
    os._exit(0)  # libraries may have threads that do not end


def names(sample: int | None, seed: int, only: str | None) -> list[str]:
    """Return names of networks: all, those that match, or a sample over the libraries."""
    found: dict[str, list[str]] = {}
    for library, (listed, _) in LIBRARIES.items():
        try:
            found[library] = [f"{library}:{name}" for name in listed()]
        except Exception as error:
            print(f"{library}: {type(error).__name__}: {_short(error)}", file=sys.stderr)
    if only is not None:
        return [name for several in found.values() for name in several if re.fullmatch(only, name)]
    if sample is None:
        return [name for several in found.values() for name in several]
    drawn = []
    for i, several in enumerate(found.values()):
        count = sample // len(found) + (i < sample % len(found))
        drawn.append(random.Random(seed).sample(several, min(count, len(several))))
    # One of each library in turn: the part of a draw that --minutes leaves is a draw as well.
    return [name for turn in itertools.zip_longest(*drawn) for name in turn if name is not None]


def reasons(rows: Iterable[dict[str, Any]]) -> list[tuple[str, int]]:
    """Return refused operators and reasons with the number of networks that each of them stops."""
    counts: collections.Counter[str] = collections.Counter()
    for row in rows:
        if row["outcome"] != "refused":
            continue
        found, operator = set(), ""
        for line in row["reason"].splitlines()[1:] or [row["reason"]]:
            if match := re.match(r"  (\S+) \(\d+\):", line):
                operator = match[1]
            else:
                text = re.sub(r"\d+", "n", line.strip().partition(": ")[2] or line.strip())
                found.add(f"{operator}: {text}"[:140])
        counts.update(found)
    return counts.most_common()


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return the tables of the survey."""
    lines = [
        f"| networks | {' | '.join(COUNTED)} | free sizes | second size | import over {LONG} s | max import, s |",
        "|---" * (len(COUNTED) + 5) + "|",
    ]
    for kind in ("cnn", "hybrid", "transformer", ""):
        some = [row for row in rows if row["kind"] == kind and row["outcome"] in COUNTED]
        if some:
            counts = [sum(row["outcome"] == outcome for row in some) for outcome in COUNTED]
            seconds = max((row.get("import_s", 0) for row in some), default=0)
            free = sum(bool(row.get("free")) for row in some)
            other = sum(row.get("other", "") == "right" for row in some)
            long = sum(row.get("import_s", 0) > LONG for row in some)
            counts += [free, other, long, seconds]
            lines.append(f"| {kind or 'unknown'} | " + " | ".join(map(str, counts)) + " |")
    others = collections.Counter(row["outcome"] for row in rows if row["outcome"] not in COUNTED)
    lines += ["", f"Not counted: {', '.join(f'{count} {name}' for name, count in others.items()) or 'none'}."]
    lines += [
        "",
        "| network | kind | outcome | error | kernels | import, s | another size |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        error = f"{row['error']:.1e}" if "error" in row else ""
        cells = [row["name"], row["kind"], row["outcome"], error, row.get("kernels", ""), row.get("import_s", "")]
        lines.append("| " + " | ".join(map(str, [*cells, row.get("other", "").partition(":")[0]])) + " |")
    lines += ["", "| reason for refusals | networks |", "|---|---|"]
    lines += [f"| {text.replace('|', '/')} | {count} |" for text, count in reasons(rows)]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, help="number of networks, drawn from all libraries")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="regular expression for library:network")
    parser.add_argument("--again", help="JSON of an earlier survey: run its networks")
    parser.add_argument("--outcome", help="with --again: only networks whose outcome matches this expression")
    parser.add_argument("--seconds", type=float, default=120, help="limit for each network, processor time")
    parser.add_argument("--wall", type=float, help="limit for each network, real time")
    parser.add_argument("--minutes", type=float, default=math.inf, help="no network is begun after this real time")
    parser.add_argument("--memory", type=float, default=10, help="limit for each network, GiB")
    parser.add_argument("--parameters", type=float, default=math.inf, help="limit for each network, millions")
    parser.add_argument("--onnx", choices=("dynamo", "torchscript"), help="survey exports by torch.onnx.export")
    parser.add_argument("--opset", type=int, help="with --onnx: version of the export's operators")
    parser.add_argument("--size", type=int, help="height and width of smaller images, if a network takes them")
    parser.add_argument("--keep", help="with --onnx: folder for the exports, which are imported again if they exist")
    parser.add_argument("--json", help="file for the rows, written after each network")
    parser.add_argument("--resume", action="store_true", help="leave out the networks that the file of --json has")
    parser.add_argument("--markdown", help="file for the tables")
    parser.add_argument("--speed", type=int, metavar="CALLS", help="time the networks of --only instead, in float32")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one and given.speed:
        with tempfile.TemporaryDirectory() as folder:
            print(MARK + json.dumps(speed(given.one, given.speed, folder)), flush=True)
        os._exit(0)
    options = {key: getattr(given, key) for key in ("onnx", "opset", "size", "keep", "parameters")}
    if given.one:
        with tempfile.TemporaryDirectory() as folder:
            row = survey(given.one, folder, **options)
            print(MARK + json.dumps(row), flush=True)
        os._exit(0)  # libraries may have threads that do not end
    if given.again:
        earlier = json.loads(Path(given.again).read_text())
        wanted = [row["name"] for row in earlier if re.fullmatch(given.outcome or ".*", row["outcome"])]
    else:
        import contextlib

        with contextlib.suppress(Exception):
            _without_extension()
        wanted = names(given.sample, given.seed, given.only)
    if given.speed:
        timed = []
        for number, name in enumerate(wanted, 1):
            print(f"{number}/{len(wanted)} {name}", file=sys.stderr, flush=True)
            command = [sys.executable, __file__, "--one", name, "--speed", str(given.speed)]
            settings = os.environ | {"OMP_NUM_THREADS": str(SPEED_THREADS)}
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=settings, check=True)
            line = next(line for line in done.stdout.splitlines() if line.startswith(MARK))
            timed.append(json.loads(line.removeprefix(MARK)))
        if given.json:
            Path(given.json).write_text(json.dumps(timed, indent=1) + "\n")
        print(speed_table(timed))
        return
    is_begun = given.resume and given.json and Path(given.json).exists()
    rows: list[dict[str, Any]] = json.loads(Path(given.json).read_text()) if is_begun else []
    known = {row["name"] for row in rows}
    began = time.monotonic()
    for number, name in enumerate(wanted, 1):
        if name in known:
            continue
        if time.monotonic() - began > 60 * given.minutes:
            print(f"stopped before network {number}: over {given.minutes:g} minutes", flush=True)
            break
        row = run(name, given.seconds, given.wall or WAITING * given.seconds, given.memory, **options)
        rows.append(row)
        reason = row["reason"].splitlines()[0][:90] if row["reason"] else ""
        print(f"{number}/{len(wanted)} {name}: {row['outcome']} {row['wall_s']} s {reason}", flush=True)
        if given.json:
            partial = Path(given.json + ".partial")
            partial.write_text(json.dumps(rows, indent=1) + "\n")
            partial.replace(given.json)
    text = markdown(rows)
    if given.markdown:
        Path(given.markdown).write_text(text)
    print(text)


if __name__ == "__main__":
    main()
