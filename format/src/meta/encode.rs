//! Structures to bytes.

use std::collections::BTreeMap;

use flatbuffers::{FlatBufferBuilder, ForwardsUOffset, Vector, WIPOffset};

use super::{
    Change, Commit, DataFileRef, Edit, Fragment, KIND_COMMIT, KIND_LAKE, KIND_ORIGINS, KIND_PAGE, KIND_REF, KIND_ROOT,
    KIND_TAG, LakeMarker, Origin, Origins, Overlay, Page, PageLocation, PageRef, Pointer, RefEntry, RefKind, RootRef,
    TableEntry, TableRoot, Tag, page,
};
use crate::{
    Codec, Column, Dim, FieldId, Result, RowSet,
    envelope::{EDITS, KEYS, PURGES, RUNS, seal},
    generated::meta as fb,
};

pub(super) type Builder = FlatBufferBuilder<'static>;
pub(super) type Tables<T> = WIPOffset<Vector<'static, ForwardsUOffset<T>>>;

impl LakeMarker {
    /// Its bytes.
    ///
    /// # Errors
    /// None yet.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut b = Builder::new();
        let id = Some(b.create_vector(self.id.as_bytes()));
        let root =
            fb::LakeMarker::create(&mut b, &fb::LakeMarkerArgs { id, created: self.created, purges: self.purges });
        finish("lake marker", KIND_LAKE, if self.purges { PURGES } else { 0 }, b, root)
    }
}

impl Commit {
    /// Its bytes.
    ///
    /// # Errors
    /// [`Limit`](crate::Error::Limit) if they are more than 16 MiB.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut b = Builder::new();
        let args = fb::CommitArgs {
            id: Some(b.create_vector(self.id.as_bytes())),
            parents: list(&mut b, &self.parents, pointer),
            generation: self.generation,
            author: Some(b.create_string(&self.author)),
            message: Some(b.create_string(&self.message)),
            time: self.time,
            tables: list(&mut b, &self.tables, table_entry),
            changes: list(&mut b, &self.changes, change),
            properties: properties(&mut b, &self.properties),
        };
        let root = fb::Commit::create(&mut b, &args);
        let inline = self.tables.iter().filter_map(|table| match &table.root {
            RootRef::Inline(root) => Some(features_of_root(root)),
            RootRef::Object(_) => None,
        });
        finish("commit", KIND_COMMIT, inline.fold(0, |all, features| all | features), b, root)
    }
}

impl TableRoot {
    /// Its bytes, as an object of its own.
    ///
    /// # Errors
    /// [`Limit`](crate::Error::Limit) if they are more than 16 MiB.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut b = Builder::new();
        let root = table_root(&mut b, self);
        finish("table root", KIND_ROOT, features_of_root(self), b, root)
    }
}

impl Page {
    /// Its bytes, as an object of its own.
    ///
    /// # Errors
    /// [`Limit`](crate::Error::Limit) if they are more than 16 MiB.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut b = Builder::new();
        let root = page::write(&mut b, self);
        finish("manifest page", KIND_PAGE, features_of_page(self), b, root)
    }
}

impl Origins {
    /// Its bytes.
    ///
    /// # Errors
    /// [`Limit`](crate::Error::Limit) if they are more than 16 MiB.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut b = Builder::new();
        let origins = list(&mut b, &self.origins, origin);
        let root = fb::Origins::create(&mut b, &fb::OriginsArgs { origins });
        finish("list of origins", KIND_ORIGINS, 0, b, root)
    }
}

impl RefEntry {
    /// Its bytes.
    ///
    /// # Errors
    /// [`Limit`](crate::Error::Limit) if they are more than 16 MiB.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut b = Builder::new();
        let kind = match self.kind {
            RefKind::Create => "create",
            RefKind::Commit => "commit",
            RefKind::Noop => "noop",
            RefKind::Reset => "reset",
            RefKind::Delete => "delete",
            RefKind::Fence => "fence",
        };
        let args = fb::RefEntryArgs {
            kind: Some(b.create_string(kind)),
            nonce: self.nonce,
            commit: Some(pointer(&mut b, &self.commit)),
            embedded: Some(b.create_vector(&self.embedded)),
            time: self.time,
            epoch: self.epoch,
            purged: self.purged,
        };
        let root = fb::RefEntry::create(&mut b, &args);
        finish("ref entry", KIND_REF, 0, b, root)
    }
}

