"""Several tables as one stream, in exact proportions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from ._errors import ArgumentError
from ._rows import Rows, View

if TYPE_CHECKING:
    from ._cupy import CupyLoader
    from ._jax import JaxLoader
    from ._loader import NumpyLoader
    from ._torch import TorchLoader

    Sources = Union[Mapping[str, Rows], Sequence[Rows]]
    Weights = Union[Mapping[str, float], Sequence[float], None]


class Mix:
    """Rows of several datasets or views, mixed. Made by :func:`mix`; loads as a dataset does."""

    def __init__(self, views: list[View], names: list[str], weights: list[float], stop: str) -> None:
        self._views = views
        self._names = names
        self._weights = weights
        self._stop = stop

    @property
    def names(self) -> list[str]:
        """The names of the sources; their numbers are what comes as ``source`` in each batch."""
        return list(self._names)

    def __repr__(self) -> str:
        parts = (f"{weight:g} of {name!r} ({len(view)} rows)" for weight, name, view in zip(self._weights, self._names, self._views))
        return f"Mix: {', '.join(parts)}; stops at the {self._stop}"

    def pytorch(self, batch_size: int, **options: Any) -> TorchLoader:
        """Batches as torch tensors; options as for :meth:`Dataset.pytorch`."""
        from ._torch import TorchLoader

        return TorchLoader(self._views[0], batch_size, mix=self, **options)

    def numpy(self, batch_size: int, **options: Any) -> NumpyLoader:
        """Batches as NumPy arrays; options as for :meth:`Dataset.numpy`."""
        from ._loader import NumpyLoader

        return NumpyLoader(self._views[0], batch_size, mix=self, **options)

    def jax(self, batch_size: int, **options: Any) -> JaxLoader:
        """Batches as JAX arrays; options as for :meth:`Dataset.jax`."""
        from ._jax import JaxLoader

        return JaxLoader(self._views[0], batch_size, mix=self, **options)

    def cupy(self, batch_size: int, **options: Any) -> CupyLoader:
        """Batches as CuPy arrays; options as for :meth:`Dataset.cupy`."""
        from ._cupy import CupyLoader

        return CupyLoader(self._views[0], batch_size, mix=self, **options)


def mix(sources: Sources, weights: Weights = None, *, stop: str = "first") -> Mix:
    """Mixes datasets and views, of one table, lake or several, whose columns have the same dtypes and shapes.

    Every few hundred samples hold each source exactly as often as its weight says, in an order that depends on the seed alone; each
    source is shuffled for itself. Which source a row is of comes with each batch as ``source``, int64 [rows].

    Parameters
    ----------
    sources : dict of str to Dataset or View, or sequence of them
        What is mixed.
    weights : dict or sequence of float, optional
        The proportions, in the form of ``sources``; by default the numbers of rows.
    stop : "first" or "last"
        When an epoch ends: before a source would have to begin anew; or when every source was delivered whole, and those that were so
        before have begun anew, in another order. The loaders' ``epoch_length`` says how many samples instead.

    Raises
    ------
    forebay.ArgumentError
        If there is no source, a weight isn't above 0 or has no source, or a column differs; the last when a loader is made.
    """
    if isinstance(sources, Mapping):
        names, parts = [str(name) for name in sources], list(sources.values())
    else:
        parts = list(sources)
        names = [str(number) for number in range(len(parts))]
    if not parts:
        raise ArgumentError("mix: there is no source")
    if not all(isinstance(part, Rows) for part in parts):
        raise ArgumentError("mix: sources are datasets and views")
    if stop not in ("first", "last"):
        raise ArgumentError(f"stop = {stop!r}: it is 'first' or 'last'")
    views = [part._view() for part in parts]
    if weights is None:
        shares = [float(len(view)) for view in views]
    elif isinstance(weights, Mapping):
        if not isinstance(sources, Mapping) or set(weights) != set(sources):
            raise ArgumentError(f"mix: weights name {sorted(map(str, weights))}, sources are {names}")
        shares = [float(weights[name]) for name in sources]
    else:
        shares = [float(weight) for weight in weights]
    if len(shares) != len(views):
        raise ArgumentError(f"mix: {len(shares)} weights for {len(views)} sources")
    return Mix(views, names, shares, stop)
