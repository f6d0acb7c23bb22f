//! Files of every version of the format, which every later version must read.
//!
//! `tests/golden/v1` was written by the first. A file that is missing there is written by
//! `FOREBAY_GOLDEN=write cargo test -p forebay-format`; one that is there is never written again.

use std::{collections::BTreeMap, fmt::Debug, path::PathBuf};

use forebay_format::{meta::*, *};

use crate::model::{File, Row};

fn golden(name: &str, write: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1").join(name);
    if !path.exists() && std::env::var_os("FOREBAY_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, write()).unwrap();
    }
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The bytes of a golden metadata object.
pub fn object(name: &str) -> Vec<u8> {
    golden(name, || panic!("written by golden_metadata_objects_are_read"))
}

fn id<T>(byte: u8) -> Id<T> {
    Id::from_bytes([byte; 16])
}

fn column(name: &str, field: u64, dtype: DType, shape: &[Dim], codec: Codec, shuffle: bool) -> Column {
    Column {
        name: name.into(),
        field: FieldId(field),
        dtype,
        shape: shape.to_vec(),
        nullable: false,
        compression: Compression { codec, shuffle },
        kind: Kind::default(),
    }
}

fn rows(make: impl Fn(u32) -> (Vec<u32>, Vec<u8>)) -> Vec<Row> {
    let row = |row| {
        let (shape, bytes) = make(row);
        Row { valid: true, shape, bytes }
    };
    (0..3).map(row).collect()
}

/// One column of each way that bytes lie in a file.
fn table() -> Vec<(Column, Vec<Row>)> {
    let mut image =
        column("image", 0x11, DType::U8, &[Dim::Fixed(3), Dim::Fixed(2), Dim::Fixed(2)], Codec::None, false);
    image.kind = Kind { name: "image".into(), metadata: BTreeMap::from([("layout".into(), "CHW".into())]) };
    let images = rows(|row| (vec![], (0..12).map(|byte| (row * 50 + byte) as u8).collect()));

    let mut label = column("label", 0x12, DType::I64, &[], Codec::Lz4, true);
    label.nullable = true;
    let mut labels = rows(|row| (vec![], i64::from(row * 1000).to_le_bytes().to_vec()));
    labels[1] = Row { valid: false, shape: vec![], bytes: vec![0; 8] };

    let large = column("large", 0x13, DType::F32, &[Dim::Fixed(40)], Codec::Zstd { level: 3 }, true);
    let larges = rows(|row| (vec![], (0..40).flat_map(|item| ((row + item / 10) as f32).to_le_bytes()).collect()));

    let ragged = column("points", 0x14, DType::I16, &[Dim::Free, Dim::Fixed(2)], Codec::None, false);
    let points = rows(|row| (vec![row * 20, 2], (0..row * 80).map(|byte| byte as u8).collect()));

    let text = column("text", 0x15, DType::Utf8, &[], Codec::Zstd { level: 1 }, false);
    let texts = rows(|row| (vec![], "löwe ".repeat(row as usize * 9).into_bytes()));

    let media = column("photo", 0x16, DType::Bytes, &[], Codec::None, false);
    let medias = rows(|row| (vec![row + 1, 9, 3], vec![row as u8; 5]));
    vec![(image, images), (label, labels), (large, larges), (ragged, points), (text, texts), (media, medias)]
}

/// The golden data file, with its reference.
pub fn data_file() -> File {
    let options = WriteOptions { block_bytes: 64, ..Default::default() };
    let write = || File::write_as(id(7), &table(), 2, options).unwrap();
    let bytes = golden("data", || write().bytes);
    let page = Page::decode(&golden("page", || page(&write().reference).encode().unwrap())).unwrap();
    File { bytes, reference: page.fragments[0].files[0].clone() }
}

#[test]
fn a_golden_data_file_is_read() {
    let file = data_file();
    file.verify().unwrap();
    let index = file.index().unwrap();
    for (column, rows) in table() {
        let found = index.column(column.field).unwrap();
        assert_eq!(found.name(), column.name);
        assert_eq!(file.read(found, 0..3).unwrap(), crate::model::batch(&column, &rows));
    }
    let label = index.column(FieldId(0x12)).unwrap().chunks()[0].stats.clone().unwrap();
    let (min, max) = (Some(Bound::Int(0)), Some(Bound::Int(2000)));
    assert_eq!(label, Stats { nulls: 1, nans: None, distinct: Some(2), min, max });
}

fn page(file: &DataFileRef) -> Page {
    Page { fragments: vec![Fragment::new(id(6), 3, vec![file.clone()])] }
}

/// A page whose fragment has lost a row and got new values for two.
fn edited() -> Page {
    let file = data_file().reference;
    let overlay = DataFileRef { id: id(20), fields: [FieldId(0x12)].into(), ..file.clone() };
    let mut fragment = Fragment::new(id(6), 300, vec![file]);
    fragment.deleted = RowSet::of(vec![1, 200, 201, 299]);
    fragment.overlays = vec![Overlay { file: overlay, rows: RowSet::of(vec![0, 2]), first: 1 }];
    fragment.origins = Some(Box::new(Pointer { id: id(21), length: 200, hash: [0x12; 32] }));
    Page { fragments: vec![fragment] }
}

/// Fragments in runs: of two lists of columns, some named as their files and some not, two of them edited.
fn packed() -> Page {
    let reference = data_file().reference;
    let fragment = |byte, file, rows, fields| {
        let file = DataFileRef { id: id(file), fields, ..reference.clone() };
        Fragment::new(id(byte), rows, vec![file])
    };
    let some: std::sync::Arc<[FieldId]> = [FieldId(0x11), FieldId(0x12)].into();
    let mut second = fragment(51, 51, 300, some.clone());
    second.deleted = RowSet::of(vec![1, 200, 201, 299]);
    let mut third = fragment(52, 62, 70_000, some.clone());
    third.files.push(DataFileRef { id: id(63), fields: [FieldId(0x13)].into(), ..reference.clone() });
    let overlay = DataFileRef { id: id(20), fields: [FieldId(0x12)].into(), ..reference.clone() };
    third.overlays = vec![Overlay { file: overlay, rows: RowSet::of(vec![0, 2]), first: 1 }];
    third.origins = Some(Box::new(Pointer { id: id(21), length: 200, hash: [0x12; 32] }));
    let last = fragment(53, 53, u32::MAX, [FieldId(0x14)].into());
    Page { fragments: vec![fragment(50, 50, 3, some), second, third, last] }
}

/// A root whose last page is packed in it.
fn packed_root() -> TableRoot {
    let page = packed();
    let rows = page.fragments.iter().map(|fragment| u64::from(fragment.live())).sum();
    let mut root = table_root();
    root.pages[1] = PageRef { fragments: 4, rows, bytes: 200_000, page: PageLocation::Inline(page) };
    root
}

fn origins() -> Origins {
    let edit = Edit { file: id(20), rows: RowSet::of(vec![0, 2]), fields: vec![FieldId(0x12)] };
    let first = Origin { fragment: id(22), rows: RowSet::range(0..100), edits: vec![edit] };
    let second = Origin { fragment: id(23), rows: RowSet::range(7..207), edits: Vec::new() };
    Origins { origins: vec![first, second] }
}

fn keyed() -> TableRoot {
    let default = DataFileRef { id: id(24), fields: [FieldId(0x12)].into(), ..data_file().reference };
    TableRoot { key: vec![FieldId(0x12)], defaults: vec![default], ..table_root() }
}

fn table_root() -> TableRoot {
    let columns = table().into_iter().map(|(column, _)| column).collect();
    let inline = page(&data_file().reference);
    let object = Pointer { id: id(8), length: 300, hash: [0xab; 32] };
    TableRoot {
        schema: Schema { columns },
        pages: vec![
            PageRef { fragments: 2, rows: 10, bytes: 5000, page: PageLocation::Object(object) },
            PageRef { fragments: 1, rows: 3, bytes: 40_000, page: PageLocation::Inline(inline) },
        ],
        key: Vec::new(),
        defaults: Vec::new(),
    }
}

fn commit() -> Commit {
    let object = Pointer { id: id(10), length: 70_000, hash: [0xcd; 32] };
    Commit {
        id: id(1),
        parents: vec![Pointer { id: id(2), length: 600, hash: [0xef; 32] }],
        generation: 5,
        author: "Ada".into(),
        message: "Add photos".into(),
        time: 1_700_000_000_000_000,
        tables: vec![
            TableEntry { name: "main".into(), id: id(3), rows: 13, root: RootRef::Inline(table_root()) },
            TableEntry { name: "more".into(), id: id(4), rows: 99, root: RootRef::Object(object) },
        ],
        changes: vec![Change {
            table: id(3),
            kind: "append".into(),
            rows_added: 3,
            fragments: vec![id(6)],
            fields: vec![FieldId(0x11)],
            rows_deleted: 0,
            rows_changed: 0,
        }],
        properties: BTreeMap::from([("run".into(), "17".into())]),
    }
}

fn check<T: PartialEq + Debug>(
    name: &str,
    expected: T,
    encode: impl FnOnce(&T) -> Result<Vec<u8>>,
    decode: impl FnOnce(&[u8]) -> Result<T>,
) {
    let bytes = golden(name, || encode(&expected).unwrap());
    assert_eq!(decode(&bytes).unwrap(), expected, "{name}");
}

#[test]
fn golden_metadata_objects_are_read() {
    check(
        "lake",
        LakeMarker { id: id(9), created: 1_600_000_000_000_000, purges: false },
        LakeMarker::encode,
        LakeMarker::decode,
    );
    check("commit", commit(), Commit::encode, Commit::decode);
    check("root", table_root(), TableRoot::encode, TableRoot::decode);
    check("page", page(&data_file().reference), Page::encode, Page::decode);
    check("page-edits", edited(), Page::encode, Page::decode);
    check("page-runs", packed(), Page::encode, Page::decode);
    check("root-runs", packed_root(), TableRoot::encode, TableRoot::decode);
    check("root-key", keyed(), TableRoot::encode, TableRoot::decode);
    check("origins", origins(), Origins::encode, Origins::decode);
    let embedded = golden("commit", || commit().encode().unwrap());
    let pointer = Pointer::to(id(1), &embedded);
    let time = 1_700_000_000_000_001;
    for (name, kind) in [
        ("create", RefKind::Create),
        ("commit", RefKind::Commit),
        ("noop", RefKind::Noop),
        ("reset", RefKind::Reset),
        ("delete", RefKind::Delete),
    ] {
        let entry = RefEntry {
            kind,
            nonce: 0x1234_5678_9abc_def0,
            commit: pointer,
            embedded: embedded.clone(),
            time,
            epoch: 0,
            purged: 0,
        };
        check(&format!("ref-{name}"), entry, RefEntry::encode, RefEntry::decode);
    }
    let entry = RefEntry {
        kind: RefKind::Fence,
        nonce: 7,
        commit: pointer,
        embedded: embedded.clone(),
        time,
        epoch: 3,
        purged: 0,
    };
    check("ref-fence", entry, RefEntry::encode, RefEntry::decode);
    check("tag", Tag { commit: pointer, embedded, author: "Ada".into(), time }, Tag::encode, Tag::decode);
}

#[test]
fn golden_pins_and_records_of_collections_are_read() {
    let commits = vec![Pointer { id: id(1), length: 600, hash: [0xef; 32] }];
    let (lease, since, orphans, holder) = (600_000_000, 1_700_000_000_000_000, true, "Ada".to_owned());
    check("pin", Pin { id: id(30), commits, lease, since, orphans, holder }, Pin::encode, Pin::decode);
    let (nonce, pins) = (0x1234_5678_9abc_def0, vec![id(30), id(31)]);
    let (dropped, expired) = (vec![id(32)], vec![id(33), id(34)]);
    for record in [
        GcRecord::Start { nonce, grace: 86_400_000_000 },
        GcRecord::Pins { nonce, pins },
        GcRecord::Verdict { nonce, dropped, expired, called_off: true },
        GcRecord::Done { nonce },
    ] {
        check(&format!("gc-{}", record.step()), record, GcRecord::encode, GcRecord::decode);
    }
}

#[test]
fn a_golden_purge_and_a_marker_that_tells_of_it_are_read() {
    let marker = LakeMarker { id: id(9), created: 1_600_000_000_000_000, purges: true };
    check("lake-purges", marker, LakeMarker::encode, LakeMarker::decode);
    let purge = Purge {
        id: id(40),
        table: id(3),
        author: "Ada".into(),
        reason: "a request to be forgotten".into(),
        time: 1_700_000_000_000_000,
        rows: 2,
        hidden: vec![(id(6), RowSet::of(vec![0, 2]))],
        files: vec![(id(41), data_file().reference)],
    };
    check("purge", purge, Purge::encode, Purge::decode);
}

/// What a reader of an earlier version meets when a later one used a feature that it doesn't know.
#[test]
fn an_unknown_feature_bit_is_refused_by_its_number() {
    for name in ["lake", "commit", "root", "page", "page-runs", "ref-commit", "tag", "pin", "gc-verdict", "purge"] {
        let mut bytes = object(name);
        bytes[16 + 5] |= 1 << 3;
        let crc = crc32c(&[&bytes[..28], &bytes[32..]].concat());
        bytes[28..32].copy_from_slice(&crc.to_le_bytes());
        let errors = [
            LakeMarker::decode(&bytes).map(drop),
            Commit::decode(&bytes).map(drop),
            TableRoot::decode(&bytes).map(drop),
            Page::decode(&bytes).map(drop),
            RefEntry::decode(&bytes).map(drop),
            Tag::decode(&bytes).map(drop),
            Pin::decode(&bytes).map(drop),
            GcRecord::decode(&bytes).map(drop),
            Purge::decode(&bytes).map(drop),
        ];
        let refused =
            errors.into_iter().filter_map(Result::err).filter(|error| matches!(error, Error::Unsupported { .. }));
        let texts: Vec<_> = refused.map(|error| error.to_string()).collect();
        assert_eq!(texts.len(), 1, "{name}");
        assert!(texts[0].contains("needs feature bit 43: use a newer forebay"), "{}", texts[0]);
    }
}