impl Tag {
    /// Its bytes.
    ///
    /// # Errors
    /// [`Limit`](crate::Error::Limit) if they are more than 16 MiB.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut b = Builder::new();
        let args = fb::TagArgs {
            commit: Some(pointer(&mut b, &self.commit)),
            embedded: Some(b.create_vector(&self.embedded)),
            author: Some(b.create_string(&self.author)),
            time: self.time,
        };
        let root = fb::Tag::create(&mut b, &args);
        finish("tag", KIND_TAG, 0, b, root)
    }
}

/// What a reader must know to read a page right.
fn features_of_page(page: &Page) -> u64 {
    let edited = page.fragments.iter().any(|fragment| !fragment.deleted.is_empty() || !fragment.overlays.is_empty());
    (if edited { EDITS } else { 0 }) | (if page.is_packed() { RUNS } else { 0 })
}

fn features_of_root(root: &TableRoot) -> u64 {
    let key = if root.key.is_empty() { 0 } else { KEYS };
    let inline = root.pages.iter().filter_map(|reference| match &reference.page {
        PageLocation::Inline(page) => Some(features_of_page(page)),
        PageLocation::Object(_) => None,
    });
    inline.fold(key, |all, features| all | features)
}

pub(super) fn finish<T>(
    what: &str,
    kind: [u8; 4],
    features: u64,
    mut builder: Builder,
    root: WIPOffset<T>,
) -> Result<Vec<u8>> {
    builder.finish_minimal(root);
    seal(what, kind, features, builder.finished_data())
}

/// A vector of tables, or nothing when it is empty.
pub(super) fn list<S, T>(
    b: &mut Builder,
    items: &[S],
    one: impl Fn(&mut Builder, &S) -> WIPOffset<T>,
) -> Option<Tables<T>> {
    if items.is_empty() {
        return None;
    }
    let offsets: Vec<_> = items.iter().map(|item| one(b, item)).collect();
    Some(b.create_vector(&offsets))
}

pub(super) fn pointer<'a>(b: &mut FlatBufferBuilder<'a>, pointer: &Pointer) -> WIPOffset<fb::Pointer<'a>> {
    let id = Some(b.create_vector(pointer.id.as_bytes()));
    let hash = Some(b.create_vector(&pointer.hash));
    fb::Pointer::create(b, &fb::PointerArgs { id, length: pointer.length, hash })
}

fn properties(b: &mut Builder, map: &BTreeMap<String, String>) -> Option<Tables<fb::Property<'static>>> {
    let pairs: Vec<_> = map.iter().collect();
    list(b, &pairs, |b, (key, value)| {
        let (key, value) = (Some(b.create_string(key)), Some(b.create_string(value)));
        fb::Property::create(b, &fb::PropertyArgs { key, value })
    })
}

pub(super) fn fields<'a>(b: &mut FlatBufferBuilder<'a>, fields: &[FieldId]) -> Option<WIPOffset<Vector<'a, u64>>> {
    let fields: Vec<_> = fields.iter().map(|field| field.0).collect();
    (!fields.is_empty()).then(|| b.create_vector(&fields))
}

fn table_entry(b: &mut Builder, entry: &TableEntry) -> WIPOffset<fb::TableEntry<'static>> {
    let mut args = fb::TableEntryArgs {
        name: Some(b.create_string(&entry.name)),
        id: Some(b.create_vector(entry.id.as_bytes())),
        rows: entry.rows,
        ..Default::default()
    };
    match &entry.root {
        RootRef::Inline(root) => args.inline = Some(table_root(b, root)),
        RootRef::Object(object) => args.object = Some(pointer(b, object)),
    }
    fb::TableEntry::create(b, &args)
}

fn change(b: &mut Builder, change: &Change) -> WIPOffset<fb::Change<'static>> {
    let fragments: Vec<u8> = change.fragments.iter().flat_map(|id| *id.as_bytes()).collect();
    let args = fb::ChangeArgs {
        table: Some(b.create_vector(change.table.as_bytes())),
        kind: Some(b.create_string(&change.kind)),
        rows_added: change.rows_added,
        fragments: (!fragments.is_empty()).then(|| b.create_vector(&fragments)),
        fields: fields(b, &change.fields),
        rows_deleted: change.rows_deleted,
        rows_changed: change.rows_changed,
    };
    fb::Change::create(b, &args)
}

