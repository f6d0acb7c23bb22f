//! Running the command and looking at what it made.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use forebay_format::{ColumnData, OwnedValues};
use forebay_storage::{Options, Storage, runtime};
use forebay_versioning::{At, Lake, Table};
use serde_json::Value;
use tempfile::TempDir;

/// What a run of the command gave.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs the command without credentials or settings from the environment.
pub(crate) fn forebay<S: AsRef<str>>(args: &[S]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_") || name.starts_with("FOREBAY_")) {
        command.env_remove(name);
    }
    let output = command.args(args.iter().map(AsRef::as_ref)).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { code: output.status.code().expect("an exit code"), out: text(output.stdout), err: text(output.stderr) }
}

/// Runs the command, which must succeed, with `--json`; gives its document.
pub(crate) fn json(args: &[&str]) -> Value {
    let run = forebay(&[args, &["--json"]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    serde_json::from_str(&run.out).unwrap()
}

/// Runs the command, which must fail with one line; gives that line.
pub(crate) fn failure(args: &[&str]) -> String {
    let run = forebay(args);
    assert_eq!((run.code, run.out.as_str()), (1, ""), "{run:?}");
    let line = run.err.strip_suffix('\n').expect("a line");
    assert!(!line.contains('\n') && !line.contains("panicked"), "{line}");
    line.to_owned()
}

/// A folder for images and a place for a lake.
pub(crate) struct Bench {
    folder: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("images")).unwrap();
        Self { folder }
    }

    /// Where the images are.
    pub(crate) fn images(&self) -> String {
        self.folder.path().join("images").to_str().unwrap().to_owned()
    }

    /// Where the lake is.
    pub(crate) fn lake(&self) -> String {
        self.folder.path().join("lake").to_str().unwrap().to_owned()
    }

    /// Puts a file among the images; folders are made.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = Path::new(&self.images()).join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Runs `forebay create` with these further arguments.
    pub(crate) fn create(&self, args: &[&str]) -> Run {
        let (lake, images) = (self.lake(), self.images());
        forebay(&[&["create", &lake, "--from", &images], args].concat())
    }

    /// Runs `forebay create --json`, which must succeed.
    pub(crate) fn created(&self, args: &[&str]) -> Value {
        let (lake, images) = (self.lake(), self.images());
        json(&[&["create", &lake, "--from", &images], args].concat())
    }

    /// A table of the lake as it is now.
    pub(crate) fn table(&self, name: &str) -> Table {
        runtime().unwrap().block_on(async {
            let storage = Storage::open(&self.lake(), &Options::new()).unwrap();
            let lake = Lake::open(storage).await.unwrap();
            lake.snapshot(&At::default()).await.unwrap().table(name).await.unwrap()
        })
    }

    /// The names of the lake's tables; none if there is no lake.
    pub(crate) fn tables(&self) -> Vec<String> {
        runtime().unwrap().block_on(async {
            let storage = Storage::open(&self.lake(), &Options::new()).unwrap();
            match Lake::open(storage).await {
                Ok(lake) => {
                    let snapshot = lake.snapshot(&At::default()).await.unwrap();
                    snapshot.tables().into_iter().map(str::to_owned).collect()
                }
                Err(_) => Vec::new(),
            }
        })
    }
}

/// All rows of a column.
pub(crate) fn column(table: &Table, name: &str) -> ColumnData {
    runtime().unwrap().block_on(table.read(name, 0..table.rows())).unwrap()
}

/// The rows of a column of fixed shape, as bytes.
pub(crate) fn fixed(table: &Table, name: &str) -> Vec<Vec<u8>> {
    let data = column(table, name);
    let OwnedValues::Fixed(bytes) = data.values else { panic!("'{name}' is of fixed shape") };
    bytes.chunks_exact(bytes.len() / data.rows).map(<[u8]>::to_vec).collect()
}

/// The rows of a column of 64-bit numbers.
pub(crate) fn numbers(table: &Table, name: &str) -> Vec<i64> {
    fixed(table, name).iter().map(|bytes| i64::from_le_bytes(bytes[..].try_into().unwrap())).collect()
}

/// The rows of a column of texts or bytes, and the shapes beside them.
pub(crate) fn blobs(table: &Table, name: &str) -> (Vec<Vec<u8>>, Vec<u32>) {
    let OwnedValues::Ragged { offsets, shapes, bytes } = column(table, name).values else {
        panic!("'{name}' is ragged")
    };
    (offsets.windows(2).map(|ends| bytes[ends[0] as usize..ends[1] as usize].to_vec()).collect(), shapes)
}

/// The rows of a column of texts.
pub(crate) fn texts(table: &Table, name: &str) -> Vec<String> {
    blobs(table, name).0.into_iter().map(|bytes| String::from_utf8(bytes).unwrap()).collect()
}
