"""What is done to batches once they are made: columns collated, a user's function applied, in threads and in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ._errors import ArgumentError

if TYPE_CHECKING:
    from ._buckets import Buckets, Tokens
    from ._collate import Collate
    from ._forebay import Batches
    from ._loader import Loader


class Stages:
    """What is done to each batch of a loader, and by how many threads; 0 is the consumer's own."""

    def __init__(
        self,
        buckets: Buckets | Tokens | None,
        collate: Collate | None,
        map_batches: Callable[[dict[str, Any]], Any] | None,
        map_threads: int | None,
        device: int | None,
    ) -> None:
        self.buckets = buckets
        if buckets is not None and device is not None:
            raise ArgumentError("buckets are made in main memory: leave out the device, or the buckets")
        self.collate = dict(collate or {})
        self.function = map_batches
        if map_batches is not None and not callable(map_batches):
            raise ArgumentError(f"map_batches is a function of a batch, not {map_batches!r}")
        if map_threads is not None and (not isinstance(map_threads, int) or map_threads < 0):
            raise ArgumentError(f"map_threads = {map_threads!r}: it is a number of threads")
        if device is not None and map_threads:
            raise ArgumentError("batches on a device belong to the stream of the thread that takes them: leave map_threads out")
        idle = device is not None or (map_batches is None and not self.collate)
        self.threads = 0 if idle else 1 if map_threads is None else map_threads
        #: Whether there is nothing to do.
        self.plain = buckets is None and map_batches is None and not self.collate

    @property
    def counted(self) -> bool:
        """Whether there are as many batches as native ones."""
        from ._buckets import Tokens

        return not isinstance(self.buckets, Tokens)

    @property
    def dealt(self) -> str:
        """How rows are dealt anew to the batches of a window, for states and digests."""
        if self.buckets is None or self.counted:
            return repr(self.buckets)
        return f"{self.buckets!r} of {self.collate.get(self.buckets.column)!r}"

    def apply(self, batch: dict[str, Any]) -> Any:
        """What becomes of a batch."""
        if self.collate:
            from ._collate import collated

            batch = collated(batch, self.collate)
        return batch if self.function is None else self.function(batch)

    def pipe(self, take: Callable[[], Any], make: Callable[[Any], Any], start: tuple[int, int, int], seed: int) -> Pipe:
        """``take`` gives the next native batch and what goes with it, or None; ``make`` makes it a batch."""
        if self.buckets is None:
            return Pipe(take, lambda native: self.apply(make(native)), self.threads)
        from ._buckets import Windows

        def made() -> Any:
            taken = take()
            return None if taken is None else (make(taken[0]), taken[1])

        return Pipe(Windows(self.buckets, self.collate.get(self.buckets.column), made, start, seed).next, self.apply, self.threads)


class Source:
    """Where batches come from. It knows nothing of the iterator over them, which so ends when it is dropped, not once garbage is collected."""

    def __init__(self, loader: Loader, native: Batches) -> None:
        self._loader = loader
        #: None once nothing more is to come.
        self.native: Batches | None = native
        #: Batches that came with the last one and are still to be handed on.
        self.rest: deque[tuple[Callable[[], dict[str, Any]], tuple[int, int, int]]] = deque()

    def take(self) -> tuple[Any, tuple[int, int, int]] | None:
        """The next native batch, or one that was part of a group, and what was delivered with it."""
        if self.rest:
            return self.rest.popleft()
        native = self.native
        taken = None if native is None else native.next()
        if taken is None:
            return None
        columns, progress = taken
        if len(progress) == 1:
            return columns, (*progress[0], 0)
        self.rest.extend((batch, (*at, 0)) for batch, at in zip(self._loader._split(columns), progress))
        return self.rest.popleft()

    def make(self, taken: Any) -> dict[str, Any]:
        """What was taken as what the consumer gets."""
        return taken() if callable(taken) else self._loader._batch(taken)


class Pipe:
    """Native batches on their way to the consumer."""

    def __init__(self, take: Callable[[], Any], work: Callable[[Any], Any], threads: int) -> None:
        self._take = take
        self._work = work
        self._pool = ThreadPoolExecutor(threads, "forebay-map") if threads else None
        self._depth = threads + 1
        self._ended = False
        self._pending: deque[tuple[Future[Any], Any]] = deque()

    def next(self) -> tuple[Any, Any] | None:
        """The next batch and what goes with it, in order; None after the last."""
        if self._pool is None:
            taken = self._take()
            return None if taken is None else (self._work(taken[0]), taken[1])
        while not self._ended and len(self._pending) < self._depth:
            taken = self._take()
            if taken is None:
                self._ended = True
            else:
                self._pending.append((self._pool.submit(self._work, taken[0]), taken[1]))
        if not self._pending:
            return None
        future, rest = self._pending.popleft()
        return future.result(), rest

    def close(self) -> None:
        """Starts nothing more. What runs comes to its end, and nobody waits for it."""
        self._ended = True
        self._pending.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
