# SPDX-License-Identifier: Apache-2.0
"""Images: pixels on the device, and their conversion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

from . import _checks, _core
from ._public import OnDevice, public

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import SupportsIndex

    from numpy.typing import DTypeLike, NDArray

    from . import _typing as t
    from .device import CommandBuffer, Device

    _Out = TypeVar("_Out", bound=t.Array)


@public
class Image(_core._Image, OnDevice):
    """Pixels on the device: N images of H x W pixels of C channels.

    ``Image(shape, dtype)`` has undefined contents, ``Image.from_array(x)`` has the pixels of an array.

    Parameters
    ----------
    shape : (int, int, int, int), >= 1
        N, H, W, C.
    dtype : dtype, default float32
        float32, float16, uint8 or uint16; kernels read the integers as 0...1.
    device : Device, default Device()

    Sharing
    -------
    ``memoryview(image)`` is a view of the pixels, shape (N, H, W, C), if the image shares the memory of an array, as
    all images of a device with shares_images do unless they are temporary; otherwise it raises BufferError.
    ``np.asarray(image)`` is a view if possible, otherwise a copy. The image of a GPU shares its memory with other
    libraries on the GPU: ``torch.from_dlpack(image)`` is a CUDA tensor, and CuPy reads ``__cuda_array_interface__``.

    Raises
    ------
    ValueError
        "Image: shape (1, 0, 2, 3) has an extent (0) less than the minimum (1)."
    TypeError
        "Image: dtype (int32) is not float32, float16, uint8 or uint16."
    BufferError
        "Image: the array cannot be shared: its channels are not adjacent (stride 8 bytes)."
    MemoryError
        "Image: shape ... needs ... bytes, more than the device's recommended_max_working_set_bytes (...)."
    RuntimeError
        "Image: the command buffer that writes it has not completed ..."

    Source
    ------
    MPSCore/MPSImage.h, MPSImage and MPSTemporaryImage.
    """

    __slots__ = ()

    def __init__(self, shape: t.Shape4, dtype: DTypeLike | None = "float32", *, device: Device | None = None) -> None:
        super().__init__(shape, dtype, device)

    @staticmethod
    def from_array(
        x: t.Array, layout: t.ImageLayout = "NHWC", *, copy: bool | None = None, device: Device | None = None
    ) -> Image:
        """Return an image with the pixels of an array: NumPy, PyTorch, DLPack, __array_interface__ or buffer.

        Arrays in a GPU's memory (PyTorch, CuPy, DLPack, __cuda_array_interface__) become images of the device that has
        this memory, without passing through the host: a view if the channels are adjacent, otherwise a copy.

        Parameters
        ----------
        x : array, shape (N, H, W, C), or (N, C, H, W) with layout "NCHW"
        layout : "NHWC" or "NCHW", default "NHWC"
        copy : bool, optional
            None shares the memory if possible, True copies, False shares or raises BufferError with the reason.
        device : Device, default Device()
        """
        return _core._Image._from_array(x, layout, copy, device)

    @staticmethod
    def temporary(command_buffer: CommandBuffer, shape: t.Shape4, dtype: DTypeLike | None = "float32") -> Image:
        """Return an image that is valid on one command buffer, until its read_count is 0 (MPSTemporaryImage)."""
        return _core._Image._temporary(command_buffer, shape, dtype)

    @staticmethod
    def most_images(channels: SupportsIndex) -> int:
        """Return the max number of images with the given number of channels that one Image holds.

        On macOS an MPSImage has 2048 slices of four channels; larger batches are processed in chunks. On Linux only
        memory limits the number, and the result is 2147483647. 0: not even a single image has so many channels.
        """
        return _core._Image._most_images(channels)

    @overload
    def numpy(self, layout: t.ImageLayout = "NHWC", *, out: None = None, copy: bool | None = None) -> NDArray[Any]: ...
    @overload
    def numpy(self, layout: t.ImageLayout = "NHWC", *, out: _Out, copy: bool | None = None) -> _Out: ...
    def numpy(self, layout: t.ImageLayout = "NHWC", *, out: Any = None, copy: bool | None = None) -> Any:
        """Return the pixels as an array: a view if the image shares an array's memory (copy=None), else a copy.

        ``out`` is written in place (any strides) and returned. copy=False raises BufferError if a copy is needed.
        """
        return self._numpy(layout, out, copy)

    def write(self, x: t.Array, layout: t.ImageLayout = "NHWC") -> None:
        """Replace the pixels by those of an array of the image's shape and dtype."""
        self._write(x, layout)

    def channels(self, first: SupportsIndex, count: SupportsIndex) -> Image:
        """Return a view of consecutive channels; both numbers are multiples of 4, or ``count`` is all that remain."""
        return self._channels(first, count)

    def _memory(self, copy: bool | None) -> NDArray[Any]:
        return self.numpy(copy=copy)

    def _repr_png_(self) -> bytes | None:
        """Return the images side by side as a PNG file, for notebooks; None if they cannot be shown."""
        from ._png import image_png

        return image_png(self)


