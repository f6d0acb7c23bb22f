//! Every byte of a data file.

use std::ops::RangeInclusive;

use forebay_format::{Error as FormatError, FileIndex, meta::DataFileRef};
use forebay_storage::Storage;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::{Error, Fault, Result, names};

/// Chunks that are read at once: checking one hides the latency of the next ones.
const AHEAD: usize = 4;

/// Reads and checks all bytes of a data file, which must have so many rows; calls `progress` with the bytes read.
///
/// # Errors
/// What the store reports, and [`Error::Object`] when the index itself is damaged.
pub(crate) async fn file(
    storage: &Storage,
    file: &DataFileRef,
    rows: &RangeInclusive<u32>,
    mut progress: impl FnMut(u64),
) -> Result<Vec<Fault>> {
    let path = names::data(file.id);
    let mut faults = Vec::new();
    let mut fault = |reason: String| faults.push(Fault { path: path.clone(), reason });
    let size = storage.head(&path).await?.size;
    if size != file.size {
        fault(format!("it has {size} bytes, the manifest says {}", file.size));
        return Ok(faults);
    }
    let tail = storage.get_range(&path, file.index_offset..file.size).await?;
    let index = FileIndex::parse(&tail, file).map_err(Error::object(&path))?;
    if !rows.contains(&index.rows()) {
        fault(format!("it has {} rows, the manifest says {}", index.rows(), rows.start()));
    }
    let mut read = stream::iter(index.sections())
        .map(|section| async {
            let bytes = storage.get_range(&path, section.range.clone()).await?;
            Ok::<_, Error>((section, bytes))
        })
        .buffered(AHEAD);
    while let Some((section, bytes)) = read.try_next().await? {
        let checked: Result<(), FormatError> = index.check_section(&section, &bytes);
        if let Err(error) = checked {
            fault(error.to_string());
        }
        progress(section.range.end - section.range.start);
    }
    Ok(faults)
}
