//! Links in Markdown files that point into the repository must point at something.

use super::Source;

/// One line for each link to a file that `exists` does not know. Links elsewhere are not followed.
pub(super) fn check(sources: &[Source], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.path.ends_with(".md")) {
        let folder = source.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (line, target) in links(&source.text) {
            let file = target.split('#').next().unwrap_or_default();
            let elsewhere = file.is_empty() || file.contains(':');
            if !elsewhere && !resolve(folder, file).is_some_and(|path| exists(&path)) {
                findings.push(format!("{}:{line}: links to {target}, which is not there", source.path));
            }
        }
    }
    findings
}

/// The targets of `[text](target)` and `![text](target)` with their lines, those in code left out.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        // Every second piece between backticks is code.
        for prose in line.split('`').step_by(2) {
            for rest in prose.split("](").skip(1) {
                if let Some((target, _)) = rest.split_once(')') {
                    found.push((number + 1, target.split(' ').next().unwrap_or_default()));
                }
            }
        }
    }
    found
}

/// A path relative to a folder of the repository, from the root; `None` if it leaves the repository.
fn resolve(folder: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    fn broken(path: &str, text: &str, files: &[&str]) -> Vec<String> {
        check(&[source(path, text)], |wanted| files.contains(&wanted))
    }

    #[test]
    fn a_link_to_nothing_is_found_with_its_line() {
        let findings = broken("docs/a.md", "see\n[b](b.md) and [c](../c.md#part)", &["docs/b.md"]);
        assert_eq!(findings, ["docs/a.md:2: links to ../c.md#part, which is not there"]);
    }

    #[test]
    fn links_elsewhere_and_in_code_are_left_alone() {
        let text = "[w](https://example.org/x) [h](#here) `[x](y.md)`\n```\n[x](y.md)\n```\n";
        assert_eq!(broken("a.md", text, &[]), [""; 0]);
    }

    #[test]
    fn a_link_must_not_leave_the_repository() {
        assert_eq!(broken("a.md", "[x](../x.md)", &["x.md"]).len(), 1);
        assert_eq!(resolve("docs/deep", "./../b.md").as_deref(), Some("docs/b.md"));
    }

    #[test]
    fn pictures_and_titles_are_understood() {
        assert_eq!(links("![p](p.svg \"title\")"), [(1, "p.svg")]);
    }
}
