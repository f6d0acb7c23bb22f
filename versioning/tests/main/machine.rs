//! All operations in any order, against the plain model.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use forebay_format::{Column, ColumnData, ColumnSlice, DType, FieldId, OwnedValues, Schema};
use forebay_versioning::{
    At, CompactOptions, ConflictKind, Error, Lake, MergeOptions, MergeSide, Policy as LakePolicy, Rows, Selection,
    Table, Transaction,
};
use proptest::prelude::*;

use crate::{
    plain::{Plain, Policy, Row, Version},
    support::{block_on, small, temporary},
};

/// A change of rows or columns of a branch.
#[derive(Clone, Debug)]
pub enum Change {
    Append {
        rows: i64,
    },
    /// Every `step`-th row from `from` on.
    Delete {
        from: u64,
        step: u64,
    },
    Update {
        from: u64,
        step: u64,
        columns: u8,
    },
    AddColumn {
        with_values: bool,
    },
    Rename {
        column: prop::sample::Index,
    },
    /// Reverts and merges bring it back.
    DropColumn {
        column: prop::sample::Index,
    },
    Compact {
        join: bool,
        split: bool,
    },
}

#[derive(Clone, Debug)]
pub enum Step {
    Commit {
        branch: u8,
        change: Change,
    },
    /// Two transactions from one base.
    Race {
        branch: u8,
        first: Change,
        second: Change,
    },
    Branch {
        from: u8,
    },
    Merge {
        into: u8,
        from: u8,
        policy: u8,
    },
    CherryPick {
        branch: u8,
        commit: prop::sample::Index,
        policy: u8,
    },
    Revert {
        branch: u8,
        commit: prop::sample::Index,
        policy: u8,
    },
    Reset {
        branch: u8,
        commit: prop::sample::Index,
    },
    Diff {
        one: prop::sample::Index,
        other: prop::sample::Index,
    },
    /// Every `step`-th row from `from` on, from all history.
    Purge {
        branch: u8,
        from: u64,
        step: u64,
    },
}

pub fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => (1..7_i64).prop_map(|rows| Change::Append { rows }),
        3 => (0..6_u64, 1..5_u64).prop_map(|(from, step)| Change::Delete { from, step }),
        5 => (0..6_u64, 1..4_u64, 1..4_u8).prop_map(|(from, step, columns)| Change::Update { from, step, columns }),
        1 => any::<bool>().prop_map(|with_values| Change::AddColumn { with_values }),
        1 => any::<prop::sample::Index>().prop_map(|column| Change::Rename { column }),
        2 => any::<prop::sample::Index>().prop_map(|column| Change::DropColumn { column }),
        3 => (any::<bool>(), any::<bool>()).prop_map(|(join, split)| Change::Compact { join, split }),
    ]
}

pub fn step() -> impl Strategy<Value = Step> {
    let commit = any::<prop::sample::Index>;
    prop_oneof![
        8 => (0..3_u8, change()).prop_map(|(branch, change)| Step::Commit { branch, change }),
        2 => (0..3_u8, change(), change()).prop_map(|(branch, first, second)| Step::Race { branch, first, second }),
        2 => (0..3_u8).prop_map(|from| Step::Branch { from }),
        6 => (0..3_u8, 0..3_u8, 0..3_u8).prop_map(|(into, from, policy)| Step::Merge { into, from, policy }),
        1 => (0..3_u8, commit(), 0..3_u8).prop_map(|(branch, commit, policy)| Step::CherryPick { branch, commit, policy }),
        2 => (0..3_u8, commit(), 0..3_u8).prop_map(|(branch, commit, policy)| Step::Revert { branch, commit, policy }),
        1 => (0..3_u8, commit()).prop_map(|(branch, commit)| Step::Reset { branch, commit }),
        2 => (commit(), commit()).prop_map(|(one, other)| Step::Diff { one, other }),
        1 => (0..3_u8, 0..6_u64, 1..5_u64).prop_map(|(branch, from, step)| Step::Purge { branch, from, step }),
    ]
}