fn table_root(b: &mut Builder, root: &TableRoot) -> WIPOffset<fb::TableRoot<'static>> {
    let columns: Vec<_> = root.schema.columns.iter().map(|item| column(b, item)).collect();
    let columns = Some(b.create_vector(&columns));
    let pages = list(b, &root.pages, page_ref);
    let key = fields(b, &root.key);
    let defaults = list(b, &root.defaults, data_file);
    fb::TableRoot::create(b, &fb::TableRootArgs { columns, pages, key, defaults })
}

fn column(b: &mut Builder, column: &Column) -> WIPOffset<fb::Column<'static>> {
    let shape = dims(&column.shape);
    let (codec, level) = codec(column.compression.codec);
    let args = fb::ColumnArgs {
        name: Some(b.create_string(&column.name)),
        field: column.field.0,
        dtype: Some(b.create_string(column.dtype.name())),
        shape: (!shape.is_empty()).then(|| b.create_vector(&shape)),
        nullable: column.nullable,
        codec: Some(b.create_string(codec)),
        level,
        shuffle: column.compression.shuffle,
        kind: (!column.kind.name.is_empty()).then(|| b.create_string(&column.kind.name)),
        metadata: properties(b, &column.kind.metadata),
    };
    fb::Column::create(b, &args)
}

/// Dimensions as they are stored: -1 for a free one.
pub(crate) fn dims(shape: &[Dim]) -> Vec<i64> {
    shape
        .iter()
        .map(|dim| match dim {
            Dim::Fixed(length) => i64::from(*length),
            Dim::Free => -1,
        })
        .collect()
}

/// A codec's name and level.
pub(crate) fn codec(codec: Codec) -> (&'static str, i32) {
    match codec {
        Codec::None => ("none", 0),
        Codec::Lz4 => ("lz4", 0),
        Codec::Zstd { level } => ("zstd", level),
    }
}

fn page_ref(b: &mut Builder, reference: &PageRef) -> WIPOffset<fb::PageRef<'static>> {
    let mut args = fb::PageRefArgs {
        fragments: reference.fragments,
        rows: reference.rows,
        bytes: reference.bytes,
        ..Default::default()
    };
    match &reference.page {
        PageLocation::Inline(inline) => args.inline = Some(page::write(b, inline)),
        PageLocation::Object(object) => args.object = Some(pointer(b, object)),
    }
    fb::PageRef::create(b, &args)
}

pub(super) fn fragment(b: &mut Builder, fragment: &Fragment) -> WIPOffset<fb::Fragment<'static>> {
    let id = Some(b.create_vector(fragment.id.as_bytes()));
    let files = list(b, &fragment.files, data_file);
    let args = fb::FragmentArgs {
        id,
        rows: fragment.rows,
        files,
        deleted: (!fragment.deleted.is_empty()).then(|| row_set(b, &fragment.deleted)),
        overlays: list(b, &fragment.overlays, overlay),
        origins: fragment.origins.as_ref().map(|origins| pointer(b, origins)),
    };
    fb::Fragment::create(b, &args)
}

pub(super) fn row_set<'a>(b: &mut FlatBufferBuilder<'a>, rows: &RowSet) -> WIPOffset<Vector<'a, u8>> {
    b.create_vector(&rows.encode())
}

pub(super) fn overlay(b: &mut Builder, overlay: &Overlay) -> WIPOffset<fb::Overlay<'static>> {
    let (file, rows) = (Some(data_file(b, &overlay.file)), Some(row_set(b, &overlay.rows)));
    fb::Overlay::create(b, &fb::OverlayArgs { file, rows, first: overlay.first })
}

fn origin(b: &mut Builder, origin: &Origin) -> WIPOffset<fb::Origin<'static>> {
    let edit = |b: &mut Builder, edit: &Edit| {
        let args = fb::EditArgs {
            file: Some(b.create_vector(edit.file.as_bytes())),
            rows: Some(row_set(b, &edit.rows)),
            fields: fields(b, &edit.fields),
        };
        fb::Edit::create(b, &args)
    };
    let args = fb::OriginArgs {
        fragment: Some(b.create_vector(origin.fragment.as_bytes())),
        rows: Some(row_set(b, &origin.rows)),
        edits: list(b, &origin.edits, edit),
    };
    fb::Origin::create(b, &args)
}

pub(super) fn data_file(b: &mut Builder, file: &DataFileRef) -> WIPOffset<fb::DataFile<'static>> {
    let args = fb::DataFileArgs {
        id: Some(b.create_vector(file.id.as_bytes())),
        size: file.size,
        index_offset: file.index_offset,
        index_length: file.index_length,
        fields: fields(b, &file.fields),
    };
    fb::DataFile::create(b, &args)
}
