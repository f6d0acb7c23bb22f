//! The commands that show what a lake holds, as text and as JSON.

use serde_json::json;

use crate::{
    images::{picture, png},
    support::{Bench, forebay, json},
};

fn lake() -> Bench {
    let bench = Bench::new();
    for index in 0..7 {
        bench.put(&format!("c{}/{index}.png", index % 2), &png(&picture(20, 16, index)));
    }
    bench.created(&["--resize", "16", "--crop", "16", "--message", "first", "--author", "Ada"]);
    bench
}

#[test]
fn info_shows_tables_and_columns() {
    let bench = lake();
    let info = json(&["info", &bench.lake()]);
    assert_eq!((&info["branches"], &info["tags"]), (&json!(["main"]), &json!([])));
    assert_eq!((&info["commit"]["message"], &info["commit"]["author"]), (&json!("first"), &json!("Ada")));
    let table = &info["tables"][0];
    assert_eq!((&table["name"], &table["rows"], &table["fragments"]), (&json!("main"), &json!(7), &json!(1)));
    assert_eq!(table["columns"][0]["shape"], json!([3, 16, 16]));
    assert_eq!(table["columns"][1]["names"], json!(["c0", "c1"]));
    let text = forebay(&["info", &bench.lake()]).out;
    assert!(text.contains("table 'main': 7 rows") && text.contains("image: uint8[3, 16, 16]"), "{text}");
    assert!(text.contains("label (2 names: c0, c1)") && !text.contains('\x1b'), "{text}");
}

#[test]
fn ls_lists_tables_branches_and_tags() {
    let bench = lake();
    json(&["branch", &bench.lake(), "dev"]);
    json(&["tag", &bench.lake(), "v1", "--from", "dev"]);
    let ls = json(&["ls", &bench.lake()]);
    assert_eq!(ls["tables"], json!([{ "name": "main", "rows": 7 }]));
    assert_eq!((&ls["branches"], &ls["tags"]), (&json!(["dev", "main"]), &json!(["v1"])));
    let text = forebay(&["ls", &bench.lake(), "--tag", "v1"]).out;
    assert_eq!(text, "kind    name  rows\ntable   main     7\nbranch  dev\nbranch  main\ntag     v1\n");
}

#[test]
fn log_goes_back_to_the_first_commit_and_stops_where_told() {
    let bench = lake();
    bench.created(&["--append", "--resize", "16", "--crop", "16", "--message", "second"]);
    let log = json(&["log", &bench.lake()]);
    let messages: Vec<_> = log["commits"].as_array().unwrap().iter().map(|commit| commit["message"].clone()).collect();
    assert_eq!(messages, ["second", "first", "create lake"]);
    assert_eq!(log["commits"][0]["parents"], json!([log["commits"][1]["id"]]));
    assert_eq!(log["commits"][0]["changes"], json!([{ "table": "main", "kind": "append", "rows_added": 7 }]));
    assert_eq!(json(&["log", &bench.lake(), "-n", "1"])["commits"].as_array().unwrap().len(), 1);
    let first = log["commits"][1]["id"].as_str().unwrap();
    assert_eq!(json(&["log", &bench.lake(), "--commit", first])["commits"].as_array().unwrap().len(), 2);
    let text = forebay(&["log", &bench.lake()]).out;
    assert!(text.contains("  second\n    append 7 rows to table 'main'\n"), "{text}");
}

