"""What is done with a lake as a whole: copies, pins, collections of garbage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _forebay

if TYPE_CHECKING:
    from ._dataset import Credentials, _Handle

#: Called with what is done and what there is to do: bytes of a copy, objects of a collection.
Progress = Callable[[int, int], None]


def _access(storage_options: Mapping[str, Any] | None, credentials: Any) -> Any:
    from ._dataset import _access as access

    return access(storage_options, credentials)


class RowChanges(NamedTuple):
    """Some rows that differ between two versions. A row is named by its fragment and its number in it."""

    added: list[str]
    """Rows that are new."""
    deleted: list[str]
    """Rows that are gone."""
    changed: list[tuple[str, str, list[str]]]
    """Rows that differ: as the version before names them, as the one after does, and the columns."""


class Purge(NamedTuple):
    """The record of rows that were erased."""

    author: str
    """Who did it."""
    reason: str
    """Why."""
    time: int
    """When, in microseconds since 1970 UTC."""
    rows: int
    """How many."""


class Loss(NamedTuple):
    """Rows that a commit lost."""

    table: str
    """The table."""
    column: str | None
    """The column, or None for all of them."""
    rows: int
    """How many rows can't be read, or may be wrong."""
    objects: list[str]
    """The objects that are missing or damaged."""


class BranchState(NamedTuple):
    """What damage means for a branch."""

    name: str
    """The branch."""
    newest: str | None
    """The newest commit that can be read."""
    whole: str | None
    """The newest commit of which nothing is lost."""
    losses: list[Loss]
    """What the newest commit lost."""
    commits_lost: list[str]
    """Commits whose objects are missing or damaged."""
    entries_lost: int
    """Entries of the branch's log that are."""


class Assessment(NamedTuple):
    """What is damaged, and what that means."""

    faults: dict[str, str]
    """What is wrong, by object; empty if all is well."""
    branches: list[BranchState]
    """Each branch."""


