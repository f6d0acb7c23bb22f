//! Links: values that say where bytes lie which a lake doesn't hold, and how to tell that they are still the same.

use std::ops::Range;

use crate::{
    Error, Result,
    bytes::{array_at, u16_at, u64_at},
};

/// A value of a column of dtype [`Link`](crate::DType::Link).
///
/// The linked bytes are checked when they are read: the object's size always, its etag if there is one, and the hash of the
/// bytes if there is one. A link has at least one of the two.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Link {
    /// The object: a URL, an absolute path of a local file, or a name below the column's [base](crate::Column::link_base), which has
    /// neither a scheme nor a slash in front. Names are as stores have them, not percent-encoded.
    pub url: String,
    /// The size of the whole object in bytes.
    pub size: u64,
    /// The bytes of the object that are meant; all of them if `None`.
    pub part: Option<Range<u64>>,
    /// The version of the whole object, as its store names it, without quotes around it.
    pub etag: Option<String>,
    /// BLAKE3 of the linked bytes.
    pub hash: Option<[u8; 32]>,
}

const PART: u8 = 1;
const HASH: u8 = 2;
const ETAG: u8 = 4;

impl Link {
    /// The most bytes of a URL.
    pub const MAX_URL: usize = 4096;
    /// The most bytes of an etag.
    pub const MAX_ETAG: usize = 1024;

    /// Where the linked bytes are in the object.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.part.clone().unwrap_or(0..self.size)
    }

    /// BLAKE3 of bytes, as `hash` holds it.
    #[must_use]
    pub fn hash_of(bytes: &[u8]) -> [u8; 32] {
        *blake3::hash(bytes).as_bytes()
    }

    /// Its hash as 64 hexadecimal digits.
    #[must_use]
    pub fn hash_text(&self) -> Option<String> {
        self.hash.map(|hash| blake3::Hash::from_bytes(hash).to_string())
    }

    /// The hash that 64 hexadecimal digits are.
    #[must_use]
    pub fn parse_hash(text: &str) -> Option<[u8; 32]> {
        blake3::Hash::from_hex(text).ok().map(|hash| *hash.as_bytes())
    }

    /// Whether these may be the linked bytes: as many, and of its hash if it has one.
    #[must_use]
    pub fn fits(&self, bytes: &[u8]) -> bool {
        let range = self.range();
        bytes.len() as u64 == range.end - range.start && self.hash.is_none_or(|hash| hash == Self::hash_of(bytes))
    }

    /// The link with a whole URL: one whose `url` is a name is taken as lying below `base`.
    #[must_use]
    pub fn below(mut self, base: &str) -> Self {
        if is_name(&self.url) {
            self.url = format!("{}/{}", base.trim_end_matches('/'), self.url);
        }
        self
    }

    /// The link with the shortest URL: one that lies below `base` is a name. The inverse of [`below`](Self::below).
    #[must_use]
    pub fn relative_to(mut self, base: &str) -> Self {
        let name = self.url.strip_prefix(base.trim_end_matches('/')).and_then(|rest| rest.strip_prefix('/'));
        if let Some(name) = name.filter(|name| is_name(name) && check_name(name).is_ok()) {
            self.url = name.to_owned();
        }
        self
    }

    /// Its bytes in a column.
    ///
    /// # Errors
    /// [`Error::InvalidLink`] if a part breaks a rule: see `docs/format.md`.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.check().map_err(|reason| Error::InvalidLink { url: self.url.clone(), reason })?;
        let bit = |there: bool, bit: u8| if there { bit } else { 0 };
        let what = bit(self.part.is_some(), PART) | bit(self.hash.is_some(), HASH) | bit(self.etag.is_some(), ETAG);
        let mut bytes = vec![what];
        bytes.extend(self.size.to_le_bytes());
        if let Some(part) = &self.part {
            bytes.extend(part.start.to_le_bytes());
            bytes.extend((part.end - part.start).to_le_bytes());
        }
        bytes.extend(self.hash.iter().flatten());
        if let Some(etag) = &self.etag {
            bytes.extend((etag.len() as u16).to_le_bytes());
            bytes.extend(etag.as_bytes());
        }
        bytes.extend(self.url.as_bytes());
        Ok(bytes)
    }

    /// Reads one back.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with the place, if `bytes` break a rule.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let corrupt = |offset: usize, reason: &str| Error::Corrupt {
            what: "link".to_owned(),
            offset: offset as u64,
            reason: reason.to_owned(),
        };
        let mut at = 0;
        let mut take = |length: usize, what: &'static str| {
            let part = bytes[at..].get(..length).ok_or_else(|| corrupt(at, &format!("it ends in the {what}")))?;
            at += length;
            Ok::<_, Error>(part)
        };
        let what = take(1, "first byte")?[0];
        if what & !(PART | HASH | ETAG) != 0 {
            let needs = format!("what bits {:#x} of its first byte mean", what & !(PART | HASH | ETAG));
            return Err(Error::Unsupported { what: "link".to_owned(), needs });
        }
        let size = u64_at(take(8, "size")?, 0);
        let part = if what & PART != 0 {
            let part = take(16, "range")?;
            let (start, length) = (u64_at(part, 0), u64_at(part, 8));
            let end = start.checked_add(length).ok_or_else(|| corrupt(9, "its range ends past 2^64"))?;
            Some(start..end)
        } else {
            None
        };
        let hash = if what & HASH != 0 { Some(array_at(take(32, "hash")?, 0)) } else { None };
        let etag = if what & ETAG != 0 {
            let length = u16_at(take(2, "etag's length")?, 0);
            Some(text(take(length.into(), "etag")?).ok_or_else(|| corrupt(0, "its etag is not UTF-8"))?)
        } else {
            None
        };
        let url = text(&bytes[at..]).ok_or_else(|| corrupt(at, "its URL is not UTF-8"))?;
        let link = Self { url, size, part, etag, hash };
        link.check().map_err(|reason| corrupt(0, &reason))?;
        Ok(link)
    }

    /// What breaks a rule, if anything does.
    fn check(&self) -> Result<(), String> {
        if self.url.is_empty() || self.url.len() > Self::MAX_URL {
            return Err(format!("its URL has {} bytes; 1 to {} may be", self.url.len(), Self::MAX_URL));
        }
        if self.url.chars().any(char::is_control) {
            return Err("its URL has a control character".to_owned());
        }
        if is_name(&self.url) {
            check_name(&self.url)?;
        }
        if let Some(Range { start, end }) = self.part
            && (start > end || end > self.size)
        {
            return Err(format!("bytes {start}..{end} aren't in an object of {} bytes", self.size));
        }
        if let Some(etag) = &self.etag {
            if etag.is_empty() || etag.len() > Self::MAX_ETAG {
                return Err(format!("its etag has {} bytes; 1 to {} may be", etag.len(), Self::MAX_ETAG));
            }
            if !etag.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
                return Err("its etag has a character that isn't printable ASCII".to_owned());
            }
        }
        if self.etag.is_none() && self.hash.is_none() {
            return Err("it has neither etag nor hash, so nobody could tell whether the object changed".to_owned());
        }
        Ok(())
    }
}

/// Whether a link's URL is a name below its column's base.
pub(crate) fn is_name(url: &str) -> bool {
    !url.contains("://") && !url.starts_with('/')
}

/// A name leads nowhere but down.
fn check_name(name: &str) -> Result<(), String> {
    match name.split('/').find(|part| matches!(*part, "" | "." | "..")) {
        Some(part) => Err(format!("'{name}' is no name below a base: it has a part '{part}'")),
        None => Ok(()),
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}
