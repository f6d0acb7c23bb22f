//! What comes in the place of rows that are at fault.

use std::sync::Arc;

use forebay_format::{ColumnData, Layout, OwnedValues};
use forebay_versioning::{Selection, Verify};

use super::{
    JobColumn,
    builder::{Builder, Cause, Held, Place, Planned},
};
use crate::{
    Error, Fault, OnFault, Remedy, Result, RowsOf,
    device::{ArenaBuffer, ArenaRegion},
    finish,
    order::Key,
};

/// How many rows are tried in the place of one at fault.
const CANDIDATES: u64 = 16;

/// A buffer of zeros, its length, and the shape of a row in it.
type Zeros = (Arc<ArenaRegion>, usize, Vec<u32>);

impl Builder {
    /// Deals with rows that didn't arrive because they are at fault.
    pub(super) fn mend_failed(&self, planned: &mut Planned, faults: &mut Vec<Fault>) -> Result<(), Cause> {
        for row in 0..planned.positions.len() {
            let mut causes = Vec::new();
            for (number, places) in planned.columns.iter().enumerate() {
                let cause = match &places.rows[row] {
                    Place::Failed(failure) => failure.cause().map(ToString::to_string),
                    place => place
                        .slots()
                        .find_map(|slot| slot.get().err())
                        .and_then(|failure| failure.cause().map(ToString::to_string)),
                };
                causes.extend(cause.map(|cause| (number, cause)));
            }
            if !causes.is_empty() {
                self.mend(planned, row, &causes, faults)?;
            }
        }
        Ok(())
    }

    /// Deals with rows of mapped files that are at fault. Gives whether there were any.
    pub(super) fn mend_mapped(&self, planned: &mut Planned, faults: &mut Vec<Fault>) -> Result<bool, Cause> {
        let verify = match self.job.options.verify {
            Verify::Never => Verify::First,
            verify => verify,
        };
        let before = faults.len();
        for row in 0..planned.positions.len() {
            let mut causes = Vec::new();
            for (number, places) in planned.columns.iter().enumerate() {
                let Place::Mapped { file, row } = &places.rows[row] else { continue };
                let (file, position) = &places.files[*file as usize];
                let rows = *row..*row + 1;
                if let Err(error) = file.verify_rows(*position, rows.clone(), verify) {
                    let error = Error::Read {
                        column: self.job.columns[number].name.to_string(),
                        rows: RowsOf { path: file.path().to_owned(), rows },
                        source: Box::new(error),
                    };
                    if !error.is_of_row() {
                        return Err(error.into());
                    }
                    causes.push((number, error.to_string()));
                }
            }
            if !causes.is_empty() {
                self.mend(planned, row, &causes, faults)?;
            }
        }
        Ok(faults.len() > before)
    }

    /// Puts something else in the place of a row of a batch, whose values in some columns are at fault.
    pub(super) fn mend(
        &self,
        planned: &mut Planned,
        row: usize,
        causes: &[(usize, String)],
        faults: &mut Vec<Fault>,
    ) -> Result<(), Cause> {
        let (position, number) = (planned.positions[row], planned.rows[row]);
        let source = planned.sources[row];
        let commit = self.job.sources.selection(source).table().snapshot().id().to_string();
        let remedy = match self.job.options.faults.on_fault {
            OnFault::Substitute => {
                let (by, held) = self.substitute(source, position, causes)?;
                for (places, held) in planned.columns.iter_mut().zip(held) {
                    places.rows[row] = Place::Held(held);
                }
                planned.rows[row] = by;
                Remedy::Replaced { by }
            }
            _ => {
                for places in &mut planned.columns {
                    places.rows[row] = Place::Masked;
                }
                planned.mask[row] = false;
                Remedy::Masked
            }
        };
        faults.extend(causes.iter().map(|(column, cause)| Fault {
            commit: commit.clone(),
            position,
            row: number,
            column: self.job.columns[*column].name.to_string(),
            cause: cause.clone(),
            remedy,
        }));
        Ok(())
    }

