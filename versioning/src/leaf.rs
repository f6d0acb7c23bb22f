//! Where rows are, whatever was compacted since they were written. Pure.
//!
//! Rows keep the identity (leaf, row) that they were first written with: a *leaf* is the fragment of that time. Later
//! they may lie in another fragment, their *carrier*, which says which rows of which leaves it took over and which
//! *edits* these went through: overlays, and files of columns that were added. Versions of a table are compared leaf by leaf.

use std::collections::{BTreeMap, HashMap, HashSet};

use forebay_format::{
    FieldId, FileId, FragmentId, RowSet,
    meta::{Edit, Fragment, Origins},
};

use crate::RowId;

/// Rows of a leaf that lie side by side in a carrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The carrier's place among its side's fragments.
    pub(crate) carrier: usize,
    /// Where in the carrier they begin.
    pub(crate) first: u32,
    /// The leaf's rows.
    pub(crate) rows: RowSet,
    /// Those of them that weren't deleted.
    pub(crate) live: RowSet,
    /// What overlays and files of added columns they went through, in row numbers of the leaf.
    pub(crate) edits: Vec<Edit>,
}

impl Piece {
    /// Rows of the leaf as rows of the carrier.
    pub(crate) fn to_carrier(&self, rows: &RowSet) -> RowSet {
        self.rows.places(rows).moved_up(self.first)
    }

    /// Rows of the carrier as rows of the leaf.
    pub(crate) fn to_leaf(&self, rows: &RowSet) -> RowSet {
        self.rows.select(&rows.moved_down(self.first))
    }
}

/// The fragments of a version of a table, and the leaves in them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Side {
    pub(crate) fragments: Vec<Fragment>,
    leaves: HashMap<FragmentId, Vec<Piece>>,
}

impl Side {
    /// `origins` are those of the fragments that have some.
    pub(crate) fn new(fragments: Vec<Fragment>, origins: &HashMap<FragmentId, Origins>) -> Self {
        let mut leaves: HashMap<FragmentId, Vec<Piece>> = HashMap::new();
        for (carrier, fragment) in fragments.iter().enumerate() {
            for (leaf, piece) in pieces(carrier, fragment, origins.get(&fragment.id)) {
                leaves.entry(leaf).or_default().push(piece);
            }
        }
        Self { fragments, leaves }
    }

