//! Bytes to structures. The envelope and the flatbuffer are verified first; then every rule of the structure is.

use std::collections::BTreeMap;

use flatbuffers::{Follow, ForwardsUOffset, Vector, Verifiable};

use super::{
    Change, Commit, DataFileRef, Edit, Fragment, KIND_COMMIT, KIND_LAKE, KIND_ORIGINS, KIND_PAGE, KIND_REF, KIND_ROOT,
    KIND_TAG, LakeMarker, Origin, Origins, Overlay, Page, PageLocation, PageRef, Pointer, RefEntry, RefKind, RootRef,
    TableEntry, TableRoot, Tag, page,
};
use crate::{
    Codec, Column, Compression, DType, Dim, Error, FieldId, Id, Kind, Result, RowSet, Schema,
    envelope::{open, root},
    generated::meta as fb,
};

impl LakeMarker {
    /// The lake marker that `bytes` are.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Checksum`], [`Error::Unsupported`] or [`Error::Limit`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let what = "lake marker";
        let marker = payload::<fb::LakeMarker<'_>>(what, KIND_LAKE, bytes)?;
        Ok(Self { id: id(what, marker.id())?, created: marker.created(), purges: marker.purges() })
    }
}

impl Commit {
    /// The commit that `bytes` are.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Checksum`], [`Error::Unsupported`] or [`Error::Limit`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let what = "commit";
        let commit = payload::<fb::Commit<'_>>(what, KIND_COMMIT, bytes)?;
        Ok(Self {
            id: id(what, commit.id())?,
            parents: list(commit.parents(), |parent| pointer(what, parent))?,
            generation: commit.generation(),
            author: commit.author().to_owned(),
            message: commit.message().to_owned(),
            time: commit.time(),
            tables: list(commit.tables(), |entry| table_entry(what, entry))?,
            changes: list(commit.changes(), |item| change(what, item))?,
            properties: properties(commit.properties()),
        })
    }
}

impl TableRoot {
    /// The table root that `bytes` are.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Checksum`], [`Error::Unsupported`] or [`Error::Limit`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let what = "table root";
        table_root(what, payload::<fb::TableRoot<'_>>(what, KIND_ROOT, bytes)?)
    }
}

impl Page {
    /// The manifest page that `bytes` are.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Checksum`], [`Error::Unsupported`] or [`Error::Limit`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let what = "manifest page";
        page::read(what, payload::<fb::Page<'_>>(what, KIND_PAGE, bytes)?)
    }
}

impl Origins {
    /// The origins that `bytes` are.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Checksum`], [`Error::Unsupported`] or [`Error::Limit`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let what = "list of origins";
        let origins = payload::<fb::Origins<'_>>(what, KIND_ORIGINS, bytes)?;
        Ok(Self { origins: list(origins.origins(), |item| origin(what, item))? })
    }
}

impl RefEntry {
    /// The entry that `bytes` are. The embedded commit's bytes are checked against the pointer to it.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Checksum`], [`Error::Unsupported`] or [`Error::Limit`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let what = "ref entry";
        let entry = payload::<fb::RefEntry<'_>>(what, KIND_REF, bytes)?;
        let kind = match entry.kind() {
            "create" => RefKind::Create,
            "commit" => RefKind::Commit,
            "noop" => RefKind::Noop,
            "reset" => RefKind::Reset,
            "delete" => RefKind::Delete,
            "fence" => RefKind::Fence,
            other => return unsupported(what, format!("entries of kind '{other}'")),
        };
        let (commit, embedded) = (pointer(what, entry.commit())?, entry.embedded().bytes().to_vec());
        commit.check(&embedded)?;
        let (nonce, time) = (entry.nonce(), entry.time());
        Ok(Self { kind, nonce, commit, embedded, time, epoch: entry.epoch(), purged: entry.purged() })
    }
}

impl Tag {
    /// The tag that `bytes` are. The embedded commit's bytes are checked against the pointer to it.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Checksum`], [`Error::Unsupported`] or [`Error::Limit`].
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let what = "tag";
        let tag = payload::<fb::Tag<'_>>(what, KIND_TAG, bytes)?;
        let (commit, embedded) = (pointer(what, tag.commit())?, tag.embedded().bytes().to_vec());
        commit.check(&embedded)?;
        Ok(Self { commit, embedded, author: tag.author().to_owned(), time: tag.time() })
    }
}

pub(super) fn payload<'a, T>(what: &str, kind: [u8; 4], bytes: &'a [u8]) -> Result<T::Inner>
where
    T: 'a + Follow<'a> + Verifiable,
{
    root::<T>(what, 32, open(what, kind, bytes)?)
}

