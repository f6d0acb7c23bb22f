//! The tables that an epoch reads, their rows and files numbered through.

use std::sync::{Arc, OnceLock};

use forebay_format::FieldId;
use forebay_versioning::{Location, Rows, Selection, Table};

use crate::{Error, Result};

/// Selections, one behind the other.
#[derive(Clone, Debug)]
pub(crate) struct Sources {
    list: Vec<Source>,
    rows: u64,
    files: usize,
}

#[derive(Clone, Debug)]
struct Source {
    selection: Selection,
    /// Of each column that is delivered.
    fields: Vec<FieldId>,
    first_row: u64,
    /// The first of its table's fragments, overlays and defaults.
    first_file: usize,
    /// The fragments that it has rows of, once that was asked.
    touched: Arc<OnceLock<Vec<usize>>>,
}

/// Where a row is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    pub(crate) source: u32,
    /// Its number in its table.
    pub(crate) row: u64,
    location: Location,
}

impl Sources {
    /// Selections, and the columns of each that are delivered, in order.
    pub(crate) fn new(selections: Vec<(Selection, Vec<FieldId>)>) -> Self {
        let (mut rows, mut files) = (0, 0);
        let list = selections.into_iter().map(|(selection, fields)| {
            let source = Source { fields, first_row: rows, first_file: files, selection, touched: Arc::default() };
            rows += source.selection.len();
            files += source.selection.table().sources();
            source
        });
        Self { list: list.collect(), rows, files }
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Rows of all of them.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Fragments, overlays and defaults of all of them.
    pub(crate) fn files(&self) -> usize {
        self.files
    }

    pub(crate) fn selections(&self) -> impl ExactSizeIterator<Item = &Selection> + Clone {
        self.list.iter().map(|source| &source.selection)
    }

    /// A selection.
    pub(crate) fn selection(&self, source: u32) -> &Selection {
        &self.list[source as usize].selection
    }

    /// Where a row of them all is.
    pub(crate) fn spot(&self, index: u64) -> Result<Spot> {
        let number = self.list.partition_point(|source| source.first_row <= index).saturating_sub(1);
        let source = &self.list[number];
        let row = source.selection.row(index - source.first_row)?;
        Ok(Spot { source: number as u32, row, location: source.selection.table().locate(row)? })
    }

    /// Where a row is, and so the value of each column of it if all are plain; fragments are numbered through.
    pub(crate) fn place(&self, spot: &Spot) -> Location {
        let first = self.list[spot.source as usize].first_file;
        Location { fragment: first + spot.location.fragment, row: spot.location.row }
    }

    /// The fragments that there are rows of, numbered through, if each holds the values of all delivered columns itself.
    pub(crate) fn plain(&self) -> Option<Vec<usize>> {
        let mut all = Vec::new();
        for source in &self.list {
            let table = source.selection.table();
            let touched = source.touched.get_or_init(|| touched(&source.selection));
            let plain = |fragment: &usize| source.fields.iter().all(|field| table.is_plain(*fragment, *field));
            if !touched.iter().all(plain) {
                return None;
            }
            all.extend(touched.iter().map(|fragment| source.first_file + fragment));
        }
        Some(all)
    }

    /// Where the value of a column in a row is; fragments are numbered through.
    pub(crate) fn cell(&self, column: usize, spot: &Spot) -> Location {
        let source = &self.list[spot.source as usize];
        let cell = source.selection.table().cell(spot.location, source.fields[column]);
        Location { fragment: source.first_file + cell.fragment, row: cell.row }
    }

    /// The table that has a fragment, overlay or default, and its number there; the field of a column in that table.
    pub(crate) fn file(&self, number: usize, column: usize) -> Result<(&Table, usize, FieldId)> {
        let at = self.list.partition_point(|source| source.first_file <= number);
        let source = at.checked_sub(1).and_then(|at| self.list.get(at)).ok_or(Error::Died { thread: "feeder" })?;
        Ok((source.selection.table(), number - source.first_file, source.fields[column]))
    }
}

/// The fragments that a selection has rows of.
fn touched(selection: &Selection) -> Vec<usize> {
    let table = selection.table();
    let fragment = |row: u64| table.locate(row).map(|location| location.fragment);
    let mut marked = vec![false; table.fragments().len()];
    match selection.rows() {
        Rows::All => {
            for (number, marked) in marked.iter_mut().enumerate() {
                *marked = table.first_row(number) < table.first_row(number + 1);
            }
        }
        Rows::Runs(runs) => {
            for run in runs.iter() {
                // A selection's rows are rows of its table.
                if let (Ok(first), Ok(last)) = (fragment(run.start), fragment(run.end - 1)) {
                    marked[first..=last].fill(true);
                }
            }
        }
        Rows::List(list) => list.iter().filter_map(|row| fragment(*row).ok()).for_each(|number| marked[number] = true),
    }
    (0..marked.len()).filter(|number| marked[*number]).collect()
}
