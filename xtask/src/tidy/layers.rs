//! Which crate may know which: the layering of the workspace, checked over all transitive dependencies.

use crate::repo::Repo;
use crate::shell;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// What each crate of the workspace may depend on inside the workspace (but for its tests).
const MAY_KNOW: &[(&str, &[&str])] = &[
    ("forebay-format", &[]),
    ("forebay-storage", &[]),
    ("forebay-versioning", &["forebay-format", "forebay-storage"]),
    ("forebay-query", &["forebay-format", "forebay-storage", "forebay-versioning"]),
    ("forebay-sql", &["forebay-format", "forebay-storage", "forebay-versioning"]),
    ("forebay-sql-python", &["forebay-format", "forebay-storage", "forebay-versioning", "forebay-sql"]),
    ("forebay-jpeg", &[]),
    ("forebay-loader", &["forebay-format", "forebay-storage", "forebay-versioning", "forebay-jpeg"]),
    ("forebay-gpu", &["forebay-format", "forebay-storage", "forebay-versioning", "forebay-jpeg", "forebay-loader"]),
    (
        "forebay-cli",
        &["forebay-format", "forebay-storage", "forebay-versioning", "forebay-jpeg", "forebay-loader", "forebay-query"],
    ),
    (
        "forebay-python",
        &[
            "forebay-format",
            "forebay-storage",
            "forebay-versioning",
            "forebay-jpeg",
            "forebay-loader",
            "forebay-query",
            "forebay-gpu",
            "forebay-cli",
        ],
    ),
    ("xtask", &[]),
];

/// What must not be reached from a crate by any path, and why. A name that ends in `*` stands for all that begin so.
const NEVER: &[(&str, &[&str], &str)] = &[
    (
        "forebay-format",
        &["tokio", "futures*", "object_store", "memmap2", "rayon", "crossbeam*"],
        "format is sans-IO: no async, no threads, no storage",
    ),
    ("forebay-format", HEAVY, "the lower layers build without SQL, Arrow, Python or CUDA"),
    ("forebay-storage", HEAVY, "the lower layers build without SQL, Arrow, Python or CUDA"),
    ("forebay-versioning", HEAVY, "the lower layers build without SQL, Arrow, Python or CUDA"),
    ("forebay-loader", HEAVY, "the lower layers build without SQL, Arrow, Python or CUDA"),
    ("forebay-query", HEAVY, "choosing rows by a predicate builds without SQL"),
    ("forebay-sql", &["pyo3*", "cust*"], "SQL knows neither Python nor CUDA"),
    ("forebay-python", SQL, "SQL is a library of its own, so that the package stays small"),
    ("forebay-gpu", &["pyo3*", "datafusion*"], "gpu knows neither Python nor SQL"),
    ("forebay-cli", &["pyo3*"], "the command runs without Python"),
    ("forebay-cli", SQL, "SQL is a library of its own, so that the package stays small"),
    ("xtask", &["tokio", "forebay-*"], "xtask builds first on every machine, so it stays small"),
];

const SQL: &[&str] = &["datafusion*", "arrow*", "parquet*", "sqlparser*"];
const HEAVY: &[&str] = &["datafusion*", "arrow*", "parquet*", "pyo3*", "numpy", "cust*"];

/// Each package of the build with the packages it depends on, dev-dependencies left out.
pub(super) type Graph = BTreeMap<String, BTreeSet<String>>;

/// The graph of the workspace as cargo resolved it.
pub(super) fn graph(repo: &Repo) -> Result<Graph> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
        resolve: Resolve,
    }
    #[derive(Deserialize)]
    struct Package {
        id: String,
        name: String,
    }
    #[derive(Deserialize)]
    struct Resolve {
        nodes: Vec<Node>,
    }
    #[derive(Deserialize)]
    struct Node {
        id: String,
        deps: Vec<Dep>,
    }
    #[derive(Deserialize)]
    struct Dep {
        pkg: String,
        dep_kinds: Vec<Kind>,
    }
    #[derive(Deserialize)]
    struct Kind {
        kind: Option<String>,
    }

    // Only what is built here: other platforms pull in packages that say nothing about the layering.
    let rustc = shell::output(Command::new("rustc").arg("-vV"))?;
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc does not name its host")?;
    let mut metadata = shell::cargo(repo);
    let text = shell::output(metadata.args(["metadata", "--format-version", "1", "--filter-platform", host]))?;
    let metadata: Metadata = serde_json::from_str(&text).context("cargo metadata is not as expected")?;
    let names: BTreeMap<_, _> = metadata.packages.into_iter().map(|package| (package.id, package.name)).collect();
    let name = |id: &str| names.get(id).cloned().with_context(|| format!("cargo metadata does not name {id}"));
    let mut graph = Graph::new();
    for node in metadata.resolve.nodes {
        let node_deps =
            node.deps.iter().filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind.as_deref() != Some("dev")));
        let deps = node_deps.map(|dep| name(&dep.pkg)).collect::<Result<BTreeSet<_>>>()?;
        // Two versions of a package are one here: what either reaches counts.
        graph.entry(name(&node.id)?).or_default().extend(deps);
    }
    Ok(graph)
}