class Pin:
    """Keeps a commit whole while it is held, whatever is deleted or collected. Made by :meth:`Dataset.pin`; a context manager."""

    __slots__ = ("_native",)

    def __init__(self, native: _forebay.Pin) -> None:
        self._native = native

    @property
    def held(self) -> bool:
        """Whether it was not released yet."""
        return self._native.held

    def release(self) -> None:
        """Ends it."""
        self._native.release()

    def __enter__(self) -> Pin:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Keep:
    """What a :class:`Dataset` can do with its whole lake."""

    __slots__ = ()

    _handle: _Handle
    _table: str

    def pin(self, lease: float = 600.0, holder: str | None = None) -> Pin:
        """Keeps the commit that this handle is at, as long as the pin is held: hold one while training on a version that others may
        delete. It is renewed in the background; if the process dies it ends with its lease.

        Parameters
        ----------
        lease : float
            Seconds that it holds after it was last renewed.
        holder : str, optional
            Who holds it, for people; by default the author's name.

        Raises
        ------
        forebay.UnknownVersionError
            If the commit was collected.
        forebay.AccessError
            If the store can't be written to.
        """
        from ._changes import _author

        return Pin(_forebay.Pin(self._handle.session, lease, _author() if holder is None else holder))

    def gc(
        self,
        *,
        grace: float = 24 * 3600.0,
        retention: float = 14 * 24 * 3600.0,
        expire: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> dict[str, int]:
        """Deletes what no branch, tag or pin leads to. It may run beside everything else, be stopped, and run again.

        Parameters
        ----------
        grace : float
            Nothing younger than so many seconds is deleted. Appended rows must be committed within it.
        retention : float
            What branches pointed at within so many seconds is kept, also if they were reset or deleted since.
        expire : bool
            Whether the tables of older commits are collected as well. The commits stay in the log, and what is kept still merges.
        dry_run : bool
            Whether to report and delete nothing.
        progress : callable, optional
            Called with the objects deleted and to be deleted; what it raises ends the collection.

        Returns
        -------
        dict
            ``commits``, ``expired``, ``pins``, ``kept``, ``young``, ``garbage``, ``garbage_bytes``, ``deleted``, ``epoch``.

        Raises
        ------
        forebay.ConflictError
            If another collection began meanwhile; nothing was deleted.
        """
        return _forebay.gc(self._handle.session, grace, retention, (expire, dry_run), progress)

    def push(
        self,
        url: str,
        branch: str | None = None,
        *,
        into: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        credentials: Credentials | None = None,
        progress: Progress | None = None,
    ) -> dict[str, int]:
        """Copies a branch's commits, and what they hold, to another lake, and moves its branch there. What the other lake has already
        isn't copied; a push that was cut goes on where it was.

        Parameters
        ----------
        url : str
            The other lake.
        branch : str, optional
            The branch, by default this handle's.
        into : str, optional
            The other lake's branch, by default of the same name. It is made if it isn't there.
        storage_options, credentials : optional
            As for :func:`create`, for the other lake.
        progress : callable, optional
            Called with the bytes copied and to be copied.

        Returns
        -------
        dict
            ``commits``, ``objects`` and ``bytes`` that were copied.

        Raises
        ------
        forebay.ConflictError
            If the other branch has commits that this one lacks: pull and merge them first.
        """
        return self._copy(True, url, branch, into, _access(storage_options, credentials), progress)

    def pull(
        self,
        url: str,
        branch: str | None = None,
        *,
        into: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        credentials: Credentials | None = None,
        progress: Progress | None = None,
    ) -> dict[str, int]:
        """Copies a branch's commits from another lake, as :meth:`push` does the other way. Call :meth:`refresh` to see them."""
        return self._copy(False, url, branch, into, _access(storage_options, credentials), progress)

    def _copy(
        self, push: bool, url: str, branch: str | None, into: str | None, access: Any, progress: Progress | None
    ) -> dict[str, int]:
        from ._dataset import _url

        session = self._handle.session
        source = branch or session.branch or "main"
        return _forebay.copy(session, push, (_url(url), access), (source, into or source), progress)

    def purge(self, rows: Any, reason: str, author: str | None = None) -> dict[str, int]:
        """Erases rows from all history, where the law demands it: from every commit, branch and tag, and from every byte. Commits stay as
        they are, and none has these rows any more. A record says who did it, when and why: :meth:`purges`.

        Other handles that are open at a tag or commit must be opened again. What anybody wrote and hasn't committed has to be written
        again. Copies of the lake keep the rows until this one is pushed to them, and caches on disks until they are emptied.

        Parameters
        ----------
        rows : int, slice, list of int, or boolean mask [rows]
            Rows as this handle numbers them. Rows that are deleted already are numbered by a handle at an older commit.
        reason : str
            Why.
        author : str, optional
            As for :meth:`commit`.

        Returns
        -------
        dict
            ``rows``; ``fragments`` of all versions that held them, ``files`` written anew, and ``bytes`` of files deleted; and
            ``unreachable``: objects that nothing leads to and that a pin keeps, so that :meth:`gc` must delete them later.

        Raises
        ------
        forebay.ConflictError
            If others kept writing the rows anew: no version shows them, and :meth:`finish_purges` deletes the rest.
        """
        from ._changes import _author

        found = (self._table, self._numbers(rows))
        reports = _forebay.purge(self._handle.session, found, reason, _author() if author is None else author)
        self._handle.moved()
        return reports[0]

    def finish_purges(self) -> None:
        """Finishes purges that were stopped: after the record is written the rows are hidden, and their bytes are still to be deleted."""
        _forebay.purge(self._handle.session, None, "", "")
        self._handle.moved()

    def purges(self) -> list[Purge]:
        """The records of all purges."""
        return [Purge(*record) for record in _forebay.purges(self._handle.session)]

    def assess(self, progress: Progress | None = None) -> Assessment:
        """Reads every byte that branches and tags lead to, and says what is lost and which commit of each branch is whole, so that the branch
        can be :meth:`reset` to it. Changes nothing.

        Parameters
        ----------
        progress : callable, optional
            Called with the bytes read and to be read; what it raises ends the work.
        """
        faults, branches = _forebay.assess(self._handle.session, progress)
        states = [
            BranchState(name, newest, whole, [Loss(*loss) for loss in losses], commits, entries)
            for name, newest, whole, losses, commits, entries in branches
        ]
        return Assessment(dict(faults), states)

    def _numbers(self, rows: Any) -> list[int]:
        raise NotImplementedError

    def diff_rows(self, before: str) -> Iterator[RowChanges]:
        """The rows of this table that differ between another version and this one, some at a time.

        Parameters
        ----------
        before : str
            A branch, or else a tag, or the id of a commit.
        """
        differences = _forebay.Differences(self._handle.session, self._version(before), self._table)
        while (changes := differences.next()) is not None:
            yield RowChanges(*changes)

    def _version(self, name: str) -> tuple[str, str]:
        raise NotImplementedError

    def rename_branch(self, name: str, to: str) -> None:
        """Gives a branch another name: makes one of that name, and deletes the old one.

        Raises
        ------
        forebay.ExistsError
            If there is one of that name.
        """
        self._handle.session.rename_branch(name, to)


def clone(
    source: str,
    target: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    credentials: Credentials | None = None,
    target_options: Mapping[str, Any] | None = None,
    target_credentials: Credentials | None = None,
    progress: Progress | None = None,
) -> dict[str, int]:
    """Copies a lake with all its branches and tags. A copy that was cut goes on where it was.

    Parameters
    ----------
    source, target : str
        URLs of the lake, and of the copy.
    storage_options, credentials : optional
        As for :func:`create`.
    target_options, target_credentials : optional
        The same for the copy, if it isn't reached as the lake is.
    progress : callable, optional
        Called with the bytes copied and to be copied.

    Returns
    -------
    dict
        ``commits``, ``objects`` and ``bytes`` that were copied.

    Raises
    ------
    forebay.ExistsError
        If there is a lake at the target: push to it instead.
    """
    from ._dataset import _url

    access = _access(storage_options, credentials)
    same = target_options is None and target_credentials is None
    other = access if same else _access(target_options, target_credentials)
    return _forebay.clone_lake((_url(source), access), (_url(target), other), progress)
