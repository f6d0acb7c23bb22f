"""Links to objects that are there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from . import _forebay
from ._forebay import Link


def find_links(
    url: str,
    *,
    hash: bool = False,  # noqa: A002 - it is what the link has
    storage_options: Mapping[str, Any] | None = None,
    credentials: Callable[[], Mapping[str, Any]] | None = None,
) -> list[Link]:
    """Links to all objects below a URL, by name, with their sizes and etags.

    Parameters
    ----------
    url : str
        A folder or a prefix of a bucket, as for :func:`forebay.create`.
    hash : bool
        Whether each object is read, and its hash goes into its link: a file on a local disk has another etag wherever it is copied to,
        and so is known again only by its hash.
    storage_options, credentials
        As for :func:`forebay.create`.

    Raises
    ------
    forebay.DataError
        If the store gives no etags, and there is no hash.
    forebay.AccessError, forebay.StorageError, forebay.UnsupportedError
        If the store refuses or fails, or can't list (a web server).
    """
    from ._dataset import _access, _url

    return _forebay.find_links(_url(url), _access(storage_options, credentials), hash)
