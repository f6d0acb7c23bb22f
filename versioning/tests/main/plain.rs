//! What a lake must do, said plainly: versions are maps of rows by their identity, and merges go cell by cell.

use std::collections::{BTreeMap, BTreeSet};

/// A row's cells by column. A column that a row lacks has the column's default.
pub type Row = BTreeMap<u32, i64>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    pub rows: BTreeMap<i64, Row>,
    /// Columns and their names.
    pub columns: BTreeMap<u32, String>,
}

#[derive(Clone, Debug)]
pub struct Commit {
    pub parents: Vec<usize>,
    pub version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Fail,
    Ours,
    Theirs,
    /// What criss-cross merges do with their bases.
    Base,
}

/// What nobody decided: cells by column, rows by whether they were deleted on our side, and names of columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflicts {
    pub cells: BTreeMap<u32, BTreeSet<i64>>,
    pub rows: BTreeMap<bool, BTreeSet<i64>>,
    pub columns: usize,
    /// Whether both sides have a row, each in its own way, that the base doesn't have: what was picked or brought back
    /// before. What the base once knew of it counts then, and this model forgets that.
    pub forgotten: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Plain {
    pub commits: Vec<Commit>,
    pub branches: BTreeMap<String, usize>,
    pub defaults: BTreeMap<u32, i64>,
}

impl Plain {
    pub fn cell(&self, row: &Row, column: u32) -> i64 {
        row.get(&column).or_else(|| self.defaults.get(&column)).copied().unwrap_or(0)
    }

    pub fn head(&self, branch: &str) -> &Version {
        &self.commits[self.branches[branch]].version
    }

    pub fn commit(&mut self, parents: Vec<usize>, version: Version) -> usize {
        self.commits.push(Commit { parents, version });
        self.commits.len() - 1
    }

    fn ancestors(&self, commit: usize) -> BTreeSet<usize> {
        let (mut seen, mut queue) = (BTreeSet::new(), vec![commit]);
        while let Some(next) = queue.pop() {
            if seen.insert(next) {
                queue.extend(&self.commits[next].parents);
            }
        }
        seen
    }

    pub fn is_ancestor(&self, ancestor: usize, commit: usize) -> bool {
        self.ancestors(commit).contains(&ancestor)
    }

    pub fn bases(&self, a: usize, b: usize) -> Vec<usize> {
        let common: BTreeSet<usize> = &self.ancestors(a) & &self.ancestors(b);
        let best = |base: &usize| !common.iter().any(|other| other != base && self.is_ancestor(*base, *other));
        common.iter().copied().filter(best).collect()
    }

    /// The version to merge from; `None` where three or more bases would have to be merged, or what the model forgets counts.
    pub fn base(&self, a: usize, b: usize) -> Option<Version> {
        match self.bases(a, b)[..] {
            [] => Some(Version::default()),
            [one] => Some(self.commits[one].version.clone()),
            [one, two] => {
                let under = self.base(one, two)?;
                let (one, two) = (&self.commits[one].version, &self.commits[two].version);
                let (merged, conflicts) = self.merge(&under, one, two, Policy::Base);
                (!conflicts.forgotten).then_some(merged)
            }
            _ => None,
        }
    }

