//! The commands that clean up, copy, and move branches.

use serde_json::json;

use crate::{
    images::{picture, png},
    support::{Bench, forebay, json},
};

fn lake() -> Bench {
    let bench = Bench::new();
    for index in 0..4 {
        bench.put(&format!("c{}/{index}.png", index % 2), &png(&picture(20, 16, index)));
    }
    bench.created(&["--resize", "16", "--crop", "16", "--message", "first", "--author", "Ada"]);
    bench
}

#[test]
fn gc_reports_and_then_deletes_what_a_deleted_branch_held() {
    let bench = lake();
    json(&["branch", &bench.lake(), "dev"]);
    bench.created(&["--append", "--branch", "dev", "--resize", "16", "--crop", "16"]);
    assert_eq!(json(&["branch", &bench.lake(), "dev", "--delete"]), json!({ "branch": "dev", "done": "deleted" }));
    let young = json(&["gc", &bench.lake(), "--retention", "0s"]);
    assert_eq!((&young["garbage"], &young["young"]), (&json!(0), &json!(0)));
    let lake = bench.lake();
    let args = ["gc", lake.as_str(), "--grace", "0s", "--retention", "0s"];
    let mut dry = args.to_vec();
    dry.push("--dry-run");
    let dry = json(&dry);
    assert_eq!((&dry["garbage"], &dry["deleted"], &dry["epoch"]), (&json!(2), &json!(0), &json!(0)));
    let text = forebay(&args).out;
    assert!(text.contains("2 objects of") && text.contains("deleted"), "{text}");
    assert_eq!(json(&args)["garbage"], json!(0));
    let failed = forebay(&["branch", &bench.lake(), "dev", "--undelete"]);
    assert_eq!(failed.code, 1);
    assert!(failed.err.contains("was collected"), "{}", failed.err);
    assert_eq!(json(&["verify", &bench.lake()])["ok"], json!(true));
}

#[test]
fn purged_rows_are_gone_from_every_version_and_the_record_says_why() {
    let bench = lake();
    json(&["tag", &bench.lake(), "v1"]);
    bench.created(&["--append", "--resize", "16", "--crop", "16", "--message", "second"]);
    let purged =
        json(&["purge", &bench.lake(), "--rows", "1,3", "--tag", "v1", "--reason", "asked to", "--author", "Ada"]);
    assert_eq!(purged[0]["rows"], json!(2));
    assert_eq!(json(&["verify", &bench.lake()])["ok"], json!(true));
    let head = json(&["head", &bench.lake(), "--tag", "v1", "--columns", "id"]);
    assert_eq!(head["rows"].as_array().unwrap().len(), 2, "{head}");
    assert_eq!(json(&["ls", &bench.lake()])["tables"][0]["rows"], json!(8), "commits say what they said");
    let list = json(&["purge", &bench.lake(), "--list"]);
    assert_eq!((&list[0]["author"], &list[0]["reason"]), (&json!("Ada"), &json!("asked to")));
    assert_eq!(json(&["purge", &bench.lake(), "--finish"])[0]["files"], json!(0));
    assert_eq!(forebay(&["purge", &bench.lake(), "--rows", "1"]).code, 2);
}

#[test]
fn repair_says_what_is_lost_and_where_a_branch_is_whole() {
    let bench = lake();
    assert_eq!(json(&["repair", &bench.lake()])["ok"], json!(true));
    let first = json(&["log", &bench.lake()])["commits"][0]["id"].clone();
    let known: Vec<_> = data(&bench);
    bench.created(&["--append", "--resize", "16", "--crop", "16", "--message", "second"]);
    let new = data(&bench).into_iter().find(|path| !known.contains(path)).unwrap();
    std::fs::remove_file(new).unwrap();
    let run = forebay(&["repair", &bench.lake(), "--json"]);
    assert_eq!(run.code, 1);
    let found: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(found["branches"][0]["whole"], first);
    assert_eq!(found["branches"][0]["losses"][0]["rows"], json!(4));
    let text = forebay(&["repair", &bench.lake()]).out;
    assert!(text.contains("4 rows of column 'image' are lost") && text.contains("nothing was changed"), "{text}");
}

fn data(bench: &Bench) -> Vec<std::path::PathBuf> {
    let folder = std::path::Path::new(&bench.lake()).join("data");
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn branches_are_renamed_and_brought_back() {
    let bench = lake();
    json(&["branch", &bench.lake(), "dev"]);
    json(&["branch", &bench.lake(), "dev", "--rename-to", "better"]);
    assert_eq!(json(&["ls", &bench.lake()])["branches"], json!(["better", "main"]));
    json(&["branch", &bench.lake(), "better", "--delete"]);
    json(&["branch", &bench.lake(), "better", "--undelete"]);
    assert_eq!(json(&["ls", &bench.lake()])["branches"], json!(["better", "main"]));
    assert_eq!(forebay(&["branch", &bench.lake(), "x", "--delete", "--undelete"]).code, 2);
}

#[test]
fn lakes_are_cloned_pushed_to_and_pulled_from() {
    let bench = lake();
    let copy = format!("{}-copy", bench.lake());
    let cloned = json(&["clone", &bench.lake(), &copy]);
    assert_eq!(cloned["copied"]["commits"], json!(2));
    bench.created(&["--append", "--resize", "16", "--crop", "16", "--message", "second"]);
    let pushed = json(&["push", &bench.lake(), &copy]);
    assert_eq!((&pushed["copied"]["commits"], &pushed["branch"]), (&json!(1), &json!("main")));
    let messages = |lake: &str| -> Vec<String> {
        let log = json(&["log", lake]);
        log["commits"].as_array().unwrap().iter().map(|commit| commit["message"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(messages(&copy), messages(&bench.lake()));
    assert_eq!(json(&["verify", &copy])["ok"], json!(true));
    json(&["pull", &bench.lake(), &copy, "--into", "theirs"]);
    assert_eq!(json(&["ls", &bench.lake()])["branches"], json!(["main", "theirs"]));
    json(&["revert", &copy, "main"]);
    bench.created(&["--append", "--resize", "16", "--crop", "16", "--message", "third"]);
    let failed = forebay(&["push", &bench.lake(), &copy]);
    assert_eq!(failed.code, 1);
    assert!(failed.err.contains("doesn't follow"), "{}", failed.err);
}

#[test]
fn diff_shows_rows_one_by_one_and_log_those_of_a_table() {
    let bench = lake();
    json(&["tag", &bench.lake(), "v1"]);
    bench.created(&["--append", "--resize", "16", "--crop", "16", "--message", "second"]);
    bench.created(&["--append", "--resize", "16", "--crop", "16", "--message", "third", "--table", "more"]);
    let text = forebay(&["diff", &bench.lake(), "v1", "--rows", "main"]).out;
    assert_eq!(text.lines().filter(|line| line.starts_with("+ ") && line.contains(':')).count(), 4, "{text}");
    let lines = forebay(&["diff", &bench.lake(), "v1", "--rows", "main", "--json"]).out;
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(first["change"], json!("added"));
    let log = json(&["log", &bench.lake(), "--table", "more"]);
    assert_eq!(log["commits"].as_array().unwrap().len(), 1);
    assert_eq!(log["commits"][0]["message"], json!("third"));
}
