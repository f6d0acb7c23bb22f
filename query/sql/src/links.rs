//! Links in SQL: JSON documents `{"url", "size", "offset", "length", "etag", "hash"}`, of which the middle two are there for a
//! part of an object, and the last two if the link has them. What a link leads to is nothing that SQL sees.

use arrow::{array::LargeStringArray, buffer::NullBuffer};
use forebay_format::{Column, Link};
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// A link as SQL shows it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    url: String,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    /// Hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
}

/// The links of a column as documents.
///
/// # Errors
/// [`Error::Value`] for bytes that are no link.
pub(crate) fn shown(
    column: &Column,
    offsets: &[i64],
    bytes: &[u8],
    nulls: Option<&NullBuffer>,
) -> Result<LargeStringArray> {
    let rows = offsets.windows(2).enumerate().map(|(row, ends)| {
        if nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return Ok(None);
        }
        let link =
            Link::decode(&bytes[ends[0] as usize..ends[1] as usize]).map_err(|error| wrong(column, row, error))?;
        let link = column.link_base().map_or(link.clone(), |base| link.below(base));
        let document = Document {
            offset: link.part.as_ref().map(|part| part.start),
            length: link.part.as_ref().map(|part| part.end - part.start),
            hash: link.hash_text(),
            url: link.url,
            size: link.size,
            etag: link.etag,
        };
        Ok(Some(serde_json::to_string(&document).map_err(|error| wrong(column, row, error))?))
    });
    rows.collect()
}

/// A document as a column of links holds it.
///
/// # Errors
/// [`Error::Value`] for a text that is no such document, or no link.
pub(crate) fn cell(column: &Column, row: usize, text: &str) -> Result<Vec<u8>> {
    let document: Document = serde_json::from_str(text).map_err(|error| wrong(column, row, error))?;
    let part = match (document.offset, document.length) {
        (None, None) => None,
        (Some(offset), Some(length)) => Some(offset..offset.saturating_add(length)),
        _ => return Err(wrong(column, row, "offset and length come together")),
    };
    let parse = |text| Link::parse_hash(text).ok_or_else(|| wrong(column, row, "a hash has 64 hexadecimal digits"));
    let hash = document.hash.as_deref().map(parse);
    let link = Link { url: document.url, size: document.size, part, etag: document.etag, hash: hash.transpose()? };
    let link = column.link_base().map_or(link.clone(), |base| link.relative_to(base));
    link.encode().map_err(|error| wrong(column, row, error))
}

fn wrong(column: &Column, row: usize, reason: impl std::fmt::Display) -> Error {
    Error::Value { column: column.name.clone(), reason: format!("row {row} is no link: {reason}") }
}