    pub(crate) fn leaf(&self, leaf: FragmentId) -> &[Piece] {
        self.leaves.get(&leaf).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn leaves(&self) -> impl Iterator<Item = (FragmentId, &[Piece])> {
        self.leaves.iter().map(|(leaf, pieces)| (*leaf, pieces.as_slice()))
    }

    /// The rows of a leaf that are there.
    pub(crate) fn live(&self, leaf: FragmentId) -> RowSet {
        self.leaf(leaf).iter().fold(RowSet::new(), |all, piece| all.union(&piece.live))
    }

    /// The rows of a leaf whose carriers hold a value of a column; others have its default.
    pub(crate) fn stored(&self, leaf: FragmentId, field: FieldId) -> RowSet {
        self.leaf(leaf).iter().fold(RowSet::new(), |all, piece| {
            let stored = stored(&self.fragments[piece.carrier], field);
            all.union(&piece.to_leaf(&stored))
        })
    }

    /// The origins that a fragment has which takes over `rows` of fragment `carrier`, in the order of the rows.
    pub(crate) fn origins_of(&self, carrier: usize, rows: &RowSet) -> Vec<forebay_format::meta::Origin> {
        let mut here: Vec<(FragmentId, &Piece)> = self
            .leaves()
            .flat_map(|(leaf, pieces)| pieces.iter().map(move |piece| (leaf, piece)))
            .filter(|(_, piece)| piece.carrier == carrier)
            .collect();
        here.sort_by_key(|(_, piece)| piece.first);
        let origin = |(leaf, piece): (FragmentId, &Piece)| {
            let rows = piece.to_leaf(rows);
            let edits = piece.edits.iter().cloned();
            let edits = edits.map(|edit| Edit { rows: edit.rows.intersect(&rows), ..edit });
            let edits = edits.filter(|edit| !edit.rows.is_empty()).collect();
            forebay_format::meta::Origin { fragment: leaf, rows, edits }
        };
        here.into_iter().map(origin).collect()
    }
}

fn pieces(carrier: usize, fragment: &Fragment, origins: Option<&Origins>) -> Vec<(FragmentId, Piece)> {
    let own = [forebay_format::meta::Origin {
        fragment: fragment.id,
        rows: RowSet::range(0..fragment.rows),
        edits: Vec::new(),
    }];
    let origins = origins.map_or(&own[..], |origins| &origins.origins);
    let (mut pieces, mut first) = (Vec::with_capacity(origins.len()), 0);
    for origin in origins {
        let (rows, edits) = (origin.rows.clone(), origin.edits.clone());
        let mut piece = Piece { carrier, first, rows, live: RowSet::new(), edits };
        piece.live = piece.rows.subtract(&piece.to_leaf(&fragment.deleted));
        // A fragment is written as one file: the others brought columns that were added later, with values for all rows.
        for file in fragment.files.iter().skip(1) {
            piece.edits.push(Edit { file: file.id, rows: piece.rows.clone(), fields: file.fields.to_vec() });
        }
        for overlay in &fragment.overlays {
            let rows = piece.to_leaf(&overlay.rows);
            if !rows.is_empty() {
                piece.edits.push(Edit { file: overlay.file.id, rows, fields: overlay.file.fields.to_vec() });
            }
        }
        first += origin.rows.len();
        pieces.push((origin.fragment, piece));
    }
    pieces
}

/// The rows of a fragment that it holds a value of a column for, in a file or an overlay.
pub(crate) fn stored(fragment: &Fragment, field: FieldId) -> RowSet {
    if fragment.files.iter().any(|file| file.fields.contains(&field)) {
        return RowSet::range(0..fragment.rows);
    }
    let overlays = fragment.overlays.iter().filter(|overlay| overlay.file.fields.contains(&field));
    overlays.fold(RowSet::new(), |all, overlay| all.union(&overlay.rows))
}

/// A row of a leaf by its carrier, or by the leaf if nothing carries it.
pub(crate) fn row_id(side: &Side, leaf: FragmentId, row: u32) -> RowId {
    let piece = side.leaf(leaf).iter().find(|piece| piece.rows.contains(row));
    match piece.and_then(|piece| Some((piece, piece.rows.position(row)?))) {
        Some((piece, at)) => RowId { fragment: side.fragments[piece.carrier].id, row: piece.first + at },
        None => RowId { fragment: leaf, row },
    }
}

/// Cells of a leaf, by column.
pub(crate) type Cells = BTreeMap<FieldId, RowSet>;

/// The cells of a leaf that may differ between two versions: those that only one of them has an edit of. A column that was
/// dropped, compacted away and brought back may differ without one: [`Side::stored`] tells.
pub(crate) fn cells(one: &[Piece], other: &[Piece]) -> Cells {
    let mut cells = edited(one, other);
    for (field, more) in edited(other, one) {
        let rows = cells.entry(field).or_default();
        *rows = rows.union(&more);
    }
    cells
}

/// The cells of a leaf that one version has an edit of and another hasn't.
pub(crate) fn edited(one: &[Piece], other: &[Piece]) -> Cells {
    let known: HashSet<FileId> = other.iter().flat_map(|piece| &piece.edits).map(|edit| edit.file).collect();
    let mut cells = Cells::new();
    for edit in one.iter().flat_map(|piece| &piece.edits).filter(|edit| !known.contains(&edit.file)) {
        for field in &edit.fields {
            let rows = cells.entry(*field).or_default();
            *rows = rows.union(&edit.rows);
        }
    }
    cells
}

/// Groups of leaves and carriers that are connected on any side: what is compared as one.
pub(crate) fn components(sides: &[&Side]) -> Vec<Vec<FragmentId>> {
    let mut parent: HashMap<FragmentId, FragmentId> = HashMap::new();
    fn find(parent: &mut HashMap<FragmentId, FragmentId>, id: FragmentId) -> FragmentId {
        let mut root = id;
        while let Some(next) = parent.get(&root).filter(|next| **next != root) {
            root = *next;
        }
        parent.insert(id, root);
        root
    }
    let mut order = Vec::new();
    for side in sides {
        for fragment in &side.fragments {
            order.push(fragment.id);
        }
        for (leaf, pieces) in side.leaves() {
            order.push(leaf);
            for piece in pieces {
                let carrier = side.fragments[piece.carrier].id;
                let (a, b) = (find(&mut parent, leaf), find(&mut parent, carrier));
                parent.insert(a, b);
            }
        }
    }
    let mut groups: BTreeMap<usize, Vec<FragmentId>> = BTreeMap::new();
    let (mut numbers, mut seen) = (HashMap::new(), HashSet::new());
    for id in order {
        if seen.insert(id) {
            let next = numbers.len();
            let number = *numbers.entry(find(&mut parent, id)).or_insert(next);
            groups.entry(number).or_default().push(id);
        }
    }
    groups.into_values().collect()
}
