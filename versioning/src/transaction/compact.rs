//! Fragments written anew: edits folded in, small ones joined.

use forebay_format::{
    ColumnData, ColumnSlice, RowSet,
    meta::{Fragment, Origin, Origins},
};

use super::Transaction;
use crate::{Error, Result, Table, TableWriter, manifest, values, values::Version};

/// What is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactOptions {
    /// Neighbours of which each has fewer bytes are joined, 64 MiB by default.
    pub small_bytes: u64,
    /// The size at which a file is full, 1 GiB by default.
    pub file_bytes: u64,
}

impl Default for CompactOptions {
    fn default() -> Self {
        Self { small_bytes: 64 << 20, file_bytes: 1 << 30 }
    }
}

impl CompactOptions {
    /// These options with another size below which fragments are joined.
    #[must_use]
    pub fn with_small_bytes(mut self, bytes: u64) -> Self {
        self.small_bytes = bytes;
        self
    }

    /// These options with another size of files.
    #[must_use]
    pub fn with_file_bytes(mut self, bytes: u64) -> Self {
        self.file_bytes = bytes.max(1);
        self
    }
}

/// Bytes of rows that are in memory at once.
const BATCH_BYTES: u64 = 16 << 20;

impl Transaction {
    /// Writes fragments of a table of the base anew: those with deleted or updated rows, those whose columns lie in several
    /// files, and small neighbours, joined. Rows, their order and values stay; what others change meanwhile is put on top.
    /// Gives how many fragments were replaced.
    ///
    /// # Errors
    /// [`Error::Misuse`] if this transaction changed the table otherwise; what reading and writing reports.
    pub async fn compact(&mut self, table: &Table, options: CompactOptions) -> Result<u64> {
        let work = self.work(table)?;
        if !work.is_empty() {
            let reason = format!("table '{}' was changed by this transaction: commit that first", table.name());
            return Err(Error::Misuse { reason });
        }
        let mut replaced = 0;
        for group in groups(table, options) {
            let after = self.rewrite(table, &group, options).await?;
            let work = self.work(table)?;
            let ids: Vec<_> = group.iter().map(|number| table.fragments()[*number].id).collect();
            work.edits.extend(ids[1..].iter().map(|id| (*id, Vec::new())));
            work.edits.insert(ids[0], after);
            work.compacted = true;
            replaced += ids.len() as u64;
        }
        Ok(replaced)
    }

    /// The rows of some neighbours as new fragments.
    async fn rewrite(&self, table: &Table, group: &[usize], options: CompactOptions) -> Result<Vec<Fragment>> {
        let before: Vec<Fragment> = group.iter().map(|number| table.fragments()[*number].clone()).collect();
        let version = Version::load(table.snapshot(), table.root().clone(), before).await?;
        let mut writer = self.writer(table.name()).await?.with_file_bytes(options.file_bytes);
        let mut origins = Vec::new();
        let batch = (BATCH_BYTES / table.mean_row_bytes()).clamp(1, u64::from(u32::MAX)) as u32;
        for carrier in 0..group.len() {
            let fragment = &version.side.fragments[carrier];
            let live = fragment.deleted.complement(fragment.rows);
            origins.extend(version.side.origins_of(carrier, &live));
            let mut from = 0;
            while from < live.len() {
                let rows = live.select(&RowSet::range(from..from.saturating_add(batch)));
                let mut data = Vec::with_capacity(table.schema().columns.len());
                for column in &table.schema().columns {
                    data.push(version.carried(column, carrier, &rows).await?);
                }
                writer = push(writer, data).await?;
                from += rows.len();
            }
        }
        let written = values::blocking(move || writer.finish()).await?;
        let mut fragments = Vec::with_capacity(written.fragments.len());
        let mut origins = origins.into_iter().peekable();
        let mut used = 0;
        for mut fragment in written.fragments {
            // The origins of this fragment's rows; the last one may go on in the next.
            let (mut own, mut left) = (Vec::new(), fragment.rows);
            while let Some(origin) = origins.peek() {
                let rest = origin.rows.len() - used;
                if left == 0 && rest > 0 {
                    break;
                }
                let taken = rest.min(left);
                own.push(part(origin, used..used + taken));
                (left, used) = (left - taken, used + taken);
                if taken == rest {
                    origins.next();
                    used = 0;
                }
            }
            let origins = manifest::write_origins(&self.lake, &Origins { origins: own }).await?;
            fragment.origins = Some(Box::new(origins));
            fragments.push(fragment);
        }
        Ok(fragments)
    }
}

/// Some rows of an origin, by their places.
fn part(origin: &Origin, places: std::ops::Range<u32>) -> Origin {
    let rows = origin.rows.select(&RowSet::range(places));
    let edits = origin.edits.iter().cloned();
    let edits = edits.map(|edit| forebay_format::meta::Edit { rows: edit.rows.intersect(&rows), ..edit });
    let edits = edits.filter(|edit| !edit.rows.is_empty()).collect();
    Origin { fragment: origin.fragment, rows, edits }
}

async fn push(mut writer: TableWriter, data: Vec<ColumnData>) -> Result<TableWriter> {
    values::blocking(move || {
        let slices: Vec<ColumnSlice<'_>> = data.iter().map(ColumnData::as_slice).collect();
        writer.push(&slices)?;
        Ok(writer)
    })
    .await
}

/// Runs of fragments to be written anew.
fn groups(table: &Table, options: CompactOptions) -> Vec<Vec<usize>> {
    let mut groups = Vec::new();
    let (mut group, mut bytes): (Vec<usize>, u64) = (Vec::new(), 0);
    let edited = |number: &usize| {
        let fragment = &table.fragments()[*number];
        let columns = &table.schema().columns;
        !fragment.deleted.is_empty()
            || !fragment.overlays.is_empty()
            || fragment.files.len() > 1
            || columns.iter().any(|column| !table.is_plain(*number, column.field))
    };
    let mut close = |group: &mut Vec<usize>| {
        let group = std::mem::take(group);
        let rows: u64 = group.iter().map(|number| u64::from(table.fragments()[*number].live())).sum();
        // Without rows there is nothing to be written that could say where they came from.
        if rows > 0 && (group.len() > 1 || group.iter().any(edited)) {
            groups.push(group);
        }
    };
    for (number, fragment) in table.fragments().iter().enumerate() {
        let size: u64 = fragment.files.iter().map(|file| file.size).sum();
        if bytes + size > options.file_bytes {
            close(&mut group);
            bytes = 0;
        }
        if size < options.small_bytes || edited(&number) {
            group.push(number);
            bytes += size;
        } else {
            close(&mut group);
            bytes = 0;
        }
    }
    close(&mut group);
    groups
}