/// Columns of the first version: `id`, never updated; `x`; and `t`, a nullable text.
const ID: u32 = 0;
const X: u32 = 1;
const T: u32 = 2;

pub struct Machine {
    pub lake: Lake,
    pub plain: Plain,
    /// The lake's commit of each of the model's.
    ids: Vec<forebay_format::CommitId>,
    fields: BTreeMap<u32, FieldId>,
    next: i64,
    _folder: tempfile::TempDir,
}

/// The text that a number stands for.
fn text(value: i64) -> Option<String> {
    (value % 4 != 0).then(|| format!("value {value}"))
}

/// Cells of a column as the lake takes them.
fn data(column: &Column, cells: &[i64]) -> ColumnData {
    let values = match column.dtype {
        DType::I64 => OwnedValues::Fixed(cells.iter().flat_map(|cell| cell.to_le_bytes()).collect()),
        _ => {
            let (mut offsets, mut bytes) = (vec![0], Vec::new());
            for cell in cells {
                bytes.extend(text(*cell).unwrap_or_default().bytes());
                offsets.push(bytes.len() as u64);
            }
            OwnedValues::Ragged { offsets, shapes: Vec::new(), bytes }
        }
    };
    let validity = column.nullable.then(|| {
        let mut bits = vec![0_u8; cells.len().div_ceil(8)];
        for (at, _) in cells.iter().enumerate().filter(|(_, cell)| text(**cell).is_some()) {
            bits[at / 8] |= 1 << (at % 8);
        }
        bits
    });
    ColumnData { rows: cells.len(), values, validity }
}

/// What reading gives for a cell.
fn seen(column: &Column, value: i64) -> String {
    if column.dtype == DType::I64 { value.to_string() } else { format!("{:?}", text(value)) }
}

pub fn shown(column: &Column, data: &ColumnData, row: usize) -> String {
    match &data.values {
        OwnedValues::Fixed(bytes) => i64::from_le_bytes(bytes[row * 8..][..8].try_into().unwrap()).to_string(),
        OwnedValues::Ragged { offsets, bytes, .. } => {
            let valid = data.validity.as_ref().is_none_or(|bits| bits[row / 8] >> (row % 8) & 1 == 1);
            let bytes = &bytes[offsets[row] as usize..offsets[row + 1] as usize];
            let text = valid.then(|| String::from_utf8(bytes.to_vec()).unwrap());
            assert_eq!(column.dtype, DType::Utf8);
            format!("{text:?}")
        }
    }
}

impl Machine {
    pub async fn new() -> Self {
        let (folder, storage) = temporary();
        let lake = Lake::create(storage).await.unwrap();
        let mut transaction = lake.begin("main").await.unwrap();
        let mut t = Column::new("t", DType::Utf8, []).unwrap();
        t.nullable = true;
        let columns = vec![Column::new("id", DType::I64, []).unwrap(), Column::new("x", DType::I64, []).unwrap(), t];
        let fields = columns.iter().zip(0..).map(|(column, number)| (number, column.field)).collect();
        transaction.create_table("main", Schema::new(columns).unwrap()).unwrap();
        let first = transaction.commit("create", "tester").await.unwrap();
        // Null is the default of what may be null.
        let mut plain = Plain { defaults: BTreeMap::from([(T, 0)]), ..Plain::default() };
        let columns = [(ID, "id"), (X, "x"), (T, "t")].map(|(number, name)| (number, name.to_owned()));
        let version = Version { rows: BTreeMap::new(), columns: BTreeMap::from(columns) };
        let commit = plain.commit(Vec::new(), version);
        plain.branches.insert("main".into(), commit);
        Self { lake, plain, ids: vec![first.id()], fields, next: 1, _folder: folder }
    }

    fn branch(&self, number: u8) -> String {
        let names: Vec<&String> = self.plain.branches.keys().collect();
        names[usize::from(number) % names.len()].clone()
    }

    fn column(&self, table: &Table, number: u32) -> Column {
        table.schema().columns.iter().find(|column| column.field == self.fields[&number]).unwrap().clone()
    }

