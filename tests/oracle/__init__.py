# SPDX-License-Identifier: Apache-2.0
"""The kernels' results in float64 NumPy, one module per Apple header. Never imports mpscnn.

Images are (N, H, W, C), weights (O, kH, kW, I / groups), pairs (height, width).
"""
