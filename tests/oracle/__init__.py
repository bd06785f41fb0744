# SPDX-License-Identifier: Apache-2.0
"""What the kernels compute, in float64 NumPy, one module per Apple header. Never imports mpscnn.

Images are (N, H, W, C), weights (O, kH, kW, I / groups), pairs (height, width).
"""
