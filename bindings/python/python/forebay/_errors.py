"""The errors of Forebay. Each is a :class:`forebay.Error` and also of the kind that Python users expect."""

from __future__ import annotations


class Error(Exception):
    """The base of every error that Forebay raises on purpose."""


class ArgumentError(Error, ValueError):
    """A URL, an option or a name can't be used."""


class SchemaError(Error, ValueError):
    """A schema, or a column's specification, breaks a rule."""


class DataError(Error, ValueError):
    """Rows don't fit their column: shape, length, nulls or values."""


class DTypeError(Error, TypeError):
    """Rows have a dtype that can't be stored in their column without loss, or that a library lacks."""


class _NotThere(Error, KeyError):
    def __str__(self) -> str:
        # KeyError shows the repr of its argument.
        return str(self.args[0]) if self.args else ""


class UnknownColumnError(_NotThere):
    """No column of that name."""


class UnknownTableError(_NotThere):
    """No table of that name at that version."""


class UnknownVersionError(_NotThere):
    """No branch, tag or commit of that name."""


class StorageError(Error, OSError):
    """The store failed: network, disk, credentials. ``errno`` is set where the operating system gave one."""


class NotFoundError(StorageError, FileNotFoundError):
    """There is no lake at the URL, or an object is missing."""


class AccessError(StorageError, PermissionError):
    """The store refused: credentials are missing or wrong, or a folder is read-only; or a link leads to where it may not."""


class ExistsError(Error, FileExistsError):
    """A lake, table, branch or tag of that name exists."""


class CorruptError(Error):
    """Bytes are not what was written: a checksum or a structure is wrong. Names the object and the place."""


class LinkError(CorruptError):
    """A link leads to what changed since it was linked, or is gone. Names the row and the URL."""


class ConflictError(Error):
    """Another commit changed what this one builds on, or its outcome can't be told."""


class NothingToCommitError(Error, ValueError):
    """``commit()`` without a row appended since the last one."""


class UncommittedError(Error, ValueError):
    """Rows that were appended and not committed stand in the way, or were lost by an earlier failure."""


class UnsupportedError(Error, NotImplementedError):
    """Written by a later version of Forebay, or not possible for this kind of column or store."""


class SqlError(Error, ValueError):
    """A statement is no SQL, names what isn't there, or failed on a value. Says where, and what may have been meant."""


class MissingPackageError(Error, ImportError):
    """A package that is installed apart isn't there: says which, and how to install it."""


class ReadOnlyError(Error, ValueError):
    """A write through a handle at a tag or a commit, or through a view."""


class ClosedError(Error, ValueError):
    """A handle was used after ``close()``."""


class TransformError(Error, ValueError):
    """A transform doesn't fit the column that it is for: dtype, shape, size or channels."""


class LoaderError(Error, RuntimeError):
    """A loader can't be built as asked, or could not deliver."""


class StateError(LoaderError, ValueError):
    """A loader's state was damaged, or is of other rows or another order; the message names the field."""


class AgreementError(LoaderError):
    """The ranks don't load the same; every rank raises it."""


class InternalError(Error, RuntimeError):
    """A bug in Forebay: please report it."""