    /// A row of the same source that is whole, drawn from the position of the one that isn't.
    fn substitute(&self, source: u32, position: u64, causes: &[(usize, String)]) -> Result<(u64, Vec<Held>), Cause> {
        let seed = self.job.course.sample_seed(position);
        let selection = self.job.sources.selection(source);
        for candidate in 0..CANDIDATES {
            let drawn = Key::new("forebay 2026 substitutes", &[seed, candidate]).drawn();
            let row = selection.row(drawn % selection.len()).map_err(Error::from)?;
            match self.hold(selection, row, position) {
                Ok(held) => return Ok((row, held)),
                Err(error) if error.is_of_row() => {}
                Err(error) => return Err(error.into()),
            }
        }
        let cause = causes.first().map_or("", |(_, cause)| cause);
        let reason =
            format!("none of {CANDIDATES} rows that were tried in the place of one at fault is whole; {cause}");
        Err(Error::Device { reason }.into())
    }

    /// Reads all columns of a row, here and now, for a position of the epoch.
    fn hold(&self, selection: &Selection, row: u64, position: u64) -> Result<Vec<Held>> {
        let runtime = forebay_storage::runtime()?;
        let table = selection.table();
        self.job
            .columns
            .iter()
            .map(|column| {
                let mut held = if column.linked {
                    let read = runtime.block_on(table.take_linked(&column.name, &[row]))?.pop().unwrap_or(Ok(None));
                    let name = || column.name.to_string();
                    let read = read.map_err(|error| Error::Link { column: name(), row, source: Box::new(error) })?;
                    let bytes = read.as_deref().unwrap_or_default();
                    let region = self.buffer(bytes.len(), |buffer| buffer.copy_from_slice(bytes))?;
                    Held { region, at: 0, length: bytes.len(), shape: Vec::new(), valid: read.is_some(), window: None }
                } else {
                    self.held(column, runtime.block_on(table.take(&column.name, &[row]))?)?
                };
                if let Some(pixels) = column.pixels
                    && held.valid
                {
                    held = self.pixels(held.bytes(), column, pixels, position)?;
                }
                if let Some(finish) = &column.finish
                    && finish.size().is_none()
                    && held.window.is_none()
                {
                    finish.window(0, finish.size_of(&held.shape))?;
                }
                Ok(held)
            })
            .collect()
    }

    fn held(&self, column: &JobColumn, read: ColumnData) -> Result<Held> {
        let valid = !column.column.nullable || read.validity.as_deref().is_none_or(|bits| bits[0] & 1 == 1);
        let (bytes, shape) = match read.values {
            OwnedValues::Fixed(bytes) => (bytes, Vec::new()),
            OwnedValues::Ragged { shapes, bytes, .. } => (bytes, shapes),
        };
        let region = self.buffer(bytes.len(), |buffer| buffer.copy_from_slice(&bytes))?;
        Ok(Held { region, at: 0, length: bytes.len(), shape, valid, window: None })
    }

    /// A masked row of a column; `None` if it has no bytes.
    pub(super) fn zeros(&self, column: &JobColumn) -> Result<Option<Zeros>> {
        let (length, shape) = match (column.column.layout(), &column.finish) {
            (Layout::Fixed { row_bytes }, _) => (row_bytes, Vec::new()),
            (Layout::Ragged { .. }, None) => return Ok(None),
            (Layout::Ragged { .. }, Some(finish)) => {
                // Black pixels, as many as are asked for, so that any crop fits.
                let [height, width] = finish.out_size();
                let channels = finish.channels();
                let shape = match (column.column.shape.len(), finish.input()) {
                    (2, _) => vec![height, width],
                    (_, finish::Layout::Planar) => vec![channels, height, width],
                    (_, finish::Layout::Interleaved) => vec![height, width, channels],
                };
                (shape.iter().map(|length| *length as usize).product(), shape)
            }
        };
        Ok(Some((self.buffer(length, |buffer| buffer.fill(0))?, length, shape)))
    }

    /// An arena buffer beside the budget: there are few of them, and no batch without.
    pub(super) fn buffer(&self, length: usize, fill: impl FnOnce(&mut [u8])) -> Result<Arc<ArenaRegion>> {
        let mut buffer = self.job.device.arena(length)?;
        fill(buffer.bytes_mut());
        Ok(self.region(buffer))
    }

    /// A buffer, accounted for.
    pub(super) fn region(&self, buffer: Box<dyn ArenaBuffer>) -> Arc<ArenaRegion> {
        let _reservation = self.shared.ledger.overdraw(buffer.bytes().len() as u64);
        Arc::new(ArenaRegion { buffer, _reservation })
    }
}
