# SPDX-License-Identifier: Apache-2.0
"""Operators of PyTorch and ONNX as kernels: functions of a Builder and Tensors, with PyTorch's semantics."""
