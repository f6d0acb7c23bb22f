//! Random metadata objects.

use std::collections::BTreeMap;

use forebay_format::{meta::*, *};
use proptest::{collection::vec, option, prelude::*};

use crate::model::Row;

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
        DataFileRef { id, size, index_offset, index_length, fields: fields.into() }
    })
}

pub fn page() -> impl Strategy<Value = Page> {
    let overlay = (data_file(), row_set(), 0_u32..9).prop_map(|(file, rows, first)| Overlay { file, rows, first });
    let edits = (row_set(), vec(overlay, 0..3), option::of(pointer()));
    let fragment = (id(), 1000_u32.., vec(data_file(), 0..3), edits).prop_map(|(id, rows, files, edits)| {
        let (deleted, overlays, origins) = edits;
        let origins = origins.map(Box::new);
        Fragment { id, rows, files, deleted, overlays, origins }
    });
    prop_oneof![vec(fragment, 0..4), packed()].prop_map(|fragments| Page { fragments })
}

/// Fragments that all have a file, neighbours often with the same columns, and files often with the fragment's id.
fn packed() -> impl Strategy<Value = Vec<Fragment>> {
    let overlay = (data_file(), row_set(), 0_u32..9).prop_map(|(file, rows, first)| Overlay { file, rows, first });
    let edits = (vec(data_file(), 0..2), row_set(), vec(overlay, 0..2), option::of(pointer()));
    let edits = option::weighted(0.3, edits);
    let fragment = (data_file(), 0_usize..2, any::<bool>(), any::<u32>(), edits);
    (vec(fields(), 2), vec(fragment, 1..12)).prop_map(|(lists, fragments)| {
        let fragment = |(mut file, list, own, rows, edits): (DataFileRef, usize, bool, u32, Option<_>)| {
            file.fields = lists[list].clone().into();
            let id = if own { file.id.cast() } else { Id::random() };
            let mut fragment = Fragment::new(id, rows, vec![file]);
            if let Some((files, deleted, overlays, origins)) = edits {
                fragment.rows = rows.max(1000);
                fragment.files.extend::<Vec<_>>(files);
                (fragment.deleted, fragment.overlays) = (deleted, overlays);
                fragment.origins = Option::map(origins, Box::new);
            }
            fragment
        };
        fragments.into_iter().map(fragment).collect()
    })
}

pub fn row_set() -> impl Strategy<Value = RowSet> {
    vec((0_u32..1000, 0_u32..20), 0..5)
        .prop_map(|runs| runs.into_iter().map(|(start, length)| start..(start + length).min(1000)).collect())
}

pub fn origins() -> impl Strategy<Value = Origins> {
    let edit = (id(), row_set(), fields()).prop_map(|(file, rows, fields)| Edit { file, rows, fields });
    let origin =
        (id(), row_set(), vec(edit, 0..3)).prop_map(|(fragment, rows, edits)| Origin { fragment, rows, edits });
    vec(origin, 0..4).prop_map(|origins| Origins { origins })
}

fn page_ref() -> impl Strategy<Value = PageRef> {
    let inline = (page(), any::<u64>()).prop_map(|(page, bytes)| PageRef {
        fragments: page.fragments.len() as u32,
        rows: page.fragments.iter().map(|fragment| u64::from(fragment.live())).sum(),
        bytes,
        page: PageLocation::Inline(page),
    });
    let object = (any::<u32>(), 0..1u64 << 60, any::<u64>(), pointer()).prop_map(|(fragments, rows, bytes, object)| {
        PageRef { fragments, rows, bytes, page: PageLocation::Object(object) }
    });
    prop_oneof![inline, object]
}

pub fn table_root() -> impl Strategy<Value = TableRoot> {
    let defaults = vec(data_file(), 0..2);
    (schema(), vec(page_ref(), 0..4), any::<bool>(), defaults).prop_map(|(schema, pages, keyed, defaults)| {
        let key = schema.columns.iter().take(usize::from(keyed)).map(|column| column.field).collect();
        TableRoot { schema, pages, key, defaults }
    })
}

