//! Links as Python has them, and where they may lead.

use bytes::Bytes;
use forebay_format::{Column, ColumnData, DType, Link as Plain, OwnedValues};
use forebay_loader::Error as LoaderError;
use forebay_storage::{Entry, Options, Storage, Version};
use forebay_versioning::{Error as VersionError, Lake, Table};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict},
};

use crate::{
    access::Access,
    error::{Error, Result},
    wait::block_on,
};

/// A value of a column of links: `forebay.Link`.
#[pyclass(frozen, eq, module = "forebay", name = "Link")]
#[derive(PartialEq, Eq)]
pub(crate) struct Link(Plain);

impl Link {
    /// A value that was read, with its whole URL where the column has a base.
    pub(crate) fn read(column: &Column, value: &[u8]) -> Result<Self> {
        let link = Plain::decode(value)?;
        Ok(Self(match column.link_base() {
            Some(base) => link.below(base),
            None => link,
        }))
    }
}

#[pymethods]
impl Link {
    #[new]
    #[pyo3(signature = (url, size, *, etag=None, hash=None, offset=None, length=None))]
    fn new(
        url: String,
        size: u64,
        etag: Option<String>,
        hash: Option<&str>,
        offset: Option<u64>,
        length: Option<u64>,
    ) -> Result<Self> {
        let part = match (offset, length) {
            (None, None) => None,
            (offset, length) => {
                let start = offset.unwrap_or(0);
                let length = length.unwrap_or(size.saturating_sub(start));
                Some(start..start.saturating_add(length))
            }
        };
        let parse = |text| Plain::parse_hash(text).ok_or_else(|| Error::argument("a hash has 64 hexadecimal digits"));
        let link = Plain { url, size, part, etag, hash: hash.map(parse).transpose()? };
        link.encode()?;
        Ok(Self(link))
    }

    fn __hash__(&self, py: Python<'_>) -> Result<isize> {
        Ok(PyBytes::new(py, &self.0.encode()?).hash()?)
    }

    /// Where the object is.
    #[getter]
    fn url(&self) -> &str {
        &self.0.url
    }

    /// The object's size in bytes.
    #[getter]
    fn size(&self) -> u64 {
        self.0.size
    }

    /// The object's etag, or None.
    #[getter]
    fn etag(&self) -> Option<&str> {
        self.0.etag.as_deref()
    }

    /// BLAKE3 of the linked bytes as 64 hexadecimal digits, or None.
    #[getter]
    fn hash(&self) -> Option<String> {
        self.0.hash_text()
    }

    /// Where the linked bytes begin in the object.
    #[getter]
    fn offset(&self) -> u64 {
        self.0.range().start
    }

    /// How many bytes are linked.
    #[getter]
    fn length(&self) -> u64 {
        let range = self.0.range();
        range.end - range.start
    }

    /// Its bytes in a column with this base.
    fn _encode(&self, base: Option<&str>) -> Result<Vec<u8>> {
        let link = self.0.clone();
        Ok(match base {
            Some(base) => link.relative_to(base),
            None => link,
        }
        .encode()?)
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> Result<((String, u64), Bound<'py, PyDict>)> {
        let named = PyDict::new(py);
        named.set_item("etag", self.etag())?;
        named.set_item("hash", self.hash())?;
        if self.0.part.is_some() {
            named.set_item("offset", self.offset())?;
            named.set_item("length", self.length())?;
        }
        Ok(((self.0.url.clone(), self.0.size), named))
    }

    fn __repr__(&self) -> String {
        let mut parts = vec![format!("{:?}", self.0.url), self.0.size.to_string()];
        parts.extend(self.0.etag.as_ref().map(|etag| format!("etag={etag:?}")));
        parts.extend(self.0.hash_text().map(|hash| format!("hash='{hash}'")));
        parts.extend(
            self.0.part.as_ref().map(|part| format!("offset={}, length={}", part.start, part.end - part.start)),
        );
        format!("Link({})", parts.join(", "))
    }
}

/// How many objects are read at once for their hashes.
const CONCURRENCY: usize = 16;

/// Links to all objects below a URL, by name.
#[pyfunction]
pub(crate) fn find_links(py: Python<'_>, url: &str, access: Access, hash: bool) -> Result<Vec<Link>> {
    let storage = access.open(url)?;
    block_on(py, || async {
        let storage = &storage;
        let links = stream::iter(storage.list("").await?).map(|entry| async move {
            let Entry { path, size, etag, .. } = entry;
            let mut link = Plain { url: path, size, part: None, etag, hash: None };
            if hash {
                let version = Version { size, etag: link.etag.clone() };
                let bytes = storage.get_ranges_of(&link.url, &version, &[0..size]).await?.concat();
                link.hash = Some(Plain::hash_of(&bytes));
            }
            let link = link.below(storage.url());
            link.encode()?;
            Ok::<_, Error>(Link(link))
        });
        links.buffered(CONCURRENCY).try_collect().await
    })
}

/// Lets a lake's links lead where its opener said that they may.
pub(crate) fn allow(access: &Access, lake: &Lake) -> Result<()> {
    let places = access.links.iter().map(|(url, options)| match options {
        Some(options) => Ok(Storage::open(url, &Options::from(options.clone()))?),
        None => Access { mirrors: Vec::new(), ..access.clone() }.open(url),
    });
    lake.allow_links(places.collect::<Result<Vec<Storage>>>()?);
    Ok(())
}

/// What the links of a column lead to, in rows of a table; None for nulls.
///
/// # Errors
/// Of the first broken link, with its row.
pub(crate) fn fetch(py: Python<'_>, table: &Table, column: &str, rows: &[u64]) -> Result<Vec<Option<Bytes>>> {
    let read = block_on(py, || table.take_linked(column, rows))?;
    let of_row = |(read, row): (Result<_, VersionError>, &u64)| {
        read.map_err(|error| LoaderError::Link { column: column.to_owned(), row: *row, source: Box::new(error) }.into())
    };
    read.into_iter().zip(rows).map(of_row).collect()
}

/// What the links of a column lead to, as rows of a column of bytes.
pub(crate) fn delivered(py: Python<'_>, table: &Table, column: &Column, rows: &[u64]) -> Result<(Column, ColumnData)> {
    let read = fetch(py, table, &column.name, rows)?;
    let (mut offsets, mut bytes, mut valid) = (vec![0], Vec::new(), vec![0_u8; rows.len().div_ceil(8)]);
    for (row, read) in read.iter().enumerate() {
        bytes.extend_from_slice(read.as_deref().unwrap_or_default());
        offsets.push(bytes.len() as u64);
        valid[row / 8] |= u8::from(read.is_some()) << (row % 8);
    }
    let values = OwnedValues::Ragged { offsets, shapes: Vec::new(), bytes };
    let validity = column.nullable.then_some(valid);
    let column = Column { dtype: DType::Bytes, ..column.clone() };
    Ok((column, ColumnData { rows: rows.len(), values, validity }))
}