pub(super) fn corrupt<T>(what: &str, reason: impl Into<String>) -> Result<T> {
    Err(Error::Corrupt { what: what.to_owned(), offset: 0, reason: reason.into() })
}

pub(super) fn unsupported<T>(what: &str, needs: String) -> Result<T> {
    Err(Error::Unsupported { what: what.to_owned(), needs })
}

pub(super) fn list<'a, T, U>(
    tables: Option<Vector<'a, ForwardsUOffset<T>>>,
    one: impl Fn(T) -> Result<U>,
) -> Result<Vec<U>>
where
    T: Follow<'a, Inner = T> + 'a,
{
    tables.map_or(Ok(Vec::new()), |tables| tables.iter().map(one).collect())
}

pub(crate) fn id<T>(what: &str, bytes: Vector<'_, u8>) -> Result<Id<T>> {
    match bytes.bytes().try_into() {
        Ok(bytes) => Ok(Id::from_bytes(bytes)),
        Err(_) => corrupt(what, format!("an identity has {} bytes instead of 16", bytes.len())),
    }
}

pub(super) fn pointer(what: &str, pointer: fb::Pointer<'_>) -> Result<Pointer> {
    let Ok(hash) = pointer.hash().bytes().try_into() else {
        return corrupt(what, format!("a hash has {} bytes instead of 32", pointer.hash().len()));
    };
    Ok(Pointer { id: id(what, pointer.id())?, length: pointer.length(), hash })
}

fn properties(pairs: Option<Vector<'_, ForwardsUOffset<fb::Property<'_>>>>) -> BTreeMap<String, String> {
    let pairs = pairs.into_iter().flat_map(|pairs| pairs.iter());
    pairs.map(|pair| (pair.key().to_owned(), pair.value().to_owned())).collect()
}

pub(super) fn fields<C: FromIterator<FieldId>>(fields: Option<Vector<'_, u64>>) -> C {
    fields.into_iter().flat_map(|fields| fields.iter()).map(FieldId).collect()
}

fn table_entry(what: &str, entry: fb::TableEntry<'_>) -> Result<TableEntry> {
    let root = match (entry.inline(), entry.object()) {
        (Some(root), None) => RootRef::Inline(table_root(what, root)?),
        (None, Some(object)) => RootRef::Object(pointer(what, object)?),
        _ => return corrupt(what, format!("table '{}' needs one root, inline or an object", entry.name())),
    };
    if let RootRef::Inline(root) = &root {
        let rows = root.pages.iter().try_fold(0u64, |rows, page| rows.checked_add(page.rows));
        if rows != Some(entry.rows()) {
            return corrupt(what, format!("the rows of table '{}' don't add up to {}", entry.name(), entry.rows()));
        }
    }
    Ok(TableEntry { name: entry.name().to_owned(), id: id(what, entry.id())?, rows: entry.rows(), root })
}

fn change(what: &str, change: fb::Change<'_>) -> Result<Change> {
    let fragments = change.fragments().map_or(&[][..], |ids| ids.bytes());
    let (fragments, rest) = fragments.as_chunks::<16>();
    if !rest.is_empty() {
        return corrupt(what, "the fragments of a change are not 16 bytes each");
    }
    Ok(Change {
        table: id(what, change.table())?,
        kind: change.kind().to_owned(),
        rows_added: change.rows_added(),
        fragments: fragments.iter().map(|bytes| Id::from_bytes(*bytes)).collect(),
        fields: fields(change.fields()),
        rows_deleted: change.rows_deleted(),
        rows_changed: change.rows_changed(),
    })
}

fn table_root(what: &str, root: fb::TableRoot<'_>) -> Result<TableRoot> {
    let columns = list(Some(root.columns()), |item| column(what, item))?;
    let schema = Schema::new(columns).or_else(|error| corrupt(what, error.to_string()))?;
    let key: Vec<FieldId> = fields(root.key());
    if key.iter().any(|field| !schema.columns.iter().any(|column| column.field == *field)) {
        return corrupt(what, "its key has a column that the table lacks");
    }
    let pages = list(root.pages(), |reference| page_ref(what, reference))?;
    Ok(TableRoot { schema, pages, key, defaults: list(root.defaults(), |file| data_file(what, file))? })
}