pub fn commit() -> impl Strategy<Value = Commit> {
    let entry = (
        ".{0,8}",
        id(),
        any::<u64>(),
        prop_oneof![table_root().prop_map(RootRef::Inline), pointer().prop_map(RootRef::Object)],
    )
        .prop_map(|(name, id, rows, root)| {
            let rows = match &root {
                RootRef::Inline(root) => root.pages.iter().map(|page| page.rows).sum(),
                RootRef::Object(_) => rows,
            };
            TableEntry { name, id, rows, root }
        });
    let change = (id(), "[a-z]{1,8}", any::<[u64; 3]>(), vec(id(), 0..4), fields()).prop_map(
        |(table, kind, [rows_added, rows_deleted, rows_changed], fragments, fields)| Change {
            table,
            kind,
            rows_added,
            fragments,
            fields,
            rows_deleted,
            rows_changed,
        },
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
    (id(), any::<i64>(), any::<bool>()).prop_map(|(id, created, purges)| LakeMarker { id, created, purges })
}

fn embedded() -> impl Strategy<Value = (Pointer, Vec<u8>)> {
    (id(), option::of(commit()), vec(any::<u8>(), 0..50)).prop_map(|(id, commit, bytes)| {
        let bytes = commit.map_or(bytes, |commit| commit.encode().unwrap());
        (Pointer::to(id, &bytes), bytes)
    })
}

pub fn ref_entry() -> impl Strategy<Value = RefEntry> {
    let kind = proptest::sample::select(vec![RefKind::Create, RefKind::Commit, RefKind::Noop, RefKind::Fence]);
    let numbers = (any::<u64>(), any::<i64>(), any::<u64>(), any::<u64>());
    (kind, embedded(), numbers).prop_map(|(kind, (commit, embedded), (nonce, time, epoch, purged))| RefEntry {
        kind,
        nonce,
        commit,
        embedded,
        time,
        epoch,
        purged,
    })
}

pub fn pin() -> impl Strategy<Value = Pin> {
    let commits = vec(embedded().prop_map(|(commit, _)| commit), 0..3);
    let numbers = (any::<u64>(), any::<i64>(), any::<bool>());
    (id(), commits, numbers, ".{0,8}").prop_map(|(id, commits, (lease, since, orphans), holder)| Pin {
        id,
        commits,
        lease,
        since,
        orphans,
        holder,
    })
}

pub fn gc_record() -> impl Strategy<Value = GcRecord> {
    let pins = (any::<u64>(), vec(id(), 0..4)).prop_map(|(nonce, pins)| GcRecord::Pins { nonce, pins });
    let verdict = (any::<u64>(), vec(id(), 0..4), vec(id(), 0..4), any::<bool>())
        .prop_map(|(nonce, dropped, expired, called_off)| GcRecord::Verdict { nonce, dropped, expired, called_off });
    proptest::prop_oneof![
        (any::<u64>(), any::<u64>()).prop_map(|(nonce, grace)| GcRecord::Start { nonce, grace }),
        pins,
        verdict,
        any::<u64>().prop_map(|nonce| GcRecord::Done { nonce }),
    ]
}

pub fn tag() -> impl Strategy<Value = Tag> {
    (embedded(), ".{0,8}", any::<i64>()).prop_map(|((commit, embedded), author, time)| Tag {
        commit,
        embedded,
        author,
        time,
    })
}

/// A name below a base.
pub fn name() -> impl Strategy<Value = String> {
    let part = "[a-zA-Z0-9äß _.#%-]{1,9}".prop_filter("a part of a name", |part| !matches!(part.as_str(), "." | ".."));
    vec(part, 1..4).prop_map(|parts| parts.join("/"))
}

pub fn link() -> impl Strategy<Value = Link> {
    let url = (prop::sample::select(vec!["", "/", "s3://bucket/", "https://host/"]), name());
    let checks = (option::of("[ -~]{1,40}"), option::of(any::<[u8; 32]>()));
    let checks =
        checks.prop_filter("a link is checked by one at least", |(etag, hash)| etag.is_some() || hash.is_some());
    (url, any::<u64>(), option::of((any::<u64>(), any::<u64>())), checks).prop_map(
        |((place, name), size, part, (etag, hash))| {
            let bound = |byte: u64| if size == u64::MAX { byte } else { byte % (size + 1) };
            let part = part.map(|(a, b)| bound(a.min(b)).min(bound(a.max(b)))..bound(a.min(b)).max(bound(a.max(b))));
            Link { url: format!("{place}{name}"), size, part, etag, hash }
        },
    )
}

/// Rows that fit a column.
pub fn rows(column: &Column, max: usize) -> BoxedStrategy<Vec<Row>> {
    let column = column.clone();
    let media_rank = if column.dtype == DType::Bytes { 0usize..4 } else { 0..1 };
    (0..=max, media_rank)
        .prop_flat_map(move |(count, media)| {
            let column = column.clone();
            vec(row(&column, media), count)
        })
        .boxed()
}

fn row(column: &Column, media: usize) -> BoxedStrategy<Row> {
    let valid = if column.nullable { prop::bool::weighted(0.8).boxed() } else { Just(true).boxed() };
    let bytes = |length: usize| {
        prop_oneof![
            // Both what compresses and what doesn't.
            vec(any::<u8>(), length),
            any::<u8>().prop_map(move |byte| vec![byte; length]),
        ]
    };
    let value: BoxedStrategy<(Vec<u32>, Vec<u8>)> = match (column.dtype, column.layout()) {
        (DType::Utf8 | DType::Json, _) => prop_oneof![4 => ".{0,12}", 1 => ".{0,300}"]
            .prop_map(|text: String| (Vec::new(), text.into_bytes()))
            .boxed(),
        (DType::Link, _) => link().prop_map(|link| (Vec::new(), link.encode().unwrap())).boxed(),
        (DType::Bytes, _) => {
            let length = prop_oneof![4 => 0usize..20, 1 => 0usize..500];
            (vec(0u32..1000, media), length.prop_flat_map(bytes)).boxed()
        }
        (_, Layout::Fixed { row_bytes }) => bytes(row_bytes).prop_map(|bytes| (Vec::new(), bytes)).boxed(),
        (dtype, Layout::Ragged { .. }) => {
            let item = dtype.item_size().unwrap();
            let dims: Vec<_> = column
                .shape
                .iter()
                .map(|dim| match dim {
                    Dim::Fixed(length) => Just(*length).boxed(),
                    Dim::Free => prop_oneof![4 => 0u32..4, 1 => 0u32..60].boxed(),
                })
                .collect();
            dims.prop_flat_map(move |shape| {
                let length = item * shape.iter().product::<u32>() as usize;
                bytes(length).prop_map(move |bytes| (shape.clone(), bytes))
            })
            .boxed()
        }
    };
    let layout = column.layout();
    (valid, value)
        .prop_map(move |(valid, (shape, mut bytes))| {
            match layout {
                _ if valid => {}
                Layout::Fixed { .. } => bytes.fill(0),
                Layout::Ragged { .. } => bytes.clear(),
            }
            Row { valid, shape, bytes }
        })
        .boxed()
}
