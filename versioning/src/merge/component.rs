//! Fragments that are connected by their rows, merged.

use std::collections::{BTreeMap, HashSet};

use forebay_format::{
    Column, ColumnData, FieldId, FragmentId, RowSet,
    meta::{Fragment, TableRoot},
};

use super::{
    has,
    policy::{Choice, Clash, Conflict, ConflictKind, MergeSide, Policy},
};
use crate::{
    Lake, Result, RowId, Snapshot,
    leaf::{self, Cells, Side},
    read::empty,
    values::{Patch, Version, equal},
};

/// What is merged: a table at the base, on our side and on theirs.
pub(crate) struct Merge<'a> {
    pub(crate) lake: &'a Lake,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) table: &'a str,
    pub(crate) base: &'a Version,
    pub(crate) ours: &'a Version,
    pub(crate) theirs: &'a Version,
    /// The merged table's columns.
    pub(crate) root: &'a TableRoot,
    pub(crate) policy: &'a Policy,
    /// Whether to write nothing: conflicts are found all the same.
    pub(crate) dry: bool,
}

/// What became of a component: `fragments` take the place of ours.
pub(crate) struct Outcome {
    pub(crate) fragments: Vec<Fragment>,
    pub(crate) conflicts: Vec<Conflict>,
}

/// A start carrier on its way.
struct Work {
    fragment: Fragment,
    patch: Patch,
    /// Whether the other side's new overlays were put on as they are, so that its values are on top.
    attached: bool,
}

/// Rows to be added that the start side doesn't carry: by the other side's carrier.
type Extras = BTreeMap<usize, RowSet>;

/// Conflicts of a component, before they are listed.
#[derive(Default)]
struct Found {
    cells: BTreeMap<FieldId, Vec<RowId>>,
    /// By whether they were deleted on their side.
    rows: BTreeMap<bool, (Vec<RowId>, HashSet<String>)>,
}

impl Merge<'_> {
    /// Merges the fragments with ids in `ids`, of which ours, theirs or both differ from the base.
    pub(crate) async fn component(&self, ids: &[FragmentId]) -> Result<Outcome> {
        let ids: HashSet<FragmentId> = ids.iter().copied().collect();
        let own = |version: &Version| -> Vec<usize> {
            let fragments = version.side.fragments.iter().enumerate();
            fragments.filter(|(_, fragment)| ids.contains(&fragment.id)).map(|(number, _)| number).collect()
        };
        let of = |version: &Version, carriers: &[usize]| -> Vec<Fragment> {
            carriers.iter().map(|number| version.side.fragments[*number].clone()).collect()
        };
        let (base, ours, theirs) = (own(self.base), own(self.ours), own(self.theirs));
        let names = |fragments: &[Fragment]| fragments.iter().map(|fragment| fragment.id).collect::<Vec<_>>();
        let (base, our, their) = (of(self.base, &base), of(self.ours, &ours), of(self.theirs, &theirs));
        let left = self.left(&base);
        if our == their || their == base && !left && !self.lacks((self.ours, &our), (self.theirs, &their)) {
            return Ok(Outcome { fragments: our, conflicts: Vec::new() });
        }
        if our == base && !left && !self.lacks((self.theirs, &their), (self.ours, &our)) {
            return Ok(Outcome { fragments: their, conflicts: Vec::new() });
        }
        // A compaction of one side is kept, and the other side's changes are put on it.
        let swap = names(&our) == names(&base) && names(&their) != names(&base);
        let (start, delta, side, carriers) = if swap {
            (self.theirs, self.ours, MergeSide::Theirs, theirs)
        } else {
            (self.ours, self.theirs, MergeSide::Ours, ours)
        };
        Component { merge: self, start, delta, side, found: Found::default() }.run(&ids, carriers).await
    }
}

struct Component<'a> {
    merge: &'a Merge<'a>,
    start: &'a Version,
    delta: &'a Version,
    /// Which side the start is.
    side: MergeSide,
    found: Found,
}

