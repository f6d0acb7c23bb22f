//! Records of rows that were erased.

use super::{
    DataFileRef, KIND_PURGE,
    decode::{data_file as read_file, id, list, payload, row_set as read_rows},
    encode::{Builder, data_file, finish, list as write_list, row_set},
};
use crate::{FileId, FragmentId, PurgeId, Result, RowSet, TableId, generated::meta as fb};

/// Rows that were erased from all versions of a table, `purges/<id>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purge {
    /// Its identity.
    pub id: PurgeId,
    /// The table.
    pub table: TableId,
    /// Who did it.
    pub author: String,
    /// Why.
    pub reason: String,
    /// When, in microseconds since 1970 UTC, by the writer's clock.
    pub time: i64,
    /// How many rows, as they were asked for.
    pub rows: u64,
    /// The rows of fragments that no version shows.
    pub hidden: Vec<(FragmentId, RowSet)>,
    /// Files, each with the one that is read in its place.
    pub files: Vec<(FileId, DataFileRef)>,
}

impl Purge {
    /// Its bytes.
    ///
    /// # Errors
    /// [`Limit`](crate::Error::Limit) if they are more than 16 MiB.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut b = Builder::new();
        let hidden = write_list(&mut b, &self.hidden, |b, (fragment, rows)| {
            let (fragment, rows) = (Some(b.create_vector(fragment.as_bytes())), Some(row_set(b, rows)));
            fb::HiddenRows::create(b, &fb::HiddenRowsArgs { fragment, rows })
        });
        let files = write_list(&mut b, &self.files, |b, (old, file)| {
            let (old, file) = (Some(b.create_vector(old.as_bytes())), Some(data_file(b, file)));
            fb::ReplacedFile::create(b, &fb::ReplacedFileArgs { old, file })
        });
        let args = fb::PurgeArgs {
            id: Some(b.create_vector(self.id.as_bytes())),
            table: Some(b.create_vector(self.table.as_bytes())),
            author: Some(b.create_string(&self.author)),
            reason: Some(b.create_string(&self.reason)),
            time: self.time,
            rows: self.rows,
            hidden,
            files,
        };
        let root = fb::Purge::create(&mut b, &args);
        finish("purge", KIND_PURGE, 0, b, root)
    }

    /// The purge that `bytes` are.
    ///
    /// # Errors
    /// [`Corrupt`](crate::Error::Corrupt), [`Checksum`](crate::Error::Checksum), [`Unsupported`](crate::Error::Unsupported)
    /// or [`Limit`](crate::Error::Limit).
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let what = "purge";
        let purge = payload::<fb::Purge<'_>>(what, KIND_PURGE, bytes)?;
        let hidden = |item: fb::HiddenRows<'_>| Ok((id(what, item.fragment())?, read_rows(what, Some(item.rows()))?));
        let replaced = |item: fb::ReplacedFile<'_>| Ok((id(what, item.old())?, read_file(what, item.file())?));
        Ok(Self {
            id: id(what, purge.id())?,
            table: id(what, purge.table())?,
            author: purge.author().to_owned(),
            reason: purge.reason().to_owned(),
            time: purge.time(),
            rows: purge.rows(),
            hidden: list(purge.hidden(), hidden)?,
            files: list(purge.files(), replaced)?,
        })
    }
}