    /// Every `step`-th row of a table, with its id.
    async fn chosen(&self, table: &Table, from: u64, step: u64) -> (Selection, Vec<i64>) {
        let rows: Vec<u64> = (from..table.rows()).step_by(step as usize).collect();
        let ids = table.take("id", &rows).await.unwrap();
        let OwnedValues::Fixed(bytes) = &ids.values else { panic!("ids are numbers") };
        let ids = bytes.chunks_exact(8).map(|id| i64::from_le_bytes(id.try_into().unwrap())).collect();
        (Selection::new(table.clone(), Rows::List(rows.into())).unwrap(), ids)
    }

    /// Puts a change into a transaction; gives what the base becomes.
    async fn change(&mut self, transaction: &mut Transaction, change: &Change, mut version: Version) -> Version {
        let table = transaction.base().table("main").await.unwrap();
        match change {
            Change::Append { rows } => {
                let mut columns: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
                for _ in 0..*rows {
                    let id = self.next;
                    self.next += 10;
                    let row: Row = version.columns.keys().map(|c| (*c, id + i64::from(*c))).collect();
                    for (column, cell) in &row {
                        columns.entry(*column).or_default().push(*cell);
                    }
                    version.rows.insert(id, row);
                }
                let of = |field| *self.fields.iter().find(|(_, other)| **other == field).unwrap().0;
                let data: Vec<ColumnData> =
                    table.schema().columns.iter().map(|column| data(column, &columns[&of(column.field)])).collect();
                let mut writer = transaction.writer("main").await.unwrap().with_options(small());
                let write = move || {
                    let slices: Vec<ColumnSlice<'_>> = data.iter().map(ColumnData::as_slice).collect();
                    writer.push(&slices).unwrap();
                    writer.finish().unwrap()
                };
                transaction.append(tokio::task::spawn_blocking(write).await.unwrap());
            }
            Change::Delete { from, step } => {
                let (rows, ids) = self.chosen(&table, *from, *step).await;
                assert_eq!(transaction.delete(&rows).unwrap(), ids.len() as u64);
                version.rows.retain(|id, _| !ids.contains(id));
            }
            Change::Update { from, step, columns } => {
                let (rows, ids) = self.chosen(&table, *from, *step).await;
                let mut values = Vec::new();
                for number in version.columns.keys().copied().filter(|number| *number != ID).collect::<Vec<_>>() {
                    if columns >> (number % 2) & 1 == 0 {
                        continue;
                    }
                    // All numbers that stand for null are one value.
                    let fresh = (self.next + 1..).map(|n| if number == T && text(n).is_none() { 0 } else { n });
                    let cells: Vec<i64> = fresh.take(ids.len()).collect();
                    self.next += ids.len() as i64;
                    for (id, cell) in ids.iter().zip(&cells) {
                        version.rows.get_mut(id).unwrap().insert(number, *cell);
                    }
                    let column = self.column(&table, number);
                    values.push((column.name.clone(), data(&column, &cells)));
                }
                self.next += 10 - self.next % 10 + 1;
                let named: Vec<_> = values.iter().map(|(name, data)| (name.as_str(), data.as_slice())).collect();
                transaction.update(&rows, &named).await.unwrap();
            }
            Change::AddColumn { with_values } => {
                let number = self.fields.len() as u32;
                let mut column = Column::new(format!("c{number}"), DType::I64, []).unwrap();
                if number.is_multiple_of(2) {
                    column.compression.codec = forebay_format::Codec::Lz4;
                }
                self.fields.insert(number, column.field);
                let default = i64::from(number) * 1_000_000_007;
                self.plain.defaults.insert(number, default);
                version.columns.insert(number, column.name.clone());
                let default = data(&column, &[default]);
                if *with_values {
                    let (_, ids) = self.chosen(&table, 0, 1).await;
                    for id in &ids {
                        version.rows.get_mut(id).unwrap().insert(number, id * 1_000_003);
                    }
                    let values = |rows: std::ops::Range<u64>| {
                        let ids = &ids[rows.start as usize..rows.end as usize];
                        let cells: Vec<i64> = ids.iter().map(|id| id * 1_000_003).collect();
                        Ok(data(&column, &cells))
                    };
                    transaction.add_column_with(&table, column.clone(), Some(&default), values).await.unwrap();
                } else {
                    transaction.add_column(&table, column, Some(&default)).await.unwrap();
                }
            }
            Change::Rename { column } => {
                let numbers: Vec<u32> = version.columns.keys().copied().filter(|number| *number != ID).collect();
                let number = *column.get(&numbers);
                let from = version.columns[&number].clone();
                self.next += 10;
                let to = format!("n{}", self.next);
                transaction.rename_column(&table, &from, &to).unwrap();
                version.columns.insert(number, to);
            }
            Change::DropColumn { column } => {
                // Any that has a default, or is null where nothing else is known.
                let numbers: Vec<u32> = version.columns.keys().copied().filter(|n| ![ID, X].contains(n)).collect();
                if !numbers.is_empty() {
                    let number = *column.get(&numbers);
                    transaction.drop_column(&table, &version.columns[&number].clone()).unwrap();
                    version.columns.remove(&number);
                    version.rows.values_mut().for_each(|row| _ = row.remove(&number));
                }
            }
            Change::Compact { join, split } => {
                let small = if *join { u64::MAX } else { 0 };
                let size = if *split { 1 } else { 1 << 30 };
                let options = CompactOptions::default().with_small_bytes(small).with_file_bytes(size);
                transaction.compact(&table, options).await.unwrap();
            }
        }
        version
    }

