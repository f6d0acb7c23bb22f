//! Every byte of a data file.

use forebay_format::meta::DataFileRef;
use forebay_storage::Storage;

use crate::{Fault, Result};

pub(crate) async fn file(
    _storage: &Storage,
    _file: &DataFileRef,
    _rows: u32,
    _progress: impl FnMut(u64),
) -> Result<Vec<Fault>> {
    Ok(Vec::new())
}
