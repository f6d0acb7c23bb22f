//! What becomes of a folder.

use std::path::Path;

use serde_json::json;

use crate::{
    images::{encode, jpeg, picture, png},
    support::{Bench, blobs, failure, json, numbers, texts},
};

const SMALL: [&str; 2] = ["--resize", "16"];

fn small(seed: u32) -> Vec<u8> {
    jpeg(&picture(24, 20, seed))
}

#[test]
fn class_folders_become_labels_in_alphabetical_order() {
    let bench = Bench::new();
    for name in ["b/2.jpg", "a-b/1.jpg", "a/z.jpg", "a/deep/er/y.jpg", "été/ß 日本.jpg", "b/1.JPEG"] {
        bench.put(name, &small(1));
    }
    bench.put("empty/readme.txt", b"no image");
    bench.put(".hidden/x.jpg", &small(1));
    bench.put("a/.x.jpg", &small(1));
    let report = bench.created(&SMALL);
    assert_eq!(report["classes"], json!(["a", "a-b", "b", "empty", "été"]));
    assert_eq!((&report["rows"], &report["ignored"]), (&json!(6), &json!(1)));
    let table = bench.table("main");
    let names = ["a/deep/er/y.jpg", "a/z.jpg", "a-b/1.jpg", "b/1.JPEG", "b/2.jpg", "été/ß 日本.jpg"];
    assert_eq!(texts(&table, "path"), names);
    assert_eq!(numbers(&table, "label"), [0, 0, 1, 2, 2, 4]);
    assert_eq!(numbers(&table, "id"), [0, 1, 2, 3, 4, 5]);
    let label = &table.schema().column("label").unwrap().kind;
    assert_eq!((label.name.as_str(), label.metadata["names"].as_str()), ("label", r#"["a","a-b","b","empty","été"]"#));
    let image = table.schema().column("image").unwrap();
    assert_eq!(image.to_string(), "image: uint8[3, 14, 14]");
    assert_eq!((image.kind.name.as_str(), image.kind.metadata["layout"].as_str()), ("image", "CHW"));
}

#[test]
fn images_directly_in_the_folder_have_no_labels() {
    let bench = Bench::new();
    bench.put("2.jpg", &small(1));
    bench.put("1.png", &png(&picture(20, 20, 2)));
    assert_eq!(bench.created(&SMALL)["classes"], json!([]));
    let table = bench.table("main");
    let columns: Vec<_> = table.schema().columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(columns, ["image", "path", "id"]);
    assert_eq!(texts(&table, "path"), ["1.png", "2.jpg"]);
}

#[test]
#[cfg(unix)]
fn links_are_followed_and_a_circle_of_links_is_reported() {
    use std::os::unix::fs::symlink;
    let bench = Bench::new();
    let file = bench.put("a/1.jpg", &small(1));
    symlink(&file, Path::new(&bench.images()).join("a/2.jpg")).unwrap();
    symlink(Path::new(&bench.images()).join("a"), Path::new(&bench.images()).join("b")).unwrap();
    bench.created(&SMALL);
    assert_eq!(texts(&bench.table("main"), "path"), ["a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg"]);

    symlink(bench.images(), Path::new(&bench.images()).join("a/circle")).unwrap();
    symlink("nowhere.jpg", Path::new(&bench.images()).join("a/3.jpg")).unwrap();
    let line = failure(&["create", &format!("{}2", bench.lake()), "--from", &bench.images()]);
    assert!(line.contains("a/3.jpg: it can't be read") || line.contains("a/circle: it can't be read"), "{line}");
    let report = bench.created(&["--append", "--table", "skipped", "--on-error", "skip"]);
    let skipped: Vec<_> =
        report["skipped"].as_array().unwrap().iter().map(|skip| skip["path"].as_str().unwrap()).collect();
    assert_eq!(skipped, ["a/3.jpg", "a/circle", "b/3.jpg", "b/circle"]);
}

/// Files that look like images by their names, and what is said of them.
fn broken() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let good = small(9);
    let mut damaged = png(&picture(30, 30, 9));
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0xff;
    let huge = {
        let mut bytes = encode(&picture(8, 8, 1).into(), image::ImageFormat::Bmp);
        bytes[18..22].copy_from_slice(&60_000_u32.to_le_bytes());
        bytes[22..26].copy_from_slice(&60_000_u32.to_le_bytes());
        bytes
    };
    vec![
        ("a/text.jpg", b"Dear diary, ...".to_vec(), "not an image: its bytes are not JPEG"),
        ("a/empty.png", Vec::new(), "not an image: the file is empty"),
        ("a/half.jpg", good[..good.len() / 2].to_vec(), "truncated: the file ends before the picture does"),
        ("a/last.jpg", good[..good.len() - 1].to_vec(), "truncated: the file ends before the picture does"),
        ("a/half.png", damaged[..middle].to_vec(), "damaged or unsupported"),
        ("a/flip.png", damaged, "damaged or unsupported"),
        ("a/huge.bmp", huge, "too large: 60000 x 60000 pixels"),
        ("beside.jpg", good, "it lies beside the class folders, not in one"),
    ]
}

#[test]
fn a_broken_image_fails_the_run_by_name_and_nothing_is_committed() {
    for (name, bytes, reason) in broken() {
        let bench = Bench::new();
        for index in 0..20 {
            bench.put(&format!("a/{index}.jpg"), &small(index));
        }
        bench.put(name, &bytes);
        let line = failure(&["create", &bench.lake(), "--from", &bench.images(), "--resize", "16"]);
        assert!(line.starts_with(&format!("forebay: {name}: {reason}")), "{line}");
        assert!(line.contains("nothing was committed"), "{line}");
        assert_eq!(bench.tables(), [""; 0]);
        // Without the broken image the same command goes through.
        std::fs::remove_file(Path::new(&bench.images()).join(name)).unwrap();
        assert_eq!(bench.created(&SMALL)["rows"], 20);
    }
}

#[test]
fn broken_images_are_skipped_by_name_when_asked() {
    let bench = Bench::new();
    bench.put("a/good.jpg", &small(1));
    bench.put("b/good.jpg", &small(2));
    for (name, bytes, _) in broken() {
        bench.put(name, &bytes);
    }
    let run = bench.create(&["--on-error", "skip", "--resize", "16", "--json"]);
    assert_eq!(run.code, 0, "{run:?}");
    let report: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(report["rows"], 2);
    for (name, _, reason) in broken() {
        assert!(run.err.lines().any(|line| line.starts_with(&format!("skipped {name}: {reason}"))), "{}", run.err);
        let skipped = report["skipped"].as_array().unwrap();
        let found = skipped.iter().find(|skip| skip["path"] == name).unwrap();
        assert!(found["reason"].as_str().unwrap().starts_with(reason), "{found}");
    }
    assert_eq!(texts(&bench.table("main"), "path"), ["a/good.jpg", "b/good.jpg"]);
    assert_eq!(numbers(&bench.table("main"), "id"), [0, 1]);
}

#[test]
fn nothing_is_committed_when_all_images_are_broken() {
    let bench = Bench::new();
    bench.put("a/x.jpg", b"text");
    let run = bench.create(&["--on-error", "skip"]);
    assert_eq!(run.code, 1);
    assert!(run.err.contains("none of the 1 images could be used: nothing was committed"), "{}", run.err);
    assert_eq!(bench.tables(), [""; 0]);
}

#[test]
fn raw_keeps_the_bytes_and_puts_the_decoded_shape_beside_them() {
    let bench = Bench::new();
    let files = [
        ("a/1.jpg", jpeg(&picture(31, 17, 1)), [17, 31, 3]),
        (
            "a/2.png",
            encode(&image::DynamicImage::ImageRgb8(picture(9, 8, 2)).into_luma8().into(), image::ImageFormat::Png),
            [8, 9, 1],
        ),
        ("a/3.png", png(&picture(5, 6, 3)), [6, 5, 3]),
    ];
    files.iter().for_each(|(name, bytes, _)| drop(bench.put(name, bytes)));
    bench.created(&["--raw"]);
    let table = bench.table("main");
    let (bytes, shapes) = blobs(&table, "image");
    assert_eq!(bytes, files.iter().map(|(_, bytes, _)| bytes.clone()).collect::<Vec<_>>());
    assert_eq!(shapes, files.iter().flat_map(|(_, _, shape)| *shape).collect::<Vec<_>>());
    let image = table.schema().column("image").unwrap();
    assert_eq!((image.dtype.name(), image.kind.metadata["encoding"].as_str()), ("bytes", "mixed"));
}

#[test]
fn raw_names_the_encoding_by_the_bytes_and_not_by_the_name() {
    let bench = Bench::new();
    bench.put("a/1.png", &small(1));
    bench.put("a/2.jpg", &small(2));
    bench.created(&["--raw"]);
    assert_eq!(bench.table("main").schema().column("image").unwrap().kind.metadata["encoding"], "jpeg");
}

#[test]
fn raw_refuses_what_has_no_header_of_an_image() {
    let bench = Bench::new();
    bench.put("a/1.jpg", &small(1));
    bench.put("a/text.jpg", b"text");
    bench.put("a/zero.jpg", &small(1)[..12]);
    let report = bench.created(&["--raw", "--on-error", "skip"]);
    let skipped: Vec<_> = report["skipped"].as_array().unwrap().iter().map(|skip| skip["path"].clone()).collect();
    assert_eq!(skipped, [json!("a/text.jpg"), json!("a/zero.jpg")]);
}

#[test]
fn appending_goes_on_with_ids_and_maps_classes_by_name() {
    let bench = Bench::new();
    bench.put("b/1.jpg", &small(1));
    bench.put("c/1.jpg", &small(2));
    bench.created(&SMALL);
    let more = Bench::new();
    more.put("c/2.jpg", &small(3));
    let args = ["create", &bench.lake(), "--from", &more.images(), "--resize", "16", "--append", "--message", "more"];
    assert_eq!(json(&args)["rows"], 1);
    let table = bench.table("main");
    assert_eq!(numbers(&table, "label"), [0, 1, 1]);
    assert_eq!(numbers(&table, "id"), [0, 1, 2]);
    assert_eq!(table.snapshot().commit().message, "more");

    more.put("d/1.jpg", &small(4));
    let line = failure(&args);
    assert!(line.contains("class 'd' is none of its labels: b, c"), "{line}");
    let line = failure(&["create", &bench.lake(), "--from", &bench.images(), "--append", "--resize", "32"]);
    assert!(line.contains("its column is image: uint8[3, 14, 14], the folder gives image: uint8[3, 28, 28]"), "{line}");
}

#[test]
fn a_lake_with_tables_is_only_added_to_when_asked() {
    let bench = Bench::new();
    bench.put("a/1.jpg", &small(1));
    bench.created(&SMALL);
    let line = failure(&["create", &bench.lake(), "--from", &bench.images()]);
    assert!(line.contains("is a lake with tables already: add to it with --append"), "{line}");
    bench.created(&["--append", "--table", "other", "--raw"]);
    assert_eq!(bench.tables(), ["main", "other"]);
    let line = failure(&["create", &format!("{}-none", bench.lake()), "--from", &bench.images(), "--append"]);
    assert!(line.contains("no lake at"), "{line}");
}
