//! House rules of single files: their size, words that must not stay, what each crate has beside its code.

use super::Source;
use std::path::Path;

/// A file longer than this holds more than one idea.
const MAX_LINES: usize = 600;

/// What must not be committed, and what to do instead. Spelled in two pieces, or this file would find itself.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("to", "do!("), "finish it, or return a typed error that says what is not supported"),
    (concat!("unimpl", "emented!("), "finish it, or return a typed error that says what is not supported"),
    (concat!("db", "g!("), "remove it, or use tracing"),
    (concat!("#[ig", "nore"), "a test that does not run shows nothing; use FOREBAY_LONG for what takes minutes"),
    (concat!("FIX", "ME"), "mend it"),
    (concat!("pytest.mark.", "skip"), "a test that does not run shows nothing"),
    (concat!("pytest.", "skip("), "a test that does not run shows nothing"),
    (concat!("mark.x", "fail"), "a test that may fail shows nothing"),
    (concat!("/ho", "me/"), "this path exists on one machine only"),
    (concat!("/ro", "ot/"), "this path exists on one machine only"),
];

/// The only places that may hold unsafe code.
const UNSAFE: &[&str] = &[
    "storage/src/mapped.rs",
    "jpeg/src/decoder.rs",
    "loader/src/buffer.rs",
    "bindings/python/src/",
    "bindings/sql/src/convert.rs",
    "gpu/",
];

/// One line for each breach of a rule.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let mut findings = crates(sources);
    findings.extend(stubs(sources));
    for source in sources.iter().filter(|source| is_code(&source.path)) {
        findings.extend(size(source));
        findings.extend(words(source));
        findings.extend(unsafety(source));
    }
    findings
}

fn is_code(path: &str) -> bool {
    let ending = Path::new(path).extension().and_then(|ending| ending.to_str());
    matches!(ending, Some("rs" | "py" | "pyi")) && !path.contains("/generated/")
}

fn size(source: &Source) -> Option<String> {
    let lines = source.text.lines().count();
    (lines > MAX_LINES).then(|| format!("{}: {lines} lines; split it, {MAX_LINES} are the limit", source.path))
}

fn words(source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        for (word, instead) in FORBIDDEN.iter().filter(|(word, _)| line.contains(word)) {
            findings.push(format!("{}:{}: `{word}`: {instead}", source.path, number + 1));
        }
    }
    findings
}

/// The workspace denies unsafe code, so a file that holds some says `allow`; clippy wants a reason at each block.
fn unsafety(source: &Source) -> Option<String> {
    let allows = source.text.contains(concat!("allow(un", "safe_code"));
    let permitted = UNSAFE.iter().any(|path| source.path.starts_with(path));
    (allows && !permitted).then(|| format!("{}: unsafe code; it may stand only in {}", source.path, UNSAFE.join(", ")))
}

/// Each crate has a changelog, and its root module opens with what it is.
fn crates(sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    let find = |path: String| sources.iter().find(move |source| source.path == path);
    for folder in sources.iter().filter_map(|source| source.path.strip_suffix("/Cargo.toml")) {
        if find(format!("{folder}/CHANGELOG.md")).is_none() {
            findings.push(format!("{folder}: has no CHANGELOG.md"));
        }
        let root = find(format!("{folder}/src/lib.rs")).or_else(|| find(format!("{folder}/src/main.rs")));
        match root {
            None => findings.push(format!("{folder}: has neither src/lib.rs nor src/main.rs")),
            Some(root) if !root.text.starts_with("//!") => {
                findings.push(format!("{}: does not open with what the crate is (`//!`)", root.path));
            }
            Some(_) => {}
        }
    }
    findings
}

/// A Python package that ships native code ships types for it.
fn stubs(sources: &[Source]) -> Vec<String> {
    let folder = "bindings/python/python/forebay";
    if !sources.iter().any(|source| source.path.starts_with(folder)) {
        return Vec::new();
    }
    let wanted = ["py.typed", "_forebay.pyi"].map(|name| format!("{folder}/{name}"));
    let missing = wanted.into_iter().filter(|path| !sources.iter().any(|source| source.path == *path));
    missing.map(|path| format!("{path}: missing, so type checkers see nothing of the package")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    fn one(path: &str, text: &str) -> Vec<String> {
        check(&[source(path, text)])
    }

    #[test]
    fn a_long_file_is_found_unless_it_is_generated() {
        let long = "\n".repeat(MAX_LINES + 1);
        assert_eq!(one("a/src/x.rs", &long), ["a/src/x.rs: 601 lines; split it, 600 are the limit"]);
        assert_eq!(one("a/src/generated/x.rs", &long), [""; 0]);
        assert_eq!(one("a/src/x.rs", &"\n".repeat(MAX_LINES)), [""; 0]);
    }

    #[test]
    fn a_forbidden_word_is_found_with_its_line() {
        let findings = one("a/src/x.rs", concat!("fn f() {\n    to", "do!()\n}\n"));
        assert_eq!(findings.len(), 1);
        assert!(findings[0].starts_with("a/src/x.rs:2: "), "{}", findings[0]);
    }

    #[test]
    fn unsafe_code_needs_a_permitted_place() {
        let text = concat!("#![allow(un", "safe_code)]\n");
        assert_eq!(one("format/src/x.rs", text).len(), 1);
        assert_eq!(one("gpu/src/x.rs", text), [""; 0]);
    }

    #[test]
    fn a_crate_needs_a_changelog_and_opening_words() {
        let findings = check(&[source("a/Cargo.toml", ""), source("a/src/lib.rs", "pub fn f() {}")]);
        assert_eq!(findings, ["a: has no CHANGELOG.md", "a/src/lib.rs: does not open with what the crate is (`//!`)"]);
        let whole = [source("a/Cargo.toml", ""), source("a/src/main.rs", "//! A."), source("a/CHANGELOG.md", "")];
        assert_eq!(check(&whole), [""; 0]);
    }

    #[test]
    fn the_python_package_needs_its_stubs() {
        let findings = one("bindings/python/python/forebay/__init__.py", "");
        assert_eq!(findings.len(), 2);
    }
}
