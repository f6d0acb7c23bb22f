//! A wrong byte anywhere in a lake is an error or harmless, never wrong data.

use std::path::{Path, PathBuf};

use forebay_storage::{Options, Storage};
use forebay_versioning::{At, Lake};

use crate::support::{all, block_on, lake, rows};

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// Flips a bit of each byte of each object in turn and reads everything.
#[test]
fn each_flipped_byte_of_each_object_is_an_error_or_harmless() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Storage::open(folder.path().to_str().unwrap(), &Options::default()).unwrap();
    block_on(async {
        let lake = lake(open(), &[0..20, 20..27]).await.unwrap();
        lake.create_tag("v1", &At::default(), "tester").await.unwrap();
    });
    let mut objects = Vec::new();
    files(folder.path(), &mut objects);
    assert!(objects.len() > 10, "{objects:?}");
    let (mut errors, mut harmless) = (0, 0);
    for path in objects {
        let bytes = std::fs::read(&path).unwrap();
        let name = path.strip_prefix(folder.path()).unwrap().to_str().unwrap().to_owned();
        for place in places(&name, bytes.len()) {
            let mut damaged = bytes.clone();
            damaged[place] ^= 1 << (place % 8);
            std::fs::write(&path, &damaged).unwrap();
            for at in [At::default(), At::Tag("v1".into())] {
                let read = block_on(async {
                    let lake = Lake::open(open()).await?;
                    all(&lake, &at).await
                });
                match read {
                    Ok(found) => {
                        // Branch main can fall back to an earlier commit only if its newest entry is gone, not damaged.
                        assert_eq!(found, rows(0..27), "{name} byte {place}: wrong data at {at}");
                        harmless += 1;
                    }
                    Err(error) => {
                        let text = error.to_string();
                        assert!(!text.is_empty());
                        errors += 1;
                    }
                }
            }
        }
        std::fs::write(&path, &bytes).unwrap();
    }
    println!("{errors} errors, {harmless} harmless");
    assert!(errors > 1_000, "{errors}");
}

/// Every byte of metadata; of a data file every byte but the long runs of padding, of which some.
fn places(name: &str, length: usize) -> Vec<usize> {
    if !name.starts_with("data/") {
        return (0..length).collect();
    }
    (0..length).filter(|place| place % 4096 < 320 || place % 61 == 0 || length - place < 1500).collect()
}

#[test]
fn verify_names_every_damaged_object() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Storage::open(folder.path().to_str().unwrap(), &Options::default()).unwrap();
    block_on(lake(open(), &[0..20, 20..27])).unwrap();
    let mut objects = Vec::new();
    files(folder.path(), &mut objects);
    let mut checked = 0;
    for path in objects {
        let name = path.strip_prefix(folder.path()).unwrap().to_str().unwrap().to_owned();
        if name.ends_with("hint") {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        for place in places(&name, bytes.len()).into_iter().step_by(7) {
            let mut damaged = bytes.clone();
            damaged[place] ^= 0x10;
            std::fs::write(&path, &damaged).unwrap();
            let result = block_on(async { Lake::open(open()).await?.verify(&At::default(), |_| {}).await });
            match result {
                Ok(found) => {
                    assert!(
                        found.faults.iter().any(|fault| fault.path == name),
                        "byte {place} of {name} is not named: {:?}",
                        found.faults
                    );
                }
                // Without its marker or its head a lake can't be walked at all.
                Err(error) => assert!(error.to_string().contains(&name), "byte {place} of {name}: {error}"),
            }
            checked += 1;
        }
        std::fs::write(&path, &bytes).unwrap();
    }
    assert!(checked > 500, "{checked}");
}
