//! Columns that a version lacks and the merged table has: what counts as their values, though a file may still hold others from
//! before they were dropped.

use std::collections::BTreeSet;

use forebay_format::{
    Column, ColumnData, FragmentId, RowSet,
    meta::{DataFileRef, Fragment},
};

use super::{component::Merge, has};
use crate::{
    Result,
    read::empty,
    values::{Version, nothing},
};

impl Merge<'_> {
    /// Whether fragments of a side without a column may not show the values that the other side has for it: they were
    /// compacted without it, or hold some from before it was dropped, which no row shows that only this side has.
    pub(super) fn lacks(
        &self,
        (version, fragments): (&Version, &[Fragment]),
        (other, others): (&Version, &[Fragment]),
    ) -> bool {
        let files = |fragments: &[Fragment], field| -> Vec<_> {
            let of = |fragment: &Fragment| -> Vec<_> {
                let files = fragment.all_files().filter(|file| file.fields.contains(&field));
                files.map(|file| (fragment.id, file.id)).collect()
            };
            fragments.iter().flat_map(of).collect()
        };
        let fields = self.root.schema.columns.iter().map(|column| column.field);
        let mut fields = fields.filter(|field| version.column(*field).is_none() && other.column(*field).is_some());
        let rows = |fragment: &Fragment| (fragment.id, fragment.deleted.clone());
        let same_rows = fragments.iter().map(rows).eq(others.iter().map(rows));
        fields.any(|field| {
            let held = files(fragments, field);
            held != files(others, field) || !held.is_empty() && !same_rows
        })
    }

    /// Whether fragments of the base hold values of a column that was dropped there and that both sides have.
    pub(super) fn left(&self, fragments: &[Fragment]) -> bool {
        let fields = self.root.schema.columns.iter().map(|column| column.field);
        let both = |field| [self.ours, self.theirs].iter().all(|side| side.column(field).is_some());
        let mut back = fields.filter(|field| self.base.column(*field).is_none() && both(*field));
        back.any(|field| fragments.iter().any(|fragment| has(fragment.all_files(), field)))
    }

    /// Which rows of a leaf have a known value of a column at the base, and these. Where the base lacks the column, its default
    /// counts as what was there: a side that has the column and wrote nothing in it changed nothing.
    pub(super) async fn at_base(
        &self,
        column: &Column,
        leaf: FragmentId,
        rows: &RowSet,
    ) -> Result<(RowSet, ColumnData)> {
        let known = self.base.side.leaf(leaf).iter().fold(RowSet::new(), |all, piece| all.union(&piece.rows));
        let known = known.intersect(rows);
        if self.base.column(column.field).is_some() {
            let values = self.base.values(column, leaf, &known).await?;
            return Ok((known, values));
        }
        if has(&self.root.defaults, column.field) {
            let base = self.at_defaults(self.carriers(self.base, leaf), &[column]).await?;
            let values = base.values(column, leaf, &known).await?;
            return Ok((known, values));
        }
        if column.nullable {
            let nulls = nothing(column).take(&vec![0; known.len() as usize]);
            return Ok((known, nulls));
        }
        Ok((RowSet::new(), empty(column)))
    }

    /// The fragments of a version that carry rows of a leaf.
    pub(super) fn carriers(&self, version: &Version, leaf: FragmentId) -> Vec<Fragment> {
        let carriers: BTreeSet<usize> = version.side.leaf(leaf).iter().map(|piece| piece.carrier).collect();
        carriers.into_iter().map(|carrier| version.side.fragments[carrier].clone()).collect()
    }

    /// Columns of the merged table that a version lacks and that have a default.
    pub(super) fn lacking(&self, version: &Version) -> Vec<&Column> {
        let lacking = self.root.schema.columns.iter().filter(|column| version.column(column.field).is_none());
        lacking.filter(|new| has(&self.root.defaults, new.field)).collect()
    }

    /// Fragments of a version that lacks some columns, which have their defaults there: also where a value is left in a file.
    pub(super) async fn at_defaults(&self, mut fragments: Vec<Fragment>, lacking: &[&Column]) -> Result<Version> {
        let left = |file: &DataFileRef| lacking.iter().any(|column| file.fields.contains(&column.field));
        for fragment in &mut fragments {
            fragment.files.retain(|file| !left(file));
            fragment.overlays.retain(|overlay| !left(&overlay.file));
        }
        Version::load(self.snapshot, self.root.clone(), fragments).await
    }
}
