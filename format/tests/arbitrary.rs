//! Random metadata objects.

use std::collections::BTreeMap;

use forebay_format::{meta::*, *};
use proptest::{collection::vec, option, prelude::*};

pub fn id<T: 'static>() -> impl Strategy<Value = Id<T>> {
    any::<[u8; 16]>().prop_map(Id::from_bytes)
}

pub fn pointer() -> impl Strategy<Value = Pointer> {
    (id(), any::<u32>(), any::<[u8; 32]>()).prop_map(|(id, length, hash)| Pointer { id, length, hash })
}

fn properties() -> impl Strategy<Value = BTreeMap<String, String>> {
    proptest::collection::btree_map(".{0,6}", ".{0,6}", 0..3)
}

fn fields() -> impl Strategy<Value = Vec<FieldId>> {
    vec(any::<u64>().prop_map(FieldId), 0..4)
}

pub fn dtype() -> impl Strategy<Value = DType> {
    proptest::sample::select(DType::ALL.to_vec())
}

pub fn compression() -> impl Strategy<Value = Compression> {
    prop_oneof![
        Just(Compression::default()),
        any::<bool>().prop_map(|shuffle| Compression { codec: Codec::Lz4, shuffle }),
        (1..5, any::<bool>()).prop_map(|(level, shuffle)| Compression { codec: Codec::Zstd { level }, shuffle }),
    ]
}

pub fn column() -> impl Strategy<Value = Column> {
    let dim = prop_oneof![3 => (0u32..5).prop_map(Dim::Fixed), 1 => Just(Dim::Free)];
    let kind = ("[a-z]{0,5}", properties()).prop_map(|(name, metadata)| Kind { name, metadata });
    (".{1,8}", any::<u64>(), dtype(), vec(dim, 0..4), any::<bool>(), compression(), kind).prop_map(
        |(name, field, dtype, mut shape, nullable, compression, kind)| {
            if dtype.item_size().is_none() {
                shape.clear();
            }
            Column { name, field: FieldId(field), dtype, shape, nullable, compression, kind }
        },
    )
}

pub fn schema() -> impl Strategy<Value = Schema> {
    vec(column(), 1..5).prop_filter_map("columns differ", |columns| Schema::new(columns).ok())
}

fn data_file() -> impl Strategy<Value = DataFileRef> {
    (id(), 4096u64..1 << 40, 0u32..4 << 20, fields()).prop_map(|(id, index_offset, index_length, fields)| {
        let size = index_offset + u64::from(index_length) + Footer::SIZE as u64;
        DataFileRef { id, size, index_offset, index_length, fields }
    })
}

pub fn page() -> impl Strategy<Value = Page> {
    let fragment = (id(), any::<u32>(), vec(data_file(), 0..3)).prop_map(|(id, rows, files)| Fragment { id, rows, files });
    vec(fragment, 0..4).prop_map(|fragments| Page { fragments })
}

fn page_ref() -> impl Strategy<Value = PageRef> {
    let inline = (page(), any::<u64>()).prop_map(|(page, bytes)| PageRef {
        fragments: page.fragments.len() as u32,
        rows: page.fragments.iter().map(|fragment| u64::from(fragment.rows)).sum(),
        bytes,
        page: PageLocation::Inline(page),
    });
    let object = (any::<u32>(), 0..1u64 << 60, any::<u64>(), pointer()).prop_map(|(fragments, rows, bytes, object)| {
        PageRef { fragments, rows, bytes, page: PageLocation::Object(object) }
    });
    prop_oneof![inline, object]
}

pub fn table_root() -> impl Strategy<Value = TableRoot> {
    (schema(), vec(page_ref(), 0..4)).prop_map(|(schema, pages)| TableRoot { schema, pages })
}

pub fn commit() -> impl Strategy<Value = Commit> {
    let entry = (".{0,8}", id(), any::<u64>(), prop_oneof![
        table_root().prop_map(RootRef::Inline),
        pointer().prop_map(RootRef::Object)
    ])
        .prop_map(|(name, id, rows, root)| {
            let rows = match &root {
                RootRef::Inline(root) => root.pages.iter().map(|page| page.rows).sum(),
                RootRef::Object(_) => rows,
            };
            TableEntry { name, id, rows, root }
        });
    let change = (id(), "[a-z]{1,8}", any::<u64>(), vec(id(), 0..4), fields()).prop_map(
        |(table, kind, rows_added, fragments, fields)| Change { table, kind, rows_added, fragments, fields },
    );
    let text = (".{0,8}", ".{0,20}");
    (id(), vec(pointer(), 0..3), any::<u64>(), text, any::<i64>(), vec(entry, 0..3), vec(change, 0..3), properties())
        .prop_map(|(id, parents, generation, (author, message), time, tables, changes, properties)| Commit {
            id,
            parents,
            generation,
            author,
            message,
            time,
            tables,
            changes,
            properties,
        })
}

pub fn marker() -> impl Strategy<Value = LakeMarker> {
    (id(), any::<i64>()).prop_map(|(id, created)| LakeMarker { id, created })
}

fn embedded() -> impl Strategy<Value = (Pointer, Vec<u8>)> {
    (id(), option::of(commit()), vec(any::<u8>(), 0..50)).prop_map(|(id, commit, bytes)| {
        let bytes = commit.map_or(bytes, |commit| commit.encode().unwrap());
        (Pointer::to(id, &bytes), bytes)
    })
}

pub fn ref_entry() -> impl Strategy<Value = RefEntry> {
    let kind = proptest::sample::select(vec![RefKind::Create, RefKind::Commit, RefKind::Noop]);
    (kind, any::<u64>(), embedded(), any::<i64>()).prop_map(|(kind, nonce, (commit, embedded), time)| RefEntry {
        kind,
        nonce,
        commit,
        embedded,
        time,
    })
}

pub fn tag() -> impl Strategy<Value = Tag> {
    (embedded(), ".{0,8}", any::<i64>())
        .prop_map(|((commit, embedded), author, time)| Tag { commit, embedded, author, time })
}