#[test]
fn head_shows_small_values_and_summarises_tensors() {
    let bench = lake();
    let head = json(&["head", &bench.lake(), "-n", "2"]);
    assert_eq!((&head["total_rows"], head["rows"].as_array().unwrap().len()), (&json!(7), 2));
    let row = &head["rows"][0];
    assert_eq!((&row["path"], &row["label"], &row["id"]), (&json!("c0/0.png"), &json!(0), &json!(0)));
    assert_eq!((&row["image"]["dtype"], &row["image"]["shape"]), (&json!("uint8"), &json!([3, 16, 16])));
    assert!(row["image"]["min"].as_u64() < row["image"]["max"].as_u64());
    let some = json(&["head", &bench.lake(), "--columns", "id,path", "-n", "100"]);
    assert_eq!(some["rows"].as_array().unwrap().len(), 7);
    assert_eq!(some["rows"][6], json!({ "id": 6, "path": "c1/5.png" }));
    let text = forebay(&["head", &bench.lake(), "-n", "1"]).out;
    assert!(text.contains("uint8[3,16,16]") && text.contains("c0/0.png") && text.ends_with("1 of 7 rows\n"), "{text}");
    assert_eq!(json(&["head", &bench.lake(), "-n", "0"])["rows"], json!([]));
}

#[test]
fn branches_start_where_told() {
    let bench = lake();
    let first = json(&["log", &bench.lake()])["commits"][0]["id"].clone();
    json(&["tag", &bench.lake(), "v1"]);
    bench.created(&["--append", "--resize", "16", "--crop", "16"]);
    for (name, from) in [("by-tag", "v1"), ("by-commit", first.as_str().unwrap())] {
        assert_eq!(json(&["branch", &bench.lake(), name, "--from", from])["commit"], first);
        assert_eq!(json(&["ls", &bench.lake(), "--branch", name])["tables"][0]["rows"], 7);
    }
    assert_eq!(json(&["ls", &bench.lake()])["tables"][0]["rows"], 14);
}

#[test]
fn branches_are_compared_merged_and_undone() {
    let bench = lake();
    let lake = bench.lake();
    json(&["branch", &lake, "dev"]);
    bench.created(&["--append", "--resize", "16", "--crop", "16", "--branch", "dev", "--message", "more"]);
    let diff = json(&["diff", &lake, "main", "dev"]);
    assert_eq!((&diff["tables"][0]["rows_added"], &diff["tables"][0]["rows_deleted"]), (&json!(7), &json!(0)));
    assert_eq!(forebay(&["diff", &lake, "main", "dev"]).out, "table 'main': 7 rows added\n");
    bench.created(&["--append", "--resize", "16", "--crop", "16", "--message", "others"]);
    let dry = json(&["merge", &lake, "dev", "--dry-run"]);
    assert_eq!((&dry["outcome"], &dry["conflicts"]), (&json!("merged"), &json!([])));
    let merged = json(&["merge", &lake, "dev", "-m", "join", "--author", "Ada"]);
    assert_eq!(json(&["info", &lake])["tables"][0]["rows"], json!(21));
    let log = json(&["log", &lake, "-n", "1"]);
    assert_eq!((&log["commits"][0]["id"], &log["commits"][0]["message"]), (&merged["commit"], &json!("join")));
    let again = forebay(&["merge", &lake, "dev"]);
    assert!(again.code == 0 && again.out.starts_with("up to date"), "{again:?}");
    json(&["revert", &lake, "main"]);
    assert_eq!(json(&["info", &lake])["tables"][0]["rows"], json!(14));
}

#[test]
fn what_a_place_does_not_give_comes_from_a_mirror_and_is_kept_in_a_cache() {
    let bench = lake();
    let (lake, kept) = (bench.lake(), tempfile::tempdir().unwrap());
    // Nobody listens there.
    let down = ["head", "http://127.0.0.1:1/lake", "--storage-option", "max_retries=0"];
    assert_ne!(forebay(&down).code, 0);
    let folder = kept.path().to_str().unwrap();
    let through = [&down[..], &["--mirror", &lake, "--cache", folder, "--cache-size", "64MiB"]].concat();
    assert_eq!(json(&through)["rows"], json(&["head", &lake])["rows"]);
    assert!(kept.path().read_dir().unwrap().next().is_some(), "the cache was filled");
    let run = forebay(&["head", &lake, "--cache-size", "64MiB"]);
    assert!(run.code == 2 && run.err.contains("--cache"), "{run:?}");
}
