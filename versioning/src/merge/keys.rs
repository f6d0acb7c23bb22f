//! Equal keys inserted on both sides.

use std::collections::{BTreeMap, HashMap};

use forebay_format::{Column, ColumnData, FragmentId, RowSet, meta::Fragment};

use super::{
    component::Merge,
    policy::{Choice, Clash, Conflict, ConflictKind, MergeSide},
};
use crate::{
    Result, RowId, leaf,
    values::{Version, row},
};

/// A row's key: shapes and bytes of its columns.
pub(crate) type Key = Vec<u8>;

/// The keys of rows of a leaf.
pub(crate) async fn of_leaf(
    version: &Version,
    columns: &[Column],
    leaf: FragmentId,
    rows: &RowSet,
) -> Result<Vec<(u32, Key)>> {
    let mut values = Vec::with_capacity(columns.len());
    for column in columns {
        values.push(version.values(column, leaf, rows).await?);
    }
    Ok(rows.iter().enumerate().map(|(at, row)| (row, key_of(&values, at))).collect())
}

/// The key in a row of a key's columns.
pub(crate) fn key_of(columns: &[ColumnData], at: usize) -> Key {
    let mut key = Key::new();
    for column in columns {
        let (shape, bytes) = row(column, at);
        key.extend((bytes.len() as u64).to_le_bytes());
        key.extend(shape.iter().flat_map(|length| length.to_le_bytes()));
        key.extend_from_slice(bytes);
    }
    key
}

/// The rows of a leaf whose keys a side inserted or changed.
fn fresh(merge: &Merge<'_>, version: &Version, leaf: FragmentId) -> RowSet {
    let live = version.side.live(leaf);
    let mut fresh = live.subtract(&merge.base.side.live(leaf));
    for (field, rows) in leaf::cells(merge.base.side.leaf(leaf), version.side.leaf(leaf)) {
        if merge.root.key.contains(&field) {
            fresh = fresh.union(&rows.intersect(&live));
        }
    }
    fresh
}

/// Finds rows with equal keys that the two sides inserted apart from each other, or that one inserted in place of a row that the
/// other kept. The row of the side that loses is deleted from what the merge is about to write: `edits` and `added`.
pub(crate) async fn check(
    merge: &Merge<'_>,
    edits: &mut BTreeMap<FragmentId, Vec<Fragment>>,
    added: &mut [Fragment],
) -> Result<Vec<Conflict>> {
    let key = |field| merge.root.schema.columns.iter().find(|column| column.field == field).cloned();
    let columns: Vec<Column> = merge.root.key.iter().filter_map(|field| key(*field)).collect();
    let merged = edits.values().flatten().chain(&*added).cloned().collect();
    let merged = Version::load(merge.snapshot, merge.root.clone(), merged).await?.side;
    // Rows of one side that the other doesn't have, or whose keys it changed, as far as they are there after the merge.
    let own = |version: &Version, other: &Version, leaf| {
        let alone = version.side.live(leaf).subtract(&other.side.live(leaf));
        fresh(merge, version, leaf).union(&alone).intersect(&merged.live(leaf))
    };
    let mut leaves: Vec<_> = merge.ours.side.leaves().map(|(leaf, _)| leaf).collect();
    leaves.sort_unstable();
    let mut known: HashMap<Key, (FragmentId, u32)> = HashMap::new();
    for leaf in leaves {
        let rows = own(merge.ours, merge.theirs, leaf);
        for (row, key) in of_leaf(merge.ours, &columns, leaf, &rows).await? {
            known.insert(key, (leaf, row));
        }
    }
    let mut clashes = Vec::new();
    let mut theirs: Vec<_> = merge.theirs.side.leaves().map(|(leaf, _)| leaf).collect();
    theirs.sort_unstable();
    for leaf in theirs {
        let rows = own(merge.theirs, merge.ours, leaf);
        for (row, key) in of_leaf(merge.theirs, &columns, leaf, &rows).await? {
            // A row that both sides have is no clash with itself.
            let Some(our) = known.get(&key).filter(|our| **our != (leaf, row)) else { continue };
            let (our, their) = (*our, (leaf, row));
            let mut lose = |row: (FragmentId, u32)| drop_row(leaf::row_id(&merged, row.0, row.1), edits, added);
            let [our_id, their_id] = [(merge.ours, our), (merge.theirs, their)]
                .map(|(version, (leaf, row))| leaf::row_id(&version.side, leaf, row));
            let clash =
                Clash { table: merge.table, column: None, row: Some(our_id), base: None, ours: None, theirs: None };
            match merge.policy.decide(&clash) {
                Choice::Side(MergeSide::Ours) => lose(their),
                Choice::Side(MergeSide::Theirs) => lose(our),
                Choice::Base => {
                    lose(their);
                    lose(our);
                }
                Choice::Value(_) | Choice::Fail => clashes.push((our_id, their_id)),
            }
        }
    }
    if clashes.is_empty() {
        return Ok(Vec::new());
    }
    let columns = columns.into_iter().map(|column| column.name).collect();
    let kind = ConflictKind::Keys { columns, rows: clashes };
    Ok(vec![Conflict { table: merge.table.to_owned(), kind }])
}

/// Deletes a row of a carrier from whatever of it is about to be written.
fn drop_row(row: RowId, edits: &mut BTreeMap<FragmentId, Vec<Fragment>>, added: &mut [Fragment]) {
    for fragment in edits.values_mut().flatten().chain(added).filter(|fragment| fragment.id == row.fragment) {
        fragment.deleted = fragment.deleted.union(&RowSet::of(vec![row.row]));
    }
}
