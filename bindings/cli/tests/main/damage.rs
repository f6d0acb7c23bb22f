//! `verify` reads everything and finds what is wrong.

use std::path::{Path, PathBuf};

use crate::{
    images::{jpeg, picture},
    support::{Bench, Run, forebay, json},
};

/// A lake with a compressed table, an encoded one, a branch and a tag.
fn lake() -> Bench {
    let bench = Bench::new();
    for index in 0..6 {
        bench.put(&format!("c{}/{index}.jpg", index % 2), &jpeg(&picture(40, 30, index)));
    }
    bench.created(&["--resize", "24", "--crop", "24", "--compression", "lz4"]);
    bench.created(&["--raw", "--append", "--table", "raw"]);
    json(&["branch", &bench.lake(), "dev"]);
    json(&["tag", &bench.lake(), "v1"]);
    bench
}

/// The objects of a lake, by name.
fn objects(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { objects(&path, into) } else { into.push(path) }
    }
}

fn names_it(run: &Run, name: &str) -> bool {
    run.code == 1 && (run.out.contains(name) || run.err.contains(name))
}

#[test]
fn a_sound_lake_is_sound_and_every_byte_of_it_was_read() {
    let bench = lake();
    let report = json(&["verify", &bench.lake()]);
    assert_eq!(report["ok"], true);
    let mut all = Vec::new();
    objects(Path::new(&bench.lake()), &mut all);
    let counted = all.iter().filter(|path| !path.ends_with("hint"));
    let bytes: u64 = counted.clone().map(|path| path.metadata().unwrap().len()).sum();
    assert_eq!((report["objects"].as_u64(), report["bytes"].as_u64()), (Some(counted.count() as u64), Some(bytes)));
    assert_eq!(report["files"], 2);
    let text = forebay(&["verify", &bench.lake(), "--branch", "main"]);
    assert!(text.code == 0 && text.out.ends_with("everything is as it was written\n"), "{text:?}");
}

#[test]
fn a_flipped_byte_in_any_region_of_any_object_is_found_and_named() {
    let bench = lake();
    let root = PathBuf::from(bench.lake());
    let mut all = Vec::new();
    objects(&root, &mut all);
    let mut checked = 0;
    for path in all.iter().filter(|path| !path.ends_with("hint")) {
        let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
        let bytes = std::fs::read(path).unwrap();
        let length = bytes.len();
        // Start, head, padding, values, index, footer; in small objects envelope and content.
        let mut places = vec![0, 9, 17, 40, 100, 4_000, 4_096, 4_200, 4_500, 8_191, 12_288];
        places.extend((1..=12).map(|step| length - length * step / 13 - 1));
        places.extend([1, 3, 30, 63, 64, 65, 100, 300].map(|back| length.saturating_sub(back)));
        places.retain(|place| *place < length);
        places.sort_unstable();
        places.dedup();
        for place in places {
            let mut damaged = bytes.clone();
            damaged[place] ^= 0x40;
            std::fs::write(path, &damaged).unwrap();
            let run = forebay(&["verify", &bench.lake()]);
            assert!(names_it(&run, name), "byte {place} of {length} of {name}: {run:?}");
            assert!(!run.err.contains("panicked"), "{run:?}");
            checked += 1;
        }
        std::fs::write(path, &bytes).unwrap();
    }
    assert!(checked > 100, "{checked}");
    assert_eq!(json(&["verify", &bench.lake()])["ok"], true);
}

#[test]
fn damage_is_named_by_object_range_and_column() {
    let bench = lake();
    let table = bench.table("main");
    let file = &table.fragments()[0].files[0];
    let path = Path::new(&bench.lake()).join(format!("data/{}", file.id));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4_100] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let run = forebay(&["verify", &bench.lake(), "--json"]);
    assert_eq!(run.code, 1);
    let report: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((&report["ok"], report["faults"].as_array().unwrap().len()), (&false.into(), 1));
    assert_eq!(report["faults"][0]["object"], format!("data/{}", file.id));
    let reason = report["faults"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("column 'image'") && reason.contains("bytes 4096.."), "{reason}");
}

#[test]
fn a_missing_or_shortened_object_is_found() {
    let bench = lake();
    let id = bench.table("raw").fragments()[0].files[0].id;
    let path = Path::new(&bench.lake()).join(format!("data/{id}"));
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert!(names_it(&forebay(&["verify", &bench.lake()]), &format!("data/{id}")));
    std::fs::remove_file(&path).unwrap();
    let run = forebay(&["verify", &bench.lake()]);
    assert!(names_it(&run, &format!("data/{id}: missing")), "{run:?}");
}