@public
class ImageConversion(_core._ImageConversion):
    """Conversion of images to another dtype and alpha convention.

    Values stay the same; uint8 and uint16 hold 0...1 in steps of 1/255 and 1/65535, rounded to the nearest and clamped.

    Parameters
    ----------
    dtype : dtype, default float32
        Of the result: float32, float16, uint8 or uint16.
    source_alpha, destination_alpha : "non_premultiplied", "alpha_is_one" or "premultiplied"
        Meaning of channel 3 in images of four channels. Default for both: "non_premultiplied", which changes nothing.
        "alpha_is_one" ignores it in the source; in the result it is 1, with the image drawn over the background.
    background_color : (float, float, float), default black
        The color that shows through where alpha is below 1.
    offset : (y, x) or (y, x, image), pixels, optional
        Source position of the first pixel that is written; None: (0, 0, 0).
    clip_rect : ((y, x, image), (height, width, images)), pixels, optional
        Part of the destination that is written; None: all of it. The other pixels are kept, so ``out`` is required; it
        may have another size than x.
    edge_mode : "zero" or "clamp", default "zero"
        Pixels outside of the source: zero, or the nearest pixel.
    device : Device, default Device()

    Raises
    ------
    ValueError
        "ImageConversion: source_alpha ("...") and destination_alpha ("...") ask for a change of alpha, which images of
        5 channels have not."
        "ImageConversion: clip_rect reaches 9 along the height of out (8)."
    TypeError
        "ImageConversion: out.dtype (float16) is not dtype (uint8)."

    Source
    ------
    MPSImage/MPSImageConversion.h, MPSImageConversion; MPSImage/MPSImageKernel.h, MPSUnaryImageKernel.
    """

    __slots__ = ()

    def __init__(
        self,
        dtype: DTypeLike | None = "float32",
        *,
        source_alpha: t.AlphaType = "non_premultiplied",
        destination_alpha: t.AlphaType = "non_premultiplied",
        background_color: Sequence[t.Real] | None = None,
        offset: t.Offset | None = None,
        clip_rect: t.Region | None = None,
        edge_mode: Literal["zero", "clamp"] = "zero",
        device: Device | None = None,
    ) -> None:
        color = (0.0, 0.0, 0.0) if background_color is None else _checks.reals(background_color, "background_color")
        if len(color) != 3:
            raise ValueError(f"ImageConversion: len(background_color) ({len(color)}) is not 3 (red, green, blue).")
        super().__init__(dtype, source_alpha, destination_alpha, color, device)
        self.offset = offset
        self.clip_rect = clip_rect
        self.edge_mode = edge_mode

    @overload
    def __call__(self, x: Image, out: Image | None = None) -> Image:  # type: ignore[overload-overlap]
        ...
    @overload
    def __call__(self, x: t.Array, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: t.Array, out: _Out) -> _Out: ...
    def __call__(self, x: Any, out: Any = None) -> Any:
        """Convert images and wait for the result.

        Parameters
        ----------
        x : array, shape (N, H, W, C), or Image
            float32, float16, uint8 or uint16.
        out : array or Image of x's shape, with the dtype of the conversion, optional
            Written in place and returned. With ``clip_rect`` only that part is written, and height, width and number of
            images may differ from x's.

        Returns
        -------
        array or Image, as x is
        """
        return self._call(x, out)

    def encode(
        self, command_buffer: CommandBuffer, x: Image, out: Image | None = None, temporary: bool = False
    ) -> Image:
        """Append the conversion to a command buffer.

        Parameters
        ----------
        command_buffer : CommandBuffer
            Not committed yet.
        x : Image
        out : Image, optional
            Destination; None: a new image.
        temporary : bool, default False
            Only kernels on this command buffer can read the result, not the CPU.

        Returns
        -------
        Image
            May be read when the command buffer has completed.
        """
        return self._encode(command_buffer, x, out, temporary)

    @property
    def source_alpha(self) -> t.AlphaType:
        """Meaning of channel 3 of the source."""
        return cast("t.AlphaType", self._source_alpha)

    @property
    def destination_alpha(self) -> t.AlphaType:
        """Meaning of channel 3 of the result."""
        return cast("t.AlphaType", self._destination_alpha)

    @property
    def offset(self) -> tuple[int, int] | tuple[int, int, int] | None:
        """(y, x), (y, x, image) or None: source position of the first pixel that is written."""
        return cast("tuple[int, int] | tuple[int, int, int] | None", self._get("offset"))

    @offset.setter
    def offset(self, offset: t.Offset | None) -> None:
        self._set("offset", offset)

    @property
    def clip_rect(self) -> tuple[tuple[int, int, int], tuple[int, int, int]] | None:
        """((y, x, image), (height, width, images)) or None: part of the destination that is written."""
        return cast("tuple[tuple[int, int, int], tuple[int, int, int]] | None", self._get("clip_rect"))

    @clip_rect.setter
    def clip_rect(self, clip_rect: t.Region | None) -> None:
        self._set("clip_rect", clip_rect)

    @property
    def edge_mode(self) -> Literal["zero", "clamp"]:
        """Pixels outside of the source: zero, or the nearest pixel."""
        return cast('Literal["zero", "clamp"]', self._get("edge_mode"))

    @edge_mode.setter
    def edge_mode(self, edge_mode: Literal["zero", "clamp"]) -> None:
        self._set("edge_mode", edge_mode)