    pub fn merge(&self, base: &Version, ours: &Version, theirs: &Version, policy: Policy) -> (Version, Conflicts) {
        let mut merged = Version::default();
        let mut conflicts = Conflicts::default();
        let columns: BTreeSet<u32> = ours.columns.keys().chain(theirs.columns.keys()).copied().collect();
        for column in columns {
            let of = |version: &Version| version.columns.get(&column).cloned();
            let name = match (of(base), of(ours), of(theirs)) {
                (was, Some(our), Some(their)) if our == their || was.as_ref() == Some(&their) => Some(our),
                (was, Some(our), Some(their)) if was.as_ref() == Some(&our) => Some(their),
                (_, Some(our), Some(their)) => match policy {
                    Policy::Theirs => Some(their),
                    Policy::Ours | Policy::Base => Some(our),
                    Policy::Fail => {
                        conflicts.columns += 1;
                        Some(our)
                    }
                },
                (None, our, their) => our.or(their),
                // One side dropped it: so it is, unless the other one changed values of it.
                (Some(_), our, their) => {
                    let (side, winner) = if our.is_some() { (ours, Policy::Ours) } else { (theirs, Policy::Theirs) };
                    let changed = base.rows.iter().any(|(id, was)| {
                        side.rows.get(id).is_some_and(|is| self.cell(was, column) != self.cell(is, column))
                    });
                    conflicts.columns += usize::from(changed && policy == Policy::Fail);
                    our.or(their).filter(|_| changed && (policy == winner || policy == Policy::Base))
                }
            };
            merged.columns.extend(name.map(|name| (column, name)));
        }
        let ids: BTreeSet<i64> = ours.rows.keys().chain(theirs.rows.keys()).copied().collect();
        for id in ids {
            let (was, our, their) = (base.rows.get(&id), ours.rows.get(&id), theirs.rows.get(&id));
            let row = match (was, our, their) {
                (_, Some(our), Some(their)) => {
                    let sides = [(our, ours), (their, theirs)];
                    Some(self.merge_row(id, (was, base), sides, policy, &mut conflicts))
                }
                (None, Some(row), None) | (None, None, Some(row)) => Some(row.clone()),
                (Some(was), one, other) => {
                    let version = if one.is_some() { ours } else { theirs };
                    let Some(left) = one.or(other) else { continue };
                    let there =
                        |column: &&u32| version.columns.contains_key(column) && merged.columns.contains_key(column);
                    let changed = base.columns.keys().filter(there).any(|c| self.cell(was, *c) != self.cell(left, *c));
                    match (changed, policy) {
                        (false, _) => None,
                        (true, Policy::Ours) => our.cloned(),
                        (true, Policy::Theirs) => their.cloned(),
                        (true, Policy::Base) => Some(was.clone()),
                        (true, Policy::Fail) => {
                            conflicts.rows.entry(our.is_none()).or_default().insert(id);
                            None
                        }
                    }
                }
                (None, None, None) => None,
            };
            let kept = |mut row: Row| {
                row.retain(|column, _| merged.columns.contains_key(column));
                row
            };
            merged.rows.extend(row.map(|row| (id, kept(row))));
        }
        (merged, conflicts)
    }

    fn merge_row(
        &self,
        id: i64,
        (was, base): (Option<&Row>, &Version),
        [(our, ours), (their, theirs)]: [(&Row, &Version); 2],
        policy: Policy,
        conflicts: &mut Conflicts,
    ) -> Row {
        let mut row = Row::new();
        let columns: BTreeSet<u32> = ours.columns.keys().chain(theirs.columns.keys()).copied().collect();
        for column in columns {
            let (o, t) = (self.cell(our, column), self.cell(their, column));
            let value = match (ours.columns.contains_key(&column), theirs.columns.contains_key(&column)) {
                (true, false) => o,
                (false, true) => t,
                _ if o == t => o,
                _ => {
                    conflicts.forgotten |= was.is_none();
                    // A column that the base lacks has its default there, if it has one.
                    let lacking = !base.columns.contains_key(&column);
                    let default = self.defaults.get(&column).copied();
                    let b = was.and_then(|was| if lacking { default } else { Some(self.cell(was, column)) });
                    match policy {
                        _ if b == Some(t) => o,
                        _ if b == Some(o) => t,
                        Policy::Theirs => t,
                        Policy::Ours => o,
                        Policy::Base => b.unwrap_or(o),
                        Policy::Fail => {
                            conflicts.cells.entry(column).or_default().insert(id);
                            o
                        }
                    }
                }
            };
            row.insert(column, value);
        }
        row
    }

    /// Rows added, deleted and changed.
    pub fn diff(&self, before: &Version, after: &Version) -> (u64, u64, u64) {
        let added = after.rows.keys().filter(|id| !before.rows.contains_key(id)).count();
        let deleted = before.rows.keys().filter(|id| !after.rows.contains_key(id)).count();
        let columns: Vec<u32> = before.columns.keys().copied().filter(|c| after.columns.contains_key(c)).collect();
        let changed = before.rows.iter().filter(|(id, was)| {
            let is = after.rows.get(id);
            is.is_some_and(|is| columns.iter().any(|c| self.cell(was, *c) != self.cell(is, *c)))
        });
        (added as u64, deleted as u64, changed.count() as u64)
    }
}
