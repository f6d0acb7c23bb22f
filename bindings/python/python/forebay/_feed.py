"""Rows as they are appended: what is there first, and what came since whenever it is asked for again."""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ._errors import ArgumentError, DataError, Error, StateError
from ._rows import View, _view

if TYPE_CHECKING:
    from ._dataset import Dataset
    from ._loader import Loader


class Feed:
    """A table that rows are appended to, as a stream of batches. Made by :func:`feed`.

    An iteration gives the batches of all rows that the dataset's commit has and that were not delivered yet, and ends there. After
    :meth:`Dataset.refresh` the next one gives what was appended since. What is delivered by one iteration to its end is a *segment*: rows
    are mixed within it alone, so that an order that was begun stays as it is whatever is appended meanwhile.
    """

    def __init__(self, dataset: Dataset, kind: str, batch_size: int, options: Mapping[str, Any]) -> None:
        if kind not in ("numpy", "pytorch"):
            raise ArgumentError(f"kind = {kind!r}: it is 'numpy' or 'pytorch'")
        for name in ("epoch_length", "digest"):
            if options.get(name) is not None:
                raise ArgumentError(f"{name} is of an epoch, and a feed has none: leave it out")
        self._dataset = dataset
        self._kind = kind
        self._batch_size = batch_size
        self._options = dict(options)
        #: The rows delivered before the segment, and the commit at which they were the table's first ones.
        self._done = 0
        self._seen: str | None = None
        #: The segment under way.
        self._segment: tuple[str, int, Loader] | None = None

    def _loader(self, commit: str, start: int, end: int) -> Loader:
        """A loader of the rows from ``start`` to ``end`` of a commit."""
        from . import _forebay

        native = self._dataset._rows()
        view = _view(_forebay.Session.open_at(native.url, native.access, commit=commit), commit, native.table, None, None)
        if not 0 <= start < end <= len(view):
            raise StateError(f"commit {commit} has {len(view)} rows, not rows {start} to {end}")
        part: View = view if (start, end) == (0, len(view)) else view.select(slice(start, end))
        loader: Loader = getattr(part, self._kind)(self._batch_size, **self._options)
        loader.set_epoch(start)  # Each segment has an order of its own.
        return loader

    def _next(self) -> tuple[str, int, Loader] | None:
        """The segment under way, or else a new one of all rows that were not delivered."""
        if self._segment is not None and self._segment[2].state_dict()["epoch"] != self._done:
            self._done, self._segment = self._segment[1], None  # Left behind its last batch.
        if self._segment is None:
            commit, end = self._dataset.commit_id, len(self._dataset)
            self._check(commit, end)
            if end == self._done:
                return None
            self._segment = (commit, end, self._loader(commit, self._done, end))
            self._seen = commit
        return self._segment

    def _check(self, commit: str, rows: int) -> None:
        """Refuses a commit whose first rows are not those that were delivered."""
        if self._seen is None or commit == self._seen:
            return
        if rows < self._done:
            raise DataError(f"a feed follows appended rows: commit {commit} has {rows} rows, {self._done} were delivered before")
        for changes in self._dataset.diff_rows(self._seen):
            if changes.deleted or changes.changed:
                kind = "deleted" if changes.deleted else "updated"
                raise DataError(f"a feed follows appended rows: between commits {self._seen} and {commit} rows were {kind}")

    def __iter__(self) -> Iterator[dict[str, Any]]:
        segment = self._next()
        if segment is None:
            return
        _, end, loader = segment
        loader.load_state_dict(loader.state_dict())  # An iteration that was left goes on.
        yield from loader
        if self._segment is segment:
            self._done, self._segment = end, None

    @property
    def rows(self) -> int:
        """Rows of the segments that were delivered whole, on all ranks together."""
        return self._done

    def stats(self) -> dict[str, Any]:
        """Counts of the segment under way, as :meth:`Loader.stats` gives them; empty between two."""
        return {} if self._segment is None else self._segment[2].stats()

    def state_dict(self) -> dict[str, Any]:
        """Where the feed stands, the same on every rank at the same step, for a checkpoint.

        It resumes in the middle of a segment, whatever was appended since: the segment's rows come to their end in the order in which they
        began, and then those of the newest commit.
        """
        state: dict[str, Any] = {"feed": 1, "rows": self._done, "commit": self._seen, "end": None, "segment": None}
        if self._segment is not None:
            commit, end, loader = self._segment
            inner = loader.state_dict()
            if inner["epoch"] == self._done:
                state.update(commit=commit, end=end, segment=inner)
            else:  # Its last batch was delivered.
                state.update(commit=commit, rows=end)
        return {**state, "checksum": _checksum(state)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where a state was taken, on any number of ranks and at any later commit.

        Raises
        ------
        forebay.StateError
            If the state was damaged, or is of another table, shuffle or seed. Nothing changes then.
        """
        try:
            plain = dict(state)
            checksum = plain.pop("checksum")
            if plain["feed"] != 1 or checksum != _checksum(plain):
                raise StateError("the state was damaged, or is of another version")
            rows, commit, inner = operator.index(plain["rows"]), plain["commit"], plain["segment"]
            segment = None
            if inner is not None:
                end = operator.index(plain["end"])
                segment = (str(commit), end, self._loader(commit, rows, end))
                segment[2].load_state_dict(inner)
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            if isinstance(error, Error):
                raise
            raise StateError(f"this is no state of a feed: {error}") from None
        self._done, self._seen, self._segment = rows, commit, segment


def _checksum(state: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()[:32]


def feed(dataset: Dataset, batch_size: int, *, kind: str = "numpy", **options: Any) -> Feed:
    """The rows of a table in table order, and those that are appended to it, as they come.

    >>> import forebay as fb
    >>> ds = fb.create("memory://feed", {"id": "int64"})
    >>> ds.append({"id": [1, 2, 3]})
    >>> _ = ds.commit()
    >>> events = fb.feed(ds, 2, shuffle=fb.Buffer(1000))
    >>> sum(len(batch["id"]) for batch in events)
    3
    >>> ds.append({"id": [4]})
    >>> _ = ds.commit()
    >>> [batch["id"].tolist() for batch in events]
    [[4]]

    Parameters
    ----------
    dataset : Dataset
        Opened at the branch that is appended to. :meth:`Dataset.refresh` shows what others committed.
    batch_size : int
        Rows of a batch of this rank. The last batch of a segment may be shorter.
    kind : "numpy" or "pytorch"
        What batches hold.
    **options
        As for :meth:`Dataset.pytorch`; ``shuffle=forebay.Buffer(rows)`` mixes what is near each other.

    Raises
    ------
    forebay.DataError
        In an iteration, if rows that were delivered before have been deleted or updated meanwhile.
    """
    return Feed(dataset, kind, batch_size, options)