    /// Holds what a commit gave against the model, and takes it into it.
    async fn committed(
        &mut self,
        branch: &str,
        result: forebay_versioning::Result<forebay_versioning::Snapshot>,
        parents: Vec<usize>,
        version: Version,
    ) {
        match result {
            Ok(snapshot) => {
                let commit = self.plain.commit(parents, version);
                self.ids.push(snapshot.id());
                self.plain.branches.insert(branch.to_owned(), commit);
                self.check(branch).await;
            }
            Err(Error::NothingToCommit { .. }) => {
                assert_eq!(self.visible(self.plain.head(branch)), self.visible(&version), "nothing to commit");
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// A version without cells of columns that it doesn't have.
    fn visible(&self, version: &Version) -> BTreeMap<i64, Vec<i64>> {
        let cells = |row: &Row| version.columns.keys().map(|column| self.plain.cell(row, *column)).collect();
        version.rows.iter().map(|(id, row)| (*id, cells(row))).collect()
    }

    async fn check(&self, branch: &str) {
        self.check_version(&At::Branch(branch.to_owned()), self.plain.head(branch)).await;
    }

    async fn check_version(&self, at: &At, version: &Version) {
        let table = self.lake.snapshot(at).await.unwrap().table("main").await.unwrap();
        let names: BTreeSet<&String> = version.columns.values().collect();
        assert_eq!(table.schema().columns.iter().map(|column| &column.name).collect::<BTreeSet<_>>(), names, "{at}");
        let mut found: Vec<Vec<String>> = vec![Vec::new(); table.rows() as usize];
        for (number, name) in &version.columns {
            let column = self.column(&table, *number);
            let data = table.read(name, 0..table.rows()).await.unwrap();
            assert_eq!(data.rows as u64, table.rows());
            for (row, cells) in found.iter_mut().enumerate() {
                cells.push(shown(&column, &data, row));
            }
        }
        found.sort();
        let expect = |row: &Row| -> Vec<String> {
            let cell = |column: &u32| seen(&self.column(&table, *column), self.plain.cell(row, *column));
            version.columns.keys().map(cell).collect()
        };
        let mut expected: Vec<Vec<String>> = version.rows.values().map(expect).collect();
        expected.sort();
        assert_eq!(found, expected, "rows at {at}");
    }

    /// A merge in the lake and in the model.
    async fn merged(&mut self, kind: &Step, branch: &str, parents: Vec<usize>, sides: [&Version; 3], policy: u8) {
        let (plain, lake) = match policy {
            0 => (Policy::Fail, LakePolicy::Fail),
            1 => (Policy::Ours, LakePolicy::Side(MergeSide::Ours)),
            _ => (
                Policy::Theirs,
                LakePolicy::Callback(Arc::new(|_| forebay_versioning::Choice::Side(MergeSide::Theirs))),
            ),
        };
        let [base, ours, theirs] = sides;
        let (version, expected) = self.plain.merge(base, ours, theirs, plain);
        if expected.forgotten {
            return;
        }
        let options = MergeOptions::by("tester").with_policy(lake);
        let run = async |options: &MergeOptions| match kind {
            Step::Merge { from, .. } => self.lake.merge(branch, &At::Branch(self.branch(*from)), options).await,
            Step::CherryPick { commit, .. } => {
                self.lake.cherry_pick(branch, &At::Commit(*commit.get(&self.ids)), options).await
            }
            Step::Revert { commit, .. } => self.lake.revert(branch, &At::Commit(*commit.get(&self.ids)), options).await,
            other => panic!("{other:?} is no merge"),
        };
        let dry = run(&options.clone().dry()).await.unwrap();
        let counts = |conflicts: &[forebay_versioning::Conflict]| {
            let (mut cells, mut rows, mut columns) = (BTreeMap::new(), BTreeMap::new(), 0);
            for conflict in conflicts {
                match &conflict.kind {
                    ConflictKind::Cells { column, rows } => {
                        cells.insert(column.clone(), rows.len());
                    }
                    ConflictKind::Rows { rows: list, deleted_by, .. } => {
                        rows.insert(*deleted_by == MergeSide::Ours, list.len());
                    }
                    ConflictKind::Column { .. } => columns += 1,
                    other => panic!("{other:?}"),
                }
            }
            (cells, rows, columns)
        };
        let name = |column: &u32| version.columns[column].clone();
        let expected = (
            expected.cells.iter().map(|(column, rows)| (name(column), rows.len())).collect(),
            expected.rows.iter().map(|(side, rows)| (*side, rows.len())).collect(),
            expected.columns,
        );
        assert_eq!(counts(&dry.conflicts), expected, "conflicts of a dry run");
        match run(&options).await {
            Err(Error::Conflict { conflicts, .. }) => assert_eq!(counts(&conflicts), expected),
            result => {
                assert_eq!(expected, (BTreeMap::new(), BTreeMap::new(), 0), "conflicts were found");
                self.committed(branch, result.map(|report| report.snapshot), parents, version).await;
            }
        }
    }

    pub async fn step(&mut self, step: &Step) {
        match step {
            Step::Commit { branch, change } => {
                let branch = self.branch(*branch);
                let mut transaction = self.lake.begin(&branch).await.unwrap();
                let parent = self.plain.branches[&branch];
                let version = self.change(&mut transaction, change, self.plain.head(&branch).clone()).await;
                let result = transaction.commit("change", "tester").await;
                self.committed(&branch, result, vec![parent], version).await;
            }
            Step::Race { branch, first, second } => {
                let branch = self.branch(*branch);
                let base = self.plain.head(&branch).clone();
                let mut one = self.lake.begin(&branch).await.unwrap();
                let mut two = self.lake.begin(&branch).await.unwrap();
                let ours = self.change(&mut one, first, base.clone()).await;
                let theirs = self.change(&mut two, second, base.clone()).await;
                let parent = self.plain.branches[&branch];
                let result = one.commit("first", "tester").await;
                self.committed(&branch, result, vec![parent], ours).await;
                let parent = self.plain.branches[&branch];
                let (version, expected) =
                    self.plain.merge(&base, &self.plain.head(&branch).clone(), &theirs, Policy::Fail);
                match two.commit("second", "tester").await {
                    Err(Error::Conflict { .. }) => assert_ne!(expected, crate::plain::Conflicts::default()),
                    result => {
                        assert_eq!(expected, crate::plain::Conflicts::default());
                        self.committed(&branch, result, vec![parent], version).await;
                    }
                }
            }
            Step::Branch { from } => {
                if self.plain.branches.len() < 3 {
                    let (from, name) = (self.branch(*from), format!("b{}", self.plain.branches.len()));
                    self.lake.create_branch(&name, &At::Branch(from.clone())).await.unwrap();
                    self.plain.branches.insert(name, self.plain.branches[&from]);
                }
            }
            Step::Merge { into, from, policy } => {
                let (into, from) = (self.branch(*into), self.branch(*from));
                let (ours, theirs) = (self.plain.branches[&into], self.plain.branches[&from]);
                if self.plain.is_ancestor(theirs, ours) {
                    let report = self.lake.merge(&into, &At::Branch(from), &MergeOptions::default()).await.unwrap();
                    assert_eq!(report.outcome, forebay_versioning::MergeOutcome::UpToDate);
                } else if self.plain.is_ancestor(ours, theirs) {
                    let report = self.lake.merge(&into, &At::Branch(from), &MergeOptions::default()).await.unwrap();
                    assert_eq!(report.outcome, forebay_versioning::MergeOutcome::FastForward);
                    self.plain.branches.insert(into, theirs);
                } else if let Some(base) = self.plain.base(ours, theirs) {
                    let (our, their) = (self.plain.head(&into).clone(), self.plain.head(&from).clone());
                    self.merged(step, &into, vec![ours, theirs], [&base, &our, &their], *policy).await;
                }
            }
            Step::CherryPick { branch, commit, policy } | Step::Revert { branch, commit, policy } => {
                let branch = self.branch(*branch);
                let commit = commit.index(self.ids.len());
                let picked = self.plain.commits[commit].clone();
                let Some(parent) = picked.parents.first() else { return };
                let parent_version = self.plain.commits[*parent].version.clone();
                let ours = self.plain.head(&branch).clone();
                let sides = match step {
                    Step::Revert { .. } => [&picked.version, &ours, &parent_version],
                    _ => [&parent_version, &ours, &picked.version],
                };
                let head = self.plain.branches[&branch];
                self.merged(step, &branch, vec![head], sides, *policy).await;
            }
            Step::Reset { branch, commit } => {
                let (branch, commit) = (self.branch(*branch), commit.index(self.ids.len()));
                self.lake.reset(&branch, &At::Commit(self.ids[commit])).await.unwrap();
                self.plain.branches.insert(branch.clone(), commit);
                self.check(&branch).await;
            }
            Step::Diff { one, other } => {
                let (one, other) = (one.index(self.ids.len()), other.index(self.ids.len()));
                let versions = (&self.plain.commits[one].version, &self.plain.commits[other].version);
                let (before, after) = (At::Commit(self.ids[one]), At::Commit(self.ids[other]));
                let diff = self.lake.diff(&before, &after).await.unwrap();
                let found = diff.first().map_or((0, 0, 0), |d| (d.rows_added, d.rows_deleted, d.rows_changed));
                assert_eq!(found, self.plain.diff(versions.0, versions.1));
            }
            Step::Purge { branch, from, step } => {
                let branch = self.branch(*branch);
                let table = self.lake.snapshot(&At::Branch(branch.clone())).await.unwrap().table("main").await.unwrap();
                let (rows, ids) = self.chosen(&table, *from, *step).await;
                let report = self.lake.purge(&rows, "tester", "a test", |_| {}).await.unwrap();
                assert_eq!((report.rows, report.unreachable), (ids.len() as u64, 0));
                for commit in &mut self.plain.commits {
                    commit.version.rows.retain(|id, _| !ids.contains(id));
                }
                self.check(&branch).await;
            }
        }
    }

    /// Every commit is still what it was, and the lake is whole.
    pub async fn finish(&self) {
        for (commit, id) in self.plain.commits.iter().zip(&self.ids) {
            self.check_version(&At::Commit(*id), &commit.version).await;
        }
        let branches: Vec<At> = self.plain.branches.keys().map(|branch| At::Branch(branch.clone())).collect();
        assert_eq!(self.lake.verify_all(&branches, |_| {}).await.unwrap().faults, []);
    }
}

fn cases() -> u32 {
    std::env::var("FOREBAY_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn all_operations_in_any_order_do_what_the_model_does(steps in prop::collection::vec(step(), 1..30)) {
        block_on(async {
            let mut machine = Machine::new().await;
            for step in &steps {
                machine.step(step).await;
            }
            machine.finish().await;
        });
    }
}