impl Component<'_> {
    async fn run(mut self, ids: &HashSet<FragmentId>, carriers: Vec<usize>) -> Result<Outcome> {
        let mut works: BTreeMap<usize, Work> = carriers.iter().map(|carrier| (*carrier, self.work(*carrier))).collect();
        let mut leaves: Vec<FragmentId> = ids.iter().copied().collect();
        leaves.sort_unstable();
        let mut extras = Extras::new();
        for leaf in leaves {
            self.leaf(leaf, &mut works, &mut extras).await?;
        }
        let columns = &self.merge.root.schema.columns;
        let mut fragments = Vec::with_capacity(works.len() + extras.len());
        for (_, mut work) in works {
            work.fragment.overlays.extend(if self.merge.dry {
                work.patch.sketch()
            } else {
                work.patch.write(self.merge.lake, columns).await?
            });
            fragments.push(work.fragment);
        }
        for (carrier, rows) in extras {
            fragments.push(self.extra(carrier, &rows).await?);
        }
        Ok(Outcome { fragments, conflicts: self.found.list(self.merge) })
    }

    /// A carrier of the other side with some of its rows, which have the defaults of columns that it lacks.
    async fn extra(&self, carrier: usize, rows: &RowSet) -> Result<Fragment> {
        let merge = self.merge;
        let mut fragment = self.delta.side.fragments[carrier].clone();
        fragment.deleted = rows.complement(fragment.rows);
        let mut left = merge.lacking(self.delta);
        left.retain(|column| has(fragment.all_files(), column.field));
        if left.is_empty() || merge.dry {
            return Ok(fragment);
        }
        let version = merge.at_defaults(vec![fragment.clone()], &left).await?;
        let mut patch = Patch::default();
        for column in left {
            patch.add(column.field, rows.clone(), version.carried(column, 0, rows).await?);
        }
        fragment.overlays.extend(patch.write(merge.lake, &merge.root.schema.columns).await?);
        Ok(fragment)
    }

    /// A carrier of the start, with the other side's new overlays and files if they fit as they are.
    fn work(&self, carrier: usize) -> Work {
        let mut fragment = self.start.side.fragments[carrier].clone();
        let same = |version: &Version| version.side.fragments.iter().find(|other| other.id == fragment.id).cloned();
        let (base, delta) = (same(self.merge.base), same(self.delta));
        let kept = |fragment: &Fragment| {
            base.as_ref().is_none_or(|base| {
                base.overlays.iter().all(|old| fragment.overlays.iter().any(|new| new.file.id == old.file.id))
            })
        };
        // Where the base has the same rows in other fragments, it has overlays folded in that the other side still has.
        let elsewhere = base.is_none()
            && self.start.side.leaves().any(|(leaf, pieces)| {
                pieces.iter().any(|piece| piece.carrier == carrier) && !self.merge.base.side.leaf(leaf).is_empty()
            });
        let mut attached = false;
        if let Some(delta) = delta.filter(|delta| !elsewhere && kept(delta) && kept(&fragment)) {
            for overlay in &delta.overlays {
                if !fragment.overlays.iter().any(|other| other.file.id == overlay.file.id) {
                    fragment.overlays.push(overlay.clone());
                }
            }
            for file in &delta.files {
                if !fragment.files.iter().any(|other| other.id == file.id) {
                    fragment.files.push(file.clone());
                }
            }
            attached = true;
        }
        Work { fragment, patch: Patch::default(), attached }
    }

    /// Cells that `version` may have changed in a leaf, without those of columns that the merged table lacks.
    fn changed(&self, version: &Version, leaf: FragmentId, live: &RowSet) -> Cells {
        let base = self.merge.base;
        let mut cells = leaf::cells(base.side.leaf(leaf), version.side.leaf(leaf));
        for field in self.merge.root.schema.columns.iter().map(|column| column.field) {
            if base.column(field).is_none() {
                // A new column's values come in files, not in overlays.
                cells.insert(field, live.clone());
                continue;
            }
            // Values that were compacted away while the column was dropped: its default is another value.
            let lost = base.side.stored(leaf, field).subtract(&version.side.stored(leaf, field)).intersect(live);
            if !lost.is_empty() {
                let rows = cells.entry(field).or_default();
                *rows = rows.union(&lost);
            }
        }
        cells.retain(|field, _| self.column(*field).is_some() && version.column(*field).is_some());
        cells
    }

    fn column(&self, field: FieldId) -> Option<&Column> {
        self.merge.root.schema.columns.iter().find(|column| column.field == field)
    }

    async fn leaf(&mut self, leaf: FragmentId, works: &mut BTreeMap<usize, Work>, extras: &mut Extras) -> Result<()> {
        let (base, start, delta) = (self.merge.base, self.start, self.delta);
        if delta.side.leaf(leaf).is_empty() && start.side.leaf(leaf).is_empty() {
            return Ok(());
        }
        let [was, here, there] = [base, start, delta].map(|version| version.side.live(leaf));
        let (ours, theirs) = (self.changed(start, leaf, &here), self.changed(delta, leaf, &there));
        // Rows that the other side deleted: they go, unless they were updated here.
        let gone = was.subtract(&there).intersect(&here);
        let (deleted, kept_at_base) = self.deleted(leaf, &gone, &ours, start, self.side.other()).await?;
        // Rows that were deleted here: they stay so, unless they were updated there.
        let lost = was.subtract(&here).intersect(&there);
        let (still, back_at_base) = self.deleted(leaf, &lost, &theirs, delta, self.side).await?;
        let back = lost.subtract(&still);
        let back = back.union(&there.subtract(&was).subtract(&here));
        self.delete(leaf, &deleted, works);
        // Rows that only this side has keep its values, also where the other side updated them before it deleted them.
        let only_here = here.subtract(&there).subtract(&deleted);
        for (field, rows) in &theirs {
            let mut rows = self.pieces(leaf, &rows.intersect(&only_here), works, |work| work.attached);
            for (_, others) in kept_at_base.iter().filter(|(other, _)| other == field) {
                rows = rows.subtract(others);
            }
            self.put(leaf, *field, &rows, start, works).await?;
        }
        self.defaults(leaf, &only_here, &kept_at_base, start, works).await?;
        self.defaults(leaf, &back, &back_at_base, delta, works).await?;
        self.restore(leaf, &back, &back_at_base, works, extras).await?;
        for (field, rows) in kept_at_base.into_iter().chain(back_at_base) {
            self.put(leaf, field, &rows, base, works).await?;
        }
        let both = here.intersect(&there);
        self.bring(leaf, &both, works).await?;
        for (field, rows) in theirs.iter().filter(|(field, _)| start.column(**field).is_some()) {
            let rows = rows.intersect(&both);
            let here = ours.get(field).map_or_else(RowSet::new, |ours| ours.intersect(&rows));
            self.take(leaf, *field, &rows.subtract(&here), works).await?;
            self.compare(leaf, *field, &here, works).await?;
        }
        Ok(())
    }

    /// Of rows that `by` deleted and `version` has: those that stay deleted, and the cells that go back to the base's.
    async fn deleted(
        &mut self,
        leaf: FragmentId,
        rows: &RowSet,
        changed: &Cells,
        version: &Version,
        by: MergeSide,
    ) -> Result<(RowSet, Vec<(FieldId, RowSet)>)> {
        let (mut clashes, mut columns) = (RowSet::new(), Vec::new());
        for (field, cells) in changed {
            let (cells, Some(column)) = (cells.intersect(rows), self.column(*field).cloned()) else { continue };
            if cells.is_empty() || self.merge.base.column(*field).is_none() {
                continue;
            }
            let (old, new) =
                (self.merge.base.values(&column, leaf, &cells).await?, version.values(&column, leaf, &cells).await?);
            let changed = cells.iter().enumerate().filter(|(at, _)| !equal(&old, *at, &new, *at));
            let changed = RowSet::of(changed.map(|(_, row)| row).collect());
            if !changed.is_empty() {
                clashes = clashes.union(&changed);
                columns.push((column, changed));
            }
        }
        let (mut kept, mut at_base) = (Vec::new(), Vec::new());
        for row in clashes.iter() {
            let id = self.row_id(leaf, row);
            let (table, none) = (self.merge.table, None);
            let clash = Clash { table, column: None, row: Some(id), base: none, ours: none, theirs: none };
            match self.merge.policy.decide(&clash) {
                Choice::Side(side) if side == by => {}
                Choice::Side(_) => kept.push(row),
                Choice::Base => {
                    kept.push(row);
                    at_base.push(row);
                }
                Choice::Value(_) | Choice::Fail => {
                    let (rows, names) = self.found.rows.entry(by == MergeSide::Theirs).or_default();
                    rows.push(id);
                    names.extend(columns.iter().filter(|(_, rows)| rows.contains(row)).map(|(c, _)| c.name.clone()));
                }
            }
        }
        let at_base = RowSet::of(at_base);
        // What this version lacks is as it was as well.
        let lacking = self.merge.root.schema.columns.iter().map(|column| column.field);
        let lacking =
            lacking.filter(|field| version.column(*field).is_none() && self.merge.base.column(*field).is_some());
        let lacking = lacking.map(|field| (field, at_base.clone()));
        let at_base = columns.into_iter().map(|(column, rows)| (column.field, rows.intersect(&at_base)));
        let at_base = at_base.chain(lacking).collect();
        Ok((rows.subtract(&RowSet::of(kept)), at_base))
    }

    fn delete(&self, leaf: FragmentId, rows: &RowSet, works: &mut BTreeMap<usize, Work>) {
        for piece in self.start.side.leaf(leaf) {
            if let Some(work) = works.get_mut(&piece.carrier) {
                work.fragment.deleted = work.fragment.deleted.union(&piece.to_carrier(rows));
            }
        }
    }

    /// Brings back rows of the other side that aren't live here, with its values but for those of `except`.
    async fn restore(
        &self,
        leaf: FragmentId,
        rows: &RowSet,
        except: &[(FieldId, RowSet)],
        works: &mut BTreeMap<usize, Work>,
        extras: &mut Extras,
    ) -> Result<()> {
        let mut missing = rows.clone();
        let (start, delta) = (&self.start.side, &self.delta.side);
        let mut differing = leaf::cells(start.leaf(leaf), delta.leaf(leaf));
        for field in self.merge.root.schema.columns.iter().map(|column| column.field) {
            let (here, there) = (start.stored(leaf, field), delta.stored(leaf, field));
            let unlike = here.subtract(&there).union(&there.subtract(&here));
            let cells = differing.entry(field).or_default();
            *cells = cells.union(&unlike);
        }
        for piece in self.start.side.leaf(leaf) {
            let here = piece.rows.intersect(rows);
            let Some(work) = works.get_mut(&piece.carrier).filter(|_| !here.is_empty()) else { continue };
            work.fragment.deleted = work.fragment.deleted.subtract(&piece.to_carrier(&here));
            missing = missing.subtract(&here);
        }
        for (field, cells) in differing {
            let mut cells = cells.intersect(rows).subtract(&missing);
            for (_, others) in except.iter().filter(|(other, _)| *other == field) {
                cells = cells.subtract(others);
            }
            self.put(leaf, field, &cells, self.delta, works).await?;
        }
        for piece in self.delta.side.leaf(leaf) {
            let here = piece.live.intersect(&missing);
            if !here.is_empty() {
                let rows = extras.entry(piece.carrier).or_default();
                *rows = rows.union(&piece.to_carrier(&here));
            }
        }
        Ok(())
    }

    /// Takes the other side's values of columns that the start lacks: its carriers may have been compacted without them, or
    /// have edits of a column from before it was dropped.
    async fn bring(&self, leaf: FragmentId, rows: &RowSet, works: &mut BTreeMap<usize, Work>) -> Result<()> {
        let (start, delta) = (&self.start.side, &self.delta.side);
        let fields = self.merge.root.schema.columns.iter().map(|column| column.field);
        let fields = fields.filter(|field| self.start.column(*field).is_none() && self.delta.column(*field).is_some());
        for field in fields {
            let edited = |one: &Side, other: &Side| {
                leaf::edited(one.leaf(leaf), other.leaf(leaf)).remove(&field).unwrap_or_default().intersect(rows)
            };
            let (mine, theirs) = (edited(start, delta), edited(delta, start));
            let missing = delta.stored(leaf, field).subtract(&start.stored(leaf, field)).intersect(rows);
            let attached = self.pieces(leaf, &mine, works, |work| work.attached);
            let others = self.pieces(leaf, &missing.union(&mine).union(&theirs), works, |work| !work.attached);
            self.put(leaf, field, &attached.union(&others), self.delta, works).await?;
        }
        Ok(())
    }

    /// Rows that only `version` has have no value in columns that only the other side has: they get the default. Not those
    /// of `except`.
    async fn defaults(
        &self,
        leaf: FragmentId,
        rows: &RowSet,
        except: &[(FieldId, RowSet)],
        version: &Version,
        works: &mut BTreeMap<usize, Work>,
    ) -> Result<()> {
        let new = self.merge.lacking(version);
        if new.is_empty() || rows.is_empty() || self.merge.dry {
            return Ok(());
        }
        let version = self.merge.at_defaults(self.merge.carriers(version, leaf), &new).await?;
        for column in new {
            let except = except.iter().filter(|(field, _)| *field == column.field);
            let rows = except.fold(rows.clone(), |rows, (_, others)| rows.subtract(others));
            self.put(leaf, column.field, &rows, &version, works).await?;
        }
        Ok(())
    }

    /// Takes the other side's values of cells that only it changed.
    async fn take(
        &self,
        leaf: FragmentId,
        field: FieldId,
        rows: &RowSet,
        works: &mut BTreeMap<usize, Work>,
    ) -> Result<()> {
        let copied = self.pieces(leaf, rows, works, |work| !work.attached);
        self.put(leaf, field, &copied, self.delta, works).await
    }

    /// The rows that lie in carriers of which something holds.
    fn pieces(
        &self,
        leaf: FragmentId,
        rows: &RowSet,
        works: &BTreeMap<usize, Work>,
        holds: impl Fn(&Work) -> bool,
    ) -> RowSet {
        let pieces = self.start.side.leaf(leaf).iter();
        let pieces = pieces.filter(|piece| works.get(&piece.carrier).is_some_and(&holds));
        pieces.fold(RowSet::new(), |all, piece| all.union(&piece.rows.intersect(rows)))
    }

    /// Decides cells that both sides may have changed.
    async fn compare(
        &mut self,
        leaf: FragmentId,
        field: FieldId,
        rows: &RowSet,
        works: &mut BTreeMap<usize, Work>,
    ) -> Result<()> {
        let Some(column) = self.column(field).cloned().filter(|_| !rows.is_empty()) else { return Ok(()) };
        let (here, there) =
            (self.start.values(&column, leaf, rows).await?, self.delta.values(&column, leaf, rows).await?);
        let (known, was) = self.merge.at_base(&column, leaf, rows).await?;
        let (mut silent, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        let mut chosen: Vec<(u32, ColumnData)> = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            if equal(&here, at, &there, at) {
                continue;
            }
            let old = known.position(row).map(|old| old as usize);
            if old.is_some_and(|old| equal(&was, old, &there, at)) {
                silent.push(row);
                continue;
            }
            if old.is_some_and(|old| equal(&was, old, &here, at)) {
                theirs.push(row);
                continue;
            }
            let id = self.row_id(leaf, row);
            let (here, there) = (here.take(&[at]), there.take(&[at]));
            let old = old.map(|old| was.take(&[old]));
            let (our, their) = if self.side == MergeSide::Ours { (&here, &there) } else { (&there, &here) };
            let clash = Clash {
                table: self.merge.table,
                column: Some(&column.name),
                row: Some(id),
                base: old.as_ref(),
                ours: Some(our),
                theirs: Some(their),
            };
            match self.merge.policy.decide(&clash) {
                Choice::Side(side) if side == self.side => ours.push(row),
                Choice::Side(_) => theirs.push(row),
                Choice::Base => match old {
                    None => ours.push(row),
                    Some(old) => chosen.push((row, old)),
                },
                Choice::Value(value) => {
                    value.as_slice().check(&column)?;
                    chosen.push((row, value));
                }
                Choice::Fail => self.found.cells.entry(field).or_default().push(id),
            }
        }
        // What the other side has on top here, though this side's counts.
        let silent = self.pieces(leaf, &RowSet::of(silent), works, |work| work.attached);
        // A decision is written even where the value is on top already: later merges see that there was one. The other side's
        // value may be under what came here since, also where it was put on as it is.
        self.put(leaf, field, &silent.union(&RowSet::of(ours)), self.start, works).await?;
        self.put(leaf, field, &RowSet::of(theirs), self.delta, works).await?;
        for (row, value) in chosen {
            for piece in self.start.side.leaf(leaf).iter().filter(|piece| piece.rows.contains(row)) {
                if let Some(work) = works.get_mut(&piece.carrier) {
                    work.patch.add(field, piece.to_carrier(&RowSet::of(vec![row])), value.clone());
                }
            }
        }
        Ok(())
    }

    /// Puts a version's values on top of the start's carriers.
    async fn put(
        &self,
        leaf: FragmentId,
        field: FieldId,
        rows: &RowSet,
        from: &Version,
        works: &mut BTreeMap<usize, Work>,
    ) -> Result<()> {
        let Some(column) = self.column(field) else { return Ok(()) };
        if from.column(field).is_none() {
            return Ok(());
        }
        for piece in self.start.side.leaf(leaf) {
            let here = piece.rows.intersect(rows);
            if let Some(work) = works.get_mut(&piece.carrier).filter(|_| !here.is_empty()) {
                // A dry run only notes where there will be a value.
                let dry = self.merge.dry;
                let values = if dry { empty(column) } else { from.values(column, leaf, &here).await? };
                work.patch.add(field, piece.to_carrier(&here), values);
            }
        }
        Ok(())
    }

    /// A row as our side names it, or the other if ours doesn't have it.
    fn row_id(&self, leaf: FragmentId, row: u32) -> RowId {
        let has = |version: &Version| version.side.leaf(leaf).iter().any(|piece| piece.rows.contains(row));
        let version = if has(self.merge.ours) { self.merge.ours } else { self.merge.theirs };
        leaf::row_id(&version.side, leaf, row)
    }
}

impl Found {
    fn list(self, merge: &Merge<'_>) -> Vec<Conflict> {
        let name = |field| {
            let columns = &merge.root.schema.columns;
            columns.iter().find(|column| column.field == field).map_or_else(String::new, |column| column.name.clone())
        };
        let cells = self.cells.into_iter().map(|(field, rows)| ConflictKind::Cells { column: name(field), rows });
        let rows = self.rows.into_iter().map(|(theirs, (rows, columns))| {
            let mut columns: Vec<_> = columns.into_iter().collect();
            columns.sort_unstable();
            let deleted_by = if theirs { MergeSide::Theirs } else { MergeSide::Ours };
            ConflictKind::Rows { rows, columns, deleted_by }
        });
        let table = merge.table.to_owned();
        cells.chain(rows).map(|kind| Conflict { table: table.clone(), kind }).collect()
    }
}
