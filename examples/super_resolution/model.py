# SPDX-License-Identifier: Apache-2.0
"""The super-resolution network as a PyTorch module, built from the layer list in `network`."""

from __future__ import annotations

import torch
from network import FACTOR, LAYERS
from torch import Tensor, nn


class ESPCN(nn.Module):
    """Network that enlarges RGB pictures by `network.FACTOR`: convolutions at the small size, then a pixel shuffle.

    The parameters are named ``conv1.weight``, ``conv1.bias``, ... as in `network.LAYERS`. An untrained module
    already enlarges roughly, by repeating pixels (see `reset_parameters`).
    """

    def __init__(self) -> None:
        super().__init__()
        for layer in LAYERS:
            kernel = layer["kernel_size"]
            conv = nn.Conv2d(layer["in_channels"], layer["out_channels"], kernel, padding=kernel // 2)
            self.add_module(layer["name"], conv)
        self.shuffle = nn.PixelShuffle(FACTOR)
        self.reset_parameters()

    def convolutions(self) -> list[nn.Conv2d]:
        """Return the convolutions in execution order."""
        convolutions = [self.get_submodule(layer["name"]) for layer in LAYERS]
        return [conv for conv in convolutions if isinstance(conv, nn.Conv2d)]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialize random weights, except that the first three channels of every layer pass on the colours.

        ReLUs keep colours, which are not negative. So training starts from a usable picture without a
        shortcut connection.
        """
        convolutions = self.convolutions()
        for conv in convolutions:
            nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
            if conv.bias is not None:
                nn.init.zeros_(conv.bias)
            centre = conv.kernel_size[0] // 2
            conv.weight[:3] = 0
            for colour in range(3):
                conv.weight[colour, colour, centre, centre] = 1
        last = convolutions[-1]
        centre = last.kernel_size[0] // 2
        last.weight.mul_(0.01)
        for channel in range(last.out_channels):
            last.weight[channel, :3] = 0
            last.weight[channel, channel // FACTOR**2, centre, centre] = 1

    def forward(self, x: Tensor) -> Tensor:
        """Enlarge a batch.

        Parameters
        ----------
        x
            (N, 3, H, W) float32, RGB in 0..1.

        Returns
        -------
        Tensor
            (N, 3, FACTOR * H, FACTOR * W) float32, not clipped.
        """
        for conv, layer in zip(self.convolutions(), LAYERS, strict=True):
            x = conv(x)
            if layer["activation"] == "relu":
                x = torch.relu(x)
        enlarged: Tensor = self.shuffle(x)
        return enlarged
