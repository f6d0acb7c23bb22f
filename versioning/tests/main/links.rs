//! Links: what they lead to is what was linked, or an error that says what changed; and they lead nowhere but where they may.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use forebay_format::{Column, ColumnData, DType, Kind, Link, OwnedValues, Schema};
use forebay_storage::{
    Options, Storage,
    testing::{Fault, FaultStore, OpKind, Rule},
};
use forebay_versioning::{
    At, CompactOptions, Error, GcOptions, Lake, Linked, MergeOptions, Rows, Selection, Table, Transaction,
};

use crate::support::block_on;

fn memory() -> Storage {
    Storage::open(&format!("memory://{}", uuid::Uuid::new_v4()), &Options::default()).unwrap()
}

fn folder(folder: &tempfile::TempDir) -> Storage {
    Storage::open(folder.path().to_str().unwrap(), &Options::default()).unwrap()
}

fn content(name: &str) -> Bytes {
    format!("the bytes of {name}").into()
}

/// Puts an object and links to it by its etag.
async fn linked(photos: &Storage, name: &str) -> Link {
    photos.put(name, content(name)).await.unwrap();
    let entry = photos.head(name).await.unwrap();
    Link { url: name.into(), size: entry.size, part: None, etag: entry.etag, hash: None }
}

fn column(base: Option<&str>) -> Column {
    let mut column = Column::new("photo", DType::Link, []).unwrap();
    column.nullable = true;
    let metadata = base.map(|base| BTreeMap::from([("base".to_owned(), base.to_owned())]));
    column.kind = Kind { name: "image".into(), metadata: metadata.unwrap_or_default() };
    column
}

fn cells(links: &[Option<Link>]) -> ColumnData {
    let values: Vec<_> = links.iter().map(|link| link.as_ref().map(|link| link.encode().unwrap())).collect();
    raw(&values)
}

fn raw(values: &[Option<Vec<u8>>]) -> ColumnData {
    let (mut offsets, mut bytes, mut validity) = (vec![0], Vec::new(), vec![0; values.len().div_ceil(8)]);
    for (row, value) in values.iter().enumerate() {
        if let Some(value) = value {
            bytes.extend(value);
            validity[row / 8] |= 1 << (row % 8);
        }
        offsets.push(bytes.len() as u64);
    }
    let rows = values.len();
    ColumnData { rows, values: OwnedValues::Ragged { offsets, shapes: Vec::new(), bytes }, validity: Some(validity) }
}

async fn append(transaction: &mut Transaction, links: &[Option<Link>]) {
    let writer = transaction.writer("main").await.unwrap();
    let data = cells(links);
    let write = move || {
        let mut writer = writer;
        writer.push(&[data.as_slice()])?;
        writer.finish()
    };
    transaction.append(tokio::task::spawn_blocking(write).await.unwrap().unwrap());
}

/// A lake with a table of one column of links.
async fn lake(storage: Storage, base: Option<&str>, links: &[Option<Link>]) -> Lake {
    let lake = Lake::create(storage).await.unwrap();
    let mut transaction = lake.begin("main").await.unwrap();
    transaction.create_table("main", Schema::new(vec![column(base)]).unwrap()).unwrap();
    append(&mut transaction, links).await;
    transaction.commit("links", "tester").await.unwrap();
    lake
}

async fn table(lake: &Lake) -> Table {
    lake.snapshot(&At::default()).await.unwrap().table("main").await.unwrap()
}

/// What all rows lead to.
async fn read(lake: &Lake) -> Vec<Result<Option<Bytes>, Error>> {
    let table = table(lake).await;
    table.take_linked("photo", &(0..table.rows()).collect::<Vec<_>>()).await.unwrap()
}

async fn all(lake: &Lake) -> Vec<Option<Bytes>> {
    read(lake).await.into_iter().collect::<Result<_, _>>().unwrap()
}

