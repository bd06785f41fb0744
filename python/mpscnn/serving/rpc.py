# SPDX-License-Identifier: Apache-2.0
"""The Open Inference Protocol over gRPC: a server beside that of HTTP, with the same event loop and service."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

from .._core import __version__
from ..errors import MissingPackageError
from .batching import BusyError
from .models import Tensor
from .protocol import RequestError
from .rpc_messages import MESSAGES, SERVICE, parse, read_infer, split_request, write_infer
from .service import EXTENSIONS, VERSION, Held, Service, netloc

try:
    import grpc
except ModuleNotFoundError as error:
    raise MissingPackageError("gRPC", "grpcio", ("grpcio", "protobuf")) from error

# gRPC's status for that of HTTP. Not RESOURCE_EXHAUSTED for 413: clients repeat such requests.
_STATUS = {
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    503: grpc.StatusCode.UNAVAILABLE,
}

_RECEIVING_SECONDS = 1.0  # that a call waits for the memory of its message
_QUIET_SECONDS = 0.1  # without calls, before the server stops
_MAX_REFUSING_SECONDS = 1.0  # that it waits for them after the last answer
_MAX_DETAILS = 1000  # characters: clients refuse headers of more than 8 KB


class _Operation:
    """A read, write or abort of a call whose memory grpcio frees also if it fails.

    grpcio frees it after it has awaited a future, which a failure leaves by an exception
    [github.com/grpc/grpc/issues/43360]. So the future gets a result instead, and the failure is raised here.
    """

    def __init__(self, operation: Coroutine[Any, Any, Any]) -> None:
        self._operation = operation

    def __await__(self) -> Generator[Any, None, Any]:
        failures: list[Exception] = []
        while True:
            try:
                future = self._operation.send(None)
            except StopIteration as end:
                if failures:
                    raise failures.pop() from None
                return end.value
            if future is None:  # as of sleep(0)
                yield
                continue

            def fail(error: Exception, future: asyncio.Future[None] = future) -> None:
                failures.append(error)
                future.set_result(None)

            future.set_exception = fail
            try:
                yield future
            finally:
                del future.set_exception, fail, future  # cycles


async def _run(operation: Coroutine[Any, Any, Any]) -> Any:
    """Run an operation: tasks take coroutines only."""
    return await _Operation(operation)


class RpcServer:
    """A gRPC server of a service.

    Methods are declared as streams, which are the same on the wire. So the queue is checked before a message is
    received, and the bytes of an answer count as pending until the client has received it.

    Parameters
    ----------
    service : Service
    max_calls : int
        Further calls at the same time are answered with RESOURCE_EXHAUSTED.
    """

    def __init__(self, service: Service, max_calls: int) -> None:
        self.service = service
        limits, seconds = service.limits, round(1000 * service.limits.seconds)
        # The size of a message is known only after it was received. So its memory is reserved.
        self._receiving = asyncio.Semaphore(max(1, limits.pending // limits.body))
        self._operations: set[asyncio.Task[Any]] = set()
        self._accepted = 0  # calls of ModelInfer that are not answered yet
        self._answered = asyncio.Event()  # set whenever one of them ends
        self._refused = 0.0  # time of the last call that came while the server stops
        self._server = grpc.aio.server(
            maximum_concurrent_rpcs=max_calls,
            options=[
                ("grpc.max_receive_message_length", min(limits.body, 2**31 - 1)),
                ("grpc.compression_enabled_algorithms_bitset", 1),  # none: a small message may have any size
                ("grpc.so_reuseport", 0),  # an address in use is an error
                # Calls of a client that does not answer pings end.
                ("grpc.keepalive_time_ms", seconds),
                ("grpc.keepalive_timeout_ms", seconds),
                ("grpc.http2.ping_timeout_ms", seconds),
            ],
        )
        calls = {
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata,
            "ModelMetadata": self._model_metadata,
            "ModelInfer": self._infer,
        }
        handlers = {name: self._handler(call) for name, call in calls.items()}
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])

    async def start(self, host: str, port: int) -> int:
        """Accept connections; return the port.

        Raises
        ------
        OSError
            The address cannot be used.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, port), family=family) as tried:  # gRPC does not say why it cannot
            port = tried.getsockname()[1]
        address = netloc(host, port)
        try:
            port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"gRPC cannot use the address {address}.") from error
        await self._server.start()
        return port

    async def stop(self, seconds: float | None) -> None:
        """Return after the last accepted call has ended; cancel them after so many seconds.

        Further calls are answered with UNAVAILABLE until then (`Service.stops`), and until none has come for a moment:
        gRPC cancels those that arrive while its server stops, and clients repeat calls that got UNAVAILABLE, but not
        cancelled ones.
        """
        if seconds is not None:
            end = time.monotonic() + seconds
            while self._accepted and time.monotonic() < end:
                self._answered.clear()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._answered.wait(), end - time.monotonic())
            last = min(end, time.monotonic() + _MAX_REFUSING_SECONDS)
            while (rest := min(self._refused + _QUIET_SECONDS, last) - time.monotonic()) > 0:
                await asyncio.sleep(rest)
            seconds = max(0.0, end - time.monotonic())
        await self._server.stop(seconds)

    # ---- calls

    def _handler(self, call: Callable[[Any, Held], Awaitable[None]]) -> Any:
        """Return a handler that counts calls, and answers exceptions with their status."""

        async def handle(messages: Any, context: Any) -> None:
            held = Held(self.service)
            status, details = grpc.StatusCode.OK, ""
            trailing: tuple[tuple[str, str], ...] = ()
            try:
                await call(context, held)
            except RequestError as error:
                status, details = _STATUS.get(error.status, grpc.StatusCode.INVALID_ARGUMENT), str(error)
            except BusyError as error:
                status, details = grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)
                trailing = (("grpc-retry-pushback-ms", str(1000 * error.retry_after)),)
            except asyncio.CancelledError:  # by the client, its deadline, or the end of its connection
                status = grpc.StatusCode.CANCELLED
                raise
            except Exception as error:
                status, details = grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}"
            finally:
                held.free()
                self.service.metrics.requests.labels("grpc", status.name).inc()
            if status is not grpc.StatusCode.OK:
                try:
                    await _Operation(context.abort(status, details[:_MAX_DETAILS], trailing))
                finally:
                    # The call keeps the exception of abort(), and this one's traceback this frame. A call in a cycle
                    # keeps its connection until Python collects garbage. So does one with add_done_callback().
                    del context, messages

        return grpc.stream_stream_rpc_method_handler(handle)

    async def _complete(self, operation: Coroutine[Any, Any, Any], seconds: float | None = None) -> Any:
        """Return the result of a read or write of a call, or raise TimeoutError after so many seconds.

        The operation is completed also if the call is cancelled: grpcio does not free the memory of one whose awaiter
        was cancelled. And the call does not go on then: wait_for() before Python 3.12 drops a cancellation if the
        operation completes at the same time, as it does when the client leaves.
        """
        task = asyncio.create_task(_run(operation))
        self._operations.add(task)
        task.add_done_callback(self._completed)
        await asyncio.wait([task], timeout=seconds)
        if not task.done():
            raise asyncio.TimeoutError
        try:
            return task.result()
        finally:
            del task  # an exception's traceback has this frame

    def _completed(self, task: asyncio.Task[Any]) -> None:
        self._operations.discard(task)
        if not task.cancelled():
            task.exception()  # else asyncio logs one that is not awaited

    async def _receive(self, context: Any, held: Held) -> bytes:
        """Receive the only message of a call."""
        seconds = self.service.limits.seconds
        if not self._receiving.locked():
            await self._receiving.acquire()  # at once: no cancellation is dropped
        else:
            try:
                await asyncio.wait_for(self._receiving.acquire(), _RECEIVING_SECONDS)
            except asyncio.TimeoutError:
                raise BusyError("other messages are received, near the maximum of bytes.") from None
        try:
            data = await self._complete(context.read(), seconds)
            if not isinstance(data, bytes):  # EOF
                raise RequestError("the call has no message.")
            held.take(len(data))
        except grpc.aio.InternalError:
            raise RequestError("the call has no message.") from None
        except asyncio.TimeoutError:
            raise RequestError(f"the message was not received within {seconds:g} s.", 408) from None
        finally:
            self._receiving.release()
        return data

    async def _send(self, context: Any, held: Held, data: bytes) -> None:
        """Send the answer; its bytes are held until the client has received them."""
        held.change(len(data))
        try:
            await self._complete(context.write(data))
        except Exception as error:  # the connection has ended; gRPC has several exceptions for that
            raise asyncio.CancelledError from error

    async def _infer(self, context: Any, held: Held) -> None:
        if self.service.stops:
            self._refused = time.monotonic()
            raise RequestError("the server stops.", 503)
        self._accepted += 1
        try:
            await self._infer_accepted(context, held)
        finally:
            self._accepted -= 1
            self._answered.set()

    async def _infer_accepted(self, context: Any, held: Held) -> None:
        service = self.service
        service.batcher.check_free()
        data = await self._receive(context, held)
        start = time.perf_counter()
        split = split_request(data, service.limits.json)
        service.check_name(split.message.model_name, split.message.model_version or VERSION)
        parsed = read_infer(split, service.model.inputs, service.model.outputs, max_pixels=service.limits.pixels)
        results = await service.infer(parsed.arrays)
        answer = b"".join(write_infer(service.name, VERSION, parsed, results))
        service.metrics.request.observe(time.perf_counter() - start)
        await self._send(context, held, answer)

    # ---- health and metadata

    # The requests of a server's methods are empty: they are answered without being received, also under overload.

    async def _live(self, context: Any, held: Held) -> None:
        await self._answer(context, held, "ServerLive", live=True)

    async def _ready(self, context: Any, held: Held) -> None:
        await self._answer(context, held, "ServerReady", ready=not self.service.stops)

    async def _server_metadata(self, context: Any, held: Held) -> None:
        await self._answer(context, held, "ServerMetadata", name="mpscnn", version=__version__, extensions=EXTENSIONS)

    async def _model_ready(self, context: Any, held: Held) -> None:
        await self._check_model(context, held, "ModelReady")
        await self._answer(context, held, "ModelReady", ready=not self.service.stops)

    async def _model_metadata(self, context: Any, held: Held) -> None:
        await self._check_model(context, held, "ModelMetadata")

        def tensors(of: dict[str, Tensor]) -> list[dict[str, Any]]:
            return [{"name": one.name, "datatype": one.datatype, "shape": one.shape} for one in of.values()]

        await self._answer(
            context,
            held,
            "ModelMetadata",
            name=self.service.name,
            versions=[VERSION],
            platform="mpscnn",
            inputs=tensors(self.service.model.inputs),
            outputs=tensors(self.service.model.outputs),
        )

    async def _check_model(self, context: Any, held: Held, method: str) -> None:
        request = parse(f"{method}Request", await self._receive(context, held))
        self.service.check_name(request.name, request.version or VERSION)

    async def _answer(self, context: Any, held: Held, method: str, **fields: Any) -> None:
        await self._send(context, held, MESSAGES[f"{method}Response"](**fields).SerializeToString())