/// One line for each dependency that the layering forbids.
pub(super) fn check(graph: &Graph) -> Vec<String> {
    let mut findings = Vec::new();
    for (krate, known) in MAY_KNOW {
        let Some(deps) = graph.get(*krate) else {
            findings.push(format!("{krate}: the layering names it but the workspace has no such crate"));
            continue;
        };
        let ours = deps.iter().filter(|dep| dep.starts_with("forebay-") || *dep == "xtask");
        findings.extend(
            ours.filter(|dep| !known.contains(&dep.as_str())).map(|dep| format!("{krate}: must not depend on {dep}")),
        );
    }
    for krate in graph.keys().filter(|name| name.starts_with("forebay-")) {
        if !MAY_KNOW.iter().any(|(name, _)| name == krate) {
            findings.push(format!("{krate}: has no place in the layering (xtask/src/tidy/layers.rs)"));
        }
    }
    for (krate, banned, why) in NEVER {
        for path in paths(graph, krate) {
            let name = path.last().map_or("", String::as_str);
            if banned.iter().any(|pattern| matches(pattern, name)) {
                findings.push(format!("{krate}: must not reach {name} (by {}): {why}", path.join(" > ")));
            }
        }
    }
    findings
}

/// A shortest path from a crate to each package it reaches, that package last.
fn paths(graph: &Graph, from: &str) -> Vec<Vec<String>> {
    let mut found = vec![vec![from.to_string()]];
    let mut seen = BTreeSet::from([from.to_string()]);
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        let deps = path.last().and_then(|name| graph.get(name)).into_iter().flatten();
        for dep in deps {
            if seen.insert(dep.clone()) {
                let mut longer = path.clone();
                longer.push(dep.clone());
                found.push(longer);
            }
        }
    }
    found.remove(0);
    found
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The crates of the layering without any dependency, and the given ones added.
    fn graph(edges: &[(&str, &str)]) -> Graph {
        let mut graph: Graph = MAY_KNOW.iter().map(|(name, _)| (name.to_string(), BTreeSet::new())).collect();
        for (from, to) in edges {
            graph.entry(from.to_string()).or_default().insert(to.to_string());
        }
        graph
    }

    #[test]
    fn what_the_layering_allows_passes() {
        assert_eq!(check(&graph(&[("forebay-loader", "forebay-versioning"), ("forebay-sql", "datafusion")])), [""; 0]);
    }

    #[test]
    fn query_and_loader_must_not_know_each_other() {
        let findings = check(&graph(&[("forebay-loader", "forebay-query"), ("forebay-query", "forebay-loader")]));
        assert_eq!(
            findings,
            ["forebay-query: must not depend on forebay-loader", "forebay-loader: must not depend on forebay-query"]
        );
    }

    #[test]
    fn a_heavy_dependency_is_found_through_others_and_the_path_is_shown() {
        let edges = [("forebay-loader", "forebay-versioning"), ("forebay-versioning", "a"), ("a", "arrow-array")];
        let findings = check(&graph(&edges));
        assert_eq!(findings.len(), 2);
        assert!(findings[1].contains("forebay-loader > forebay-versioning > a > arrow-array"), "{}", findings[1]);
    }

    #[test]
    fn a_crate_without_a_place_is_found() {
        let findings = check(&graph(&[("forebay-new", "bytes")]));
        assert_eq!(findings, ["forebay-new: has no place in the layering (xtask/src/tidy/layers.rs)"]);
    }

    #[test]
    fn a_star_stands_for_every_ending() {
        assert!(matches("arrow*", "arrow-array") && matches("tokio", "tokio"));
        assert!(!matches("tokio", "tokio-util") && !matches("arrow*", "narrow"));
    }
}