fn broken(found: &Result<Option<Bytes>, Error>) -> &str {
    match found {
        Err(Error::LinkBroken { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn links_lead_to_what_was_linked_by_name_by_url_in_part_and_by_hash() {
    block_on(async {
        let photos = memory();
        let (a, b) = (linked(&photos, "cat/a.jpg").await, linked(&photos, "dog/b.jpg").await);
        let whole = a.clone().below(photos.url());
        let part = |range: std::ops::Range<u64>| Link { part: Some(range), ..b.clone() };
        let hash = Some(Link::hash_of(&content("dog/b.jpg")[4..9]));
        let hashed = Link { hash, etag: None, ..part(4..9) };
        let links = [Some(a), None, Some(whole), Some(part(4..9)), Some(part(0..3)), Some(hashed), Some(part(7..7))];
        let lake = lake(memory(), Some(photos.url()), &links).await;
        lake.allow_links([photos]);
        let found = all(&lake).await;
        let texts: Vec<_> = found.iter().map(|bytes| bytes.as_deref().map(String::from_utf8_lossy)).collect();
        let (a, b) = ("the bytes of cat/a.jpg", "bytes");
        assert_eq!(
            texts,
            [Some(a.into()), None, Some(a.into()), Some(b.into()), Some("the".into()), Some(b.into()), Some("".into())]
        );

        let table = table(&lake).await;
        let values = table.read("photo", 0..7).await.unwrap();
        let OwnedValues::Ragged { offsets, bytes, .. } = values.values else { panic!() };
        let value = |row: usize| &bytes[offsets[row] as usize..offsets[row + 1] as usize];
        let follow = |row| table.follow(&table.schema().columns[0], value(row)).unwrap();
        let links: Vec<Linked> = [3, 0, 4, 2].map(follow).into();
        assert_eq!(Linked::by_object(&links), [vec![1, 3], vec![2, 0]], "together, in the order of their bytes");
        assert_eq!((links[0].length(), links[0].link().range()), (5, 4..9));
    });
}

#[test]
fn a_name_without_a_base_lies_below_the_lake_which_needs_no_permission() {
    block_on(async {
        let storage = memory();
        let link = linked(&storage, "photos/a.jpg").await;
        let lake = lake(storage, None, &[Some(link)]).await;
        assert_eq!(all(&lake).await, [Some(content("photos/a.jpg"))]);
    });
}

#[test]
fn what_changed_or_is_gone_is_named_and_the_other_rows_are_read() {
    block_on(async {
        let photos = memory();
        let names = ["same", "replaced", "longer", "gone", "hashed", "unhashed"];
        let mut links = Vec::new();
        for name in names {
            links.push(linked(&photos, name).await);
        }
        let hash = Some(Link::hash_of(&content("hashed")));
        links[4] = Link { etag: None, hash, ..links[4].clone() };
        links[5] = Link { etag: None, hash: Some([0; 32]), ..links[5].clone() };
        let links: Vec<_> = links.into_iter().map(Some).collect();
        let lake = lake(memory(), Some(photos.url()), &links).await;
        lake.allow_links([photos.clone()]);
        photos.put("replaced", content("REPLACED")).await.unwrap();
        photos.put("longer", content("longer by a few")).await.unwrap();
        photos.put("hashed", content("hashed")).await.unwrap();
        photos.delete("gone").await.unwrap();
        let found = read(&lake).await;
        assert_eq!(found[0].as_ref().unwrap(), &Some(content("same")));
        assert_eq!(found[4].as_ref().unwrap(), &Some(content("hashed")), "written anew, with the same bytes");
        assert!(broken(&found[1]).contains("changed since it was linked: its etag is"), "{:?}", found[1]);
        assert_eq!(broken(&found[2]), "the object changed since it was linked: it has 28 bytes and had 19");
        assert_eq!(broken(&found[3]), "there is no such object any more");
        assert_eq!(broken(&found[5]), "the object changed since it was linked: its bytes have another hash");
        let message = found[3].as_ref().unwrap_err().to_string();
        assert!(message.contains(&format!("link to {}/gone", photos.url())), "{message}");

        let mut seen = 0;
        let report = lake.verify_links(&At::default(), |report| seen = report.links).await.unwrap();
        assert_eq!((report.links, report.total, seen), (6, 6, 6));
        assert_eq!(report.bytes, content("hashed").len() as u64, "read where there is no etag");
        let rows: Vec<_> = report.faults.iter().map(|fault| (fault.row, fault.column.as_str())).collect();
        assert_eq!(rows, [1, 2, 3, 5].map(|row| (row, "photo")));
        for fault in &report.faults {
            assert_eq!(fault.reason, found[fault.row as usize].as_ref().unwrap_err().to_string());
        }
    });
}

#[test]
fn links_lead_nowhere_but_where_they_may() {
    block_on(async {
        let outside = tempfile::tempdir().unwrap();
        let photos = folder(&outside);
        let allowed = linked(&photos, "photos/a").await;
        let secret = linked(&photos, "secret").await;
        let base = format!("{}/photos", photos.url());
        let at = |url: String| Some(Link { url, ..secret.clone() });
        let home = tempfile::tempdir().unwrap();
        let links = [
            Some(Link { url: "a".into(), ..allowed }),
            at(format!("{}/secret", photos.url())),
            at(format!("file://{}/secret", photos.url())),
            at(format!("{base}/../secret")),
            at(format!("{base}/up")),
            at(format!("{}/up", home.path().display())),
            at("http://localhost:1/secret".into()),
        ];
        let lake = lake(folder(&home), Some(&base), &links).await;
        std::os::unix::fs::symlink(outside.path().join("secret"), outside.path().join("photos/up")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("secret"), home.path().join("up")).unwrap();
        let forbidden = |found: &Result<Option<Bytes>, Error>| match found {
            Err(Error::LinkForbidden { place, .. }) => place.clone(),
            other => panic!("{other:?}"),
        };
        // Nothing is allowed: also not what the lake itself says is its base.
        for found in read(&lake).await.iter().enumerate().filter(|(row, _)| *row != 3).map(|(_, found)| found) {
            forbidden(found);
        }
        lake.allow_links([Storage::open(&base, &Options::default()).unwrap()]);
        let found = read(&lake).await;
        assert_eq!(found[0].as_ref().unwrap(), &Some(content("photos/a")));
        assert_eq!(forbidden(&found[1]), photos.url());
        assert!(found[1].as_ref().unwrap_err().to_string().contains(&format!("links=[\"{}\"]", photos.url())));
        forbidden(&found[2]);
        assert!(broken(&found[3]).contains(".."), "{:?}", found[3]);
        for row in [4, 5, 6] {
            forbidden(&found[row]);
        }
        assert!(matches!(lake.verify_links(&At::default(), |_| {}).await, Err(Error::LinkForbidden { .. })));
        // Who allows the place that a symbolic link leads to may follow it.
        lake.allow_links([photos]);
        assert_eq!(read(&lake).await[4].as_ref().unwrap(), &Some(content("secret")));
    });
}

#[test]
fn a_link_to_more_than_a_row_may_have_and_one_that_is_none_are_errors_of_their_rows() {
    block_on(async {
        let photos = memory();
        let mut large = linked(&photos, "a").await;
        large.size = (1 << 30) + 1;
        let lake = lake(memory(), Some(photos.url()), &[Some(large)]).await;
        lake.allow_links([photos]);
        assert!(broken(&read(&lake).await[0]).contains("1 GiB"));
        let table = table(&lake).await;
        let column = &table.schema().columns[0];
        assert!(matches!(table.follow(column, b""), Err(Error::Data(_))));
        assert!(matches!(table.follow(column, &[0xff; 30]), Err(Error::Data(_))));
        let wrong = raw(&[Some(vec![0xff; 30])]);
        assert!(wrong.as_slice().check(column).unwrap_err().to_string().contains("row 0 of the batch"));
    });
}

#[test]
fn a_store_that_fails_is_no_broken_link_and_failures_that_pass_are_tried_again() {
    block_on(async {
        let inner = memory();
        let link = linked(&inner, "a").await;
        let faults = Arc::new(FaultStore::new(inner.store().unwrap(), 3));
        let options: Options = [("max_retries", "8")].into_iter().collect();
        let photos = Storage::from_remote_store(faults.clone(), "flaky://photos", &options).unwrap();
        let links: Vec<_> = (0..20).map(|at| Some(Link { part: Some(at % 5..at % 5 + 9), ..link.clone() })).collect();
        let lake = lake(memory(), Some(photos.url()), &links).await;
        lake.allow_links([photos.clone()]);
        let table = table(&lake).await;
        faults.add(Rule::new(Fault::ErrorBefore).on(OpKind::Get).chance(0.2));
        faults.add(Rule::new(Fault::Truncate(None)).on(OpKind::Get).chance(0.2));
        for row in 0..20 {
            let found = table.take_linked("photo", &[row]).await.unwrap().remove(0).unwrap().unwrap();
            assert_eq!(found, content("a").slice(row as usize % 5..row as usize % 5 + 9));
        }
        assert!(photos.stats().retries > 0);
        faults.clear();
        assert_eq!(table.take_linked("photo", &(0..20).collect::<Vec<_>>()).await.unwrap().len(), 20);
        assert_eq!(faults.count(OpKind::Get), 1, "near parts of one object come together");
        faults.add(Rule::new(Fault::ErrorBefore).on(OpKind::Get));
        let failed = table.take_linked("photo", &[0]).await;
        assert!(matches!(failed, Err(Error::Storage(_))), "{failed:?}");
    });
}

#[test]
fn bytes_that_a_flipped_bit_made_wrong_are_asked_for_once_more() {
    block_on(async {
        let inner = memory();
        let link = Link { hash: Some(Link::hash_of(&content("a"))), ..linked(&inner, "a").await };
        let faults = Arc::new(FaultStore::new(inner.store().unwrap(), 3));
        let photos = Storage::from_remote_store(faults.clone(), "flaky://photos", &Options::default()).unwrap();
        let lake = lake(memory(), Some(photos.url()), &[Some(link)]).await;
        lake.allow_links([photos]);
        faults.add(Rule::new(Fault::Flip(None)).on(OpKind::Get).nth(0));
        assert_eq!(all(&lake).await, [Some(content("a"))]);
        faults.add(Rule::new(Fault::Flip(None)).on(OpKind::Get));
        assert!(broken(&read(&lake).await[0]).contains("another hash"));
    });
}

#[test]
fn links_survive_merges_compactions_copies_and_collections_and_nothing_touches_what_they_lead_to() {
    block_on(async {
        let photos = memory();
        let names: Vec<String> = (0..8).map(|n| format!("{n}")).collect();
        let mut links = Vec::new();
        for name in &names {
            links.push(Some(linked(&photos, name).await));
        }
        let lake = lake(memory(), Some(photos.url()), &links[..4]).await;
        lake.allow_links([photos.clone()]);
        lake.create_branch("trial", &At::default()).await.unwrap();
        let mut transaction = lake.begin("trial").await.unwrap();
        append(&mut transaction, &links[4..6]).await;
        let base = transaction.base().table("main").await.unwrap();
        let one = Selection::new(base.clone(), Rows::List([1].into())).unwrap();
        let new = cells(&links[6..7]);
        transaction.update(&one, &[("photo", new.as_slice())]).await.unwrap();
        transaction.commit("trial", "tester").await.unwrap();
        let mut transaction = lake.begin("main").await.unwrap();
        transaction.delete(&Selection::new(base, Rows::List([0].into())).unwrap()).unwrap();
        append(&mut transaction, &links[7..]).await;
        transaction.commit("main", "tester").await.unwrap();
        lake.merge("main", &At::Branch("trial".into()), &MergeOptions::by("tester")).await.unwrap();
        let mut wanted: Vec<_> = [6, 2, 3, 7, 4, 5].iter().map(|n| Some(content(&names[*n]))).collect();
        let merged = all(&lake).await;
        let sorted = |mut rows: Vec<Option<Bytes>>| {
            rows.sort();
            rows
        };
        wanted = sorted(wanted);
        assert_eq!(sorted(merged.clone()), wanted);

        let mut transaction = lake.begin("main").await.unwrap();
        let table = transaction.base().table("main").await.unwrap();
        transaction.compact(&table, CompactOptions::default()).await.unwrap();
        transaction.commit("compact", "tester").await.unwrap();
        assert_eq!(all(&lake).await, merged);

        let before = photos.list("").await.unwrap();
        lake.delete_branch("trial").await.unwrap();
        let strict = GcOptions::default().with_grace(Default::default()).with_retention(Default::default());
        lake.gc(&strict, |_| {}).await.unwrap();
        let target = memory();
        let (copy, _) = lake.clone_to(target.clone(), |_| {}).await.unwrap();
        assert!(matches!(read(&copy).await[0], Err(Error::LinkForbidden { .. })), "another lake, another opener");
        copy.allow_links([photos.clone()]);
        assert_eq!(all(&copy).await, merged);
        assert_eq!(photos.list("").await.unwrap(), before);
        assert!(target.list("").await.unwrap().iter().all(|entry| !entry.path.contains("photo")));
        assert_eq!(lake.verify(&At::default(), |_| {}).await.unwrap().faults, []);
    });
}
