//! Bad input: one clear line, the right exit code, nothing left behind.

use crate::{
    images::{jpeg, picture},
    support::{Bench, failure, forebay, json},
};

#[test]
fn folders_that_hold_no_images_are_named() {
    let bench = Bench::new();
    let lake = bench.lake();
    let line = failure(&["create", &lake, "--from", "/no/such/folder"]);
    assert_eq!(line, "forebay: /no/such/folder: No such file or directory (os error 2)");
    let line = failure(&["create", &lake, "--from", &bench.images()]);
    assert!(line.contains("is empty: expected images in it"), "{line}");
    let file = bench.put("a/notes.txt", b"x");
    let line = failure(&["create", &lake, "--from", &bench.images()]);
    assert!(line.contains("no images in") && line.contains("(1 other files)"), "{line}");
    let line = failure(&["create", &lake, "--from", file.to_str().unwrap()]);
    assert!(line.contains("not a directory"), "{line}");
    assert!(!std::path::Path::new(&lake).exists());
}

#[test]
fn urls_and_options_that_make_no_sense_are_named() {
    let bench = Bench::new();
    bench.put("a/1.jpg", &jpeg(&picture(9, 9, 1)));
    let create = |url: &str, more: &[&str]| failure(&[&["create", url, "--from", &bench.images()], more].concat());
    assert!(create("ftp://host/x", &[]).contains("`ftp://` is not supported"));
    assert!(create("s3://", &[]).contains("name the bucket"));
    assert!(create("s3://bucket/lake", &[]).contains("no credentials for s3://bucket/lake"));
    assert!(create(&bench.lake(), &["--storage-option", "colour=blue"]).contains("unknown storage option `colour`"));
    for command in ["info", "ls", "log", "verify", "head"] {
        let line = failure(&[command, &bench.lake()]);
        assert!(line.contains("no lake at"), "{line}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_target_that_may_not_be_written_is_named() {
    let bench = Bench::new();
    bench.put("a/1.jpg", &jpeg(&picture(9, 9, 1)));
    // Nobody can make a folder there, not even root.
    let line = failure(&["create", "/sys/forebay", "--from", &bench.images()]);
    assert!(line.contains("/sys/forebay"), "{line}");
    let file = bench.put("a/file.txt", b"x");
    let line = failure(&["create", &format!("{}/lake", file.display()), "--from", &bench.images()]);
    assert!(line.contains("file.txt"), "{line}");
}

#[test]
fn versions_tables_and_columns_that_are_not_there_are_named_beside_those_that_are() {
    let bench = Bench::new();
    bench.put("a/1.jpg", &jpeg(&picture(9, 9, 1)));
    bench.created(&["--resize", "8"]);
    let lake = bench.lake();
    assert!(failure(&["log", &lake, "--branch", "dev"]).contains("no branch 'dev' in"));
    assert!(failure(&["log", &lake, "--tag", "v1"]).contains("no tag 'v1' in"));
    assert!(failure(&["log", &lake, "--commit", &"0".repeat(32)]).contains("no commit 0000"));
    assert!(failure(&["head", &lake, "--table", "t"]).contains("no table 't'"));
    assert!(failure(&["head", &lake, "--columns", "imgae"]).contains("no column 'imgae'; the table has image, label"));
    assert!(failure(&["branch", &lake, "main"]).contains("branch 'main' exists"));
    assert!(failure(&["branch", &lake, "x/y"]).contains("is no name for a branch"));
    assert!(failure(&["branch", &lake, "x", "--from", "y"]).contains("no branch 'y'"));
    json(&["tag", &lake, "v1"]);
    assert!(failure(&["tag", &lake, "v1"]).contains("tag 'v1' exists"));
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for args in [
        &[][..],
        &["make"],
        &["create", "lake"],
        &["create", "lake", "--from", "x", "--raw", "--crop", "5"],
        &["create", "lake", "--from", "x", "--resize", "5", "--crop", "6"],
        &["create", "lake", "--from", "x", "--resize", "0"],
        &["create", "lake", "--from", "x", "--compression", "gzip"],
        &["create", "lake", "--from", "x", "--storage-option", "region"],
        &["log", "lake", "--branch", "a", "--tag", "b"],
        &["log", "lake", "--commit", "xyz"],
    ] {
        let run = forebay(args);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{args:?}: {run:?}");
        assert!(!run.err.is_empty());
    }
}

#[test]
fn help_and_version_are_no_failures() {
    for args in [&["--help"][..], &["--version"], &["create", "--help"]] {
        let run = forebay(args);
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{args:?}");
        assert!(run.out.contains("forebay") || run.out.contains("--from"), "{}", run.out);
    }
}