fn column(what: &str, column: fb::Column<'_>) -> Result<Column> {
    let what = format!("column '{}' of a {what}", column.name());
    Ok(Column {
        name: column.name().to_owned(),
        field: FieldId(column.field()),
        dtype: dtype(&what, column.dtype())?,
        shape: dims(&what, column.shape())?,
        nullable: column.nullable(),
        compression: Compression { codec: codec(&what, column.codec(), column.level())?, shuffle: column.shuffle() },
        kind: Kind { name: column.kind().unwrap_or_default().to_owned(), metadata: properties(column.metadata()) },
    })
}

pub(crate) fn dtype(what: &str, name: &str) -> Result<DType> {
    name.parse().or_else(|_| unsupported(what, format!("dtype '{name}'")))
}

pub(crate) fn dims(what: &str, shape: Option<Vector<'_, i64>>) -> Result<Vec<Dim>> {
    let dim = |length: i64| match u32::try_from(length) {
        Ok(length) => Ok(Dim::Fixed(length)),
        Err(_) if length == -1 => Ok(Dim::Free),
        Err(_) => corrupt(what, format!("a dimension has length {length}")),
    };
    shape.map_or(Ok(Vec::new()), |shape| shape.iter().map(dim).collect())
}

pub(crate) fn codec(what: &str, name: &str, level: i32) -> Result<Codec> {
    match name {
        "none" => Ok(Codec::None),
        "lz4" => Ok(Codec::Lz4),
        "zstd" => Ok(Codec::Zstd { level }),
        other => unsupported(what, format!("codec '{other}'")),
    }
}

fn page_ref(what: &str, reference: fb::PageRef<'_>) -> Result<PageRef> {
    let page = match (reference.inline(), reference.object()) {
        (Some(inline), None) => PageLocation::Inline(page::read(what, inline)?),
        (None, Some(object)) => PageLocation::Object(pointer(what, object)?),
        _ => return corrupt(what, "a page reference needs one page, inline or an object"),
    };
    let reference =
        PageRef { fragments: reference.fragments(), rows: reference.rows(), bytes: reference.bytes(), page };
    if let PageLocation::Inline(page) = &reference.page {
        let rows: u64 = page.fragments.iter().map(|fragment| u64::from(fragment.live())).sum();
        if page.fragments.len() as u64 != u64::from(reference.fragments) || rows != reference.rows {
            return corrupt(what, "the fragments or rows of an inline page don't add up");
        }
    }
    Ok(reference)
}

pub(super) fn fragment(what: &str, fragment: fb::Fragment<'_>) -> Result<Fragment> {
    let fragment = Fragment {
        id: id(what, fragment.id())?,
        rows: fragment.rows(),
        files: list(fragment.files(), |file| data_file(what, file))?,
        deleted: row_set(what, fragment.deleted())?,
        overlays: list(fragment.overlays(), |item| overlay(what, item))?,
        origins: fragment.origins().map(|origins| pointer(what, origins).map(Box::new)).transpose()?,
    };
    page::check_rows(what, &fragment)?;
    Ok(fragment)
}

pub(super) fn row_set(what: &str, bytes: Option<Vector<'_, u8>>) -> Result<RowSet> {
    bytes.map_or(Ok(RowSet::new()), |bytes| RowSet::decode(what, bytes.bytes()))
}

pub(super) fn overlay(what: &str, overlay: fb::Overlay<'_>) -> Result<Overlay> {
    let (rows, first) = (row_set(what, Some(overlay.rows()))?, overlay.first());
    if first.checked_add(rows.len()).is_none() {
        return corrupt(what, "an overlay's rows lie past the last row that there can be");
    }
    Ok(Overlay { file: data_file(what, overlay.file())?, rows, first })
}

fn origin(what: &str, origin: fb::Origin<'_>) -> Result<Origin> {
    let edit = |edit: fb::Edit<'_>| {
        let (file, rows) = (id(what, edit.file())?, row_set(what, Some(edit.rows()))?);
        Ok(Edit { file, rows, fields: fields(edit.fields()) })
    };
    Ok(Origin {
        fragment: id(what, origin.fragment())?,
        rows: row_set(what, Some(origin.rows()))?,
        edits: list(origin.edits(), edit)?,
    })
}

pub(super) fn data_file(what: &str, file: fb::DataFile<'_>) -> Result<DataFileRef> {
    let file = DataFileRef {
        id: id(what, file.id())?,
        size: file.size(),
        index_offset: file.index_offset(),
        index_length: file.index_length(),
        fields: fields(file.fields()),
    };
    file.check().or_else(|error| corrupt(what, error.to_string()))?;
    Ok(file)
}
