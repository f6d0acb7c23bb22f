//! The order of an epoch: a pure function from positions to rows.
//!
//! It depends on the number of selected rows, the shuffle and its units, the seed and the epoch; never on how many
//! ranks or threads read it, on caches or on time. A position costs constant time and memory.
//!
//! ```text
//! selected rows   [ unit 0 | unit 1 | unit 2 | ...               | short unit ]
//! permuted units  [ unit 7 | unit 2 | short | unit 9 | ...                    ]   keyed by the epoch
//! lanes           [ lane 0        | lane 1        | lane 2       | ...        ]   runs of ceil((N - k) / L) rows
//! groups          [ g0 |   g1   | | g0  |   g1  | | ...                       ]   W units of rows, each permuted
//! positions       0 -> lane 0, 1 -> lane 1, ..., L -> lane 0 again, ...
//! ```
//!
//! Where a lane's groups begin is shifted from epoch to epoch and staggered from lane to lane, so that the lanes don't
//! all ask for new groups at once.

mod course;
mod mix;
mod permute;
mod shard;
mod weighted;

use std::sync::Arc;

pub use course::{Course, Unit};
pub use mix::{Mixture, Stop};
pub use permute::Key;
pub use shard::{Shard, Tail};
pub use weighted::Sampling;

use permute::{Permutation, Prepared, Purpose};
use weighted::Drawn;

/// How the rows of an epoch are mixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shuffle {
    /// Not at all: the selection's order.
    Off,
    /// Within a moving window of units from all over the selection: close to uniform, and reads stay ranged.
    Windowed(Window),
    /// A permutation of all rows. Reads are single rows, unless memory holds everything.
    Global,
    /// In the selection's order, mixed within runs of so many rows, one after the other: for feeds that rows are appended to. Rows
    /// are mixed with those that came at about the same time, and all ranks read all of them.
    Buffer(u32),
}

impl Default for Shuffle {
    /// The default window: good on every store.
    fn default() -> Self {
        Self::Windowed(Window::default())
    }
}

/// The window of [`Shuffle::Windowed`]. It belongs to the order: another window is another order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// How many runs of units are read side by side. A multiple of the largest world planned, so that a rank reads
    /// only its own lanes.
    pub lanes: u32,
    /// How many units of each lane are mixed.
    pub window: u32,
    /// The bytes of a unit, from which its rows follow: what one ranged read fetches.
    pub unit_bytes: u64,
}

impl Default for Window {
    /// 96 lanes of 24 units of 512 KiB: about 1 GiB in all.
    ///
    /// On class-sorted data of ImageNet's shape (1,000 classes, 150 KB a row) a batch of 256 then holds 0.96 of the
    /// distinct classes that a uniform permutation gives.
    fn default() -> Self {
        Self { lanes: 96, window: 24, unit_bytes: 512 << 10 }
    }
}

impl Window {
    /// A unit has at most this many rows, however small they are: the rows of open windows are kept track of.
    pub const MAX_UNIT_ROWS: u64 = 4096;

    /// The rows of a unit of a table: whole blocks, if it holds one.
    #[must_use]
    pub fn unit_rows(&self, grain: impl Into<Grain>) -> u64 {
        let grain = grain.into();
        grain.whole((self.unit_bytes / grain.row_bytes.max(1)).clamp(1, Self::MAX_UNIT_ROWS))
    }

    /// The lanes, at least one.
    fn lanes(&self) -> u64 {
        u64::from(self.lanes.max(1))
    }
}

/// How fine a table is: what the rows of a unit follow from. A number stands for rows of so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grain {
    /// The mean size of a row.
    pub row_bytes: u64,
    /// How many rows lie in a block, which is fetched as a whole. Units are made of whole blocks, or ranks would fetch those
    /// between two units twice.
    pub block_rows: u64,
}

impl From<u64> for Grain {
    fn from(row_bytes: u64) -> Self {
        Self { row_bytes, block_rows: 1 }
    }
}

impl Grain {
    /// So many rows, or fewer that are whole blocks.
    fn whole(&self, rows: u64) -> u64 {
        let block = self.block_rows.max(1);
        if rows < block { rows } else { rows - rows % block }
    }
}

/// A group: rows of one lane that are mixed with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group {
    /// Its lane.
    pub lane: u64,
    /// Its number within the lane.
    pub number: u64,
}

/// The order of one epoch.
#[derive(Clone, Debug)]
pub struct Order {
    rows: u64,
    unit_rows: u64,
    kind: OrderKind,
    /// What is random about samples.
    samples: Key,
}

#[derive(Clone, Debug)]
enum OrderKind {
    Off,
    Windowed(Box<Windowed>),
    Global(Prepared),
    Drawn(Arc<Drawn>),
}

#[derive(Clone, Debug)]
struct Windowed {
    key: Key,
    lanes: u64,
    group_rows: u64,
    phase: u64,
    /// Where units are in the sequence; `None` leaves them where they are.
    units: Option<Permutation>,
    /// The place of the last unit, and its rows.
    short_place: u64,
    short_rows: u64,
}

impl Order {
    /// The order of `rows` selected rows of a table of this grain in epoch `epoch`.
    #[must_use]
    pub fn new(rows: u64, grain: impl Into<Grain>, shuffle: Shuffle, seed: u64, epoch: u64) -> Self {
        let grain = grain.into();
        let purpose = "forebay 2025 epoch order";
        let samples = Self::sample_key(seed, epoch);
        match shuffle {
            Shuffle::Off => {
                let unit_rows = Window::default().unit_rows(grain);
                Self { rows, unit_rows, kind: OrderKind::Off, samples }
            }
            Shuffle::Global => {
                let key = Key::new(purpose, &[seed, epoch, 1]);
                let rows_of = Permutation::new(rows, &key, Purpose::Rows, 0, 0);
                Self { rows, unit_rows: 1, kind: OrderKind::Global(Prepared::new(rows_of)), samples }
            }
            Shuffle::Windowed(window) => {
                // A selection that fits the window has smaller units, down to single rows.
                let mixed = window.lanes() * u64::from(window.window.max(1));
                let unit_rows = grain.whole(window.unit_rows(grain).min((rows / mixed).max(1)));
                let spec = [u64::from(window.lanes), u64::from(window.window), unit_rows];
                let key = Key::new(purpose, &[seed, epoch, 2, spec[0], spec[1], spec[2]]);
                let count = rows.div_ceil(unit_rows);
                let units = Permutation::new(count, &key, Purpose::Units, 0, 0);
                let group_rows = u64::from(window.window.max(1)) * unit_rows;
                let windowed = Windowed {
                    key,
                    lanes: window.lanes(),
                    group_rows,
                    phase: key.number(Purpose::Phase) % group_rows,
                    short_place: if count == 0 { 0 } else { units.invert(count - 1) },
                    short_rows: rows - count.saturating_sub(1) * unit_rows,
                    units: Some(units),
                };
                Self { rows, unit_rows, kind: OrderKind::Windowed(Box::new(windowed)), samples }
            }
            Shuffle::Buffer(buffer) => {
                let group_rows = u64::from(buffer.max(1));
                let unit_rows = grain.whole(Window::default().unit_rows(grain).min(group_rows));
                let count = rows.div_ceil(unit_rows);
                let windowed = Windowed {
                    key: Key::new(purpose, &[seed, epoch, 3, group_rows]),
                    lanes: 1,
                    group_rows,
                    // The first group is whole.
                    phase: group_rows - 1,
                    short_place: count.saturating_sub(1),
                    short_rows: rows - count.saturating_sub(1) * unit_rows,
                    units: None,
                };
                Self { rows, unit_rows, kind: OrderKind::Windowed(Box::new(windowed)), samples }
            }
        }
    }

    /// Rows drawn by weight, in epoch `epoch`: takes time and memory for every selected row.
    #[must_use]
    pub fn drawn(sampling: &Sampling, seed: u64, epoch: u64) -> Self {
        let drawn = Drawn::new(sampling, Key::new("forebay 2026 rows by weight", &[seed, epoch]));
        let samples = Self::sample_key(seed, epoch);
        Self { rows: sampling.len(), unit_rows: 1, kind: OrderKind::Drawn(Arc::new(drawn)), samples }
    }

    fn sample_key(seed: u64, epoch: u64) -> Key {
        Key::new("forebay 2025 samples of an epoch", &[seed, epoch])
    }

    /// The positions of the epoch: the rows selected, or drawn.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The rows of a unit.
    #[must_use]
    pub fn unit_rows(&self) -> u64 {
        self.unit_rows
    }

    /// What is random about the sample at `position` is drawn from this: a hash of seed, epoch and position.
    #[must_use]
    pub fn sample_seed(&self, position: u64) -> u64 {
        self.samples.number_of(Purpose::Sample, position)
    }

    /// Which selected row is at `position`; `None` at or after the end.
    #[must_use]
    pub fn index(&self, position: u64) -> Option<u64> {
        if position >= self.rows {
            return None;
        }
        Some(match &self.kind {
            OrderKind::Off => position,
            OrderKind::Global(permutation) => permutation.apply(position),
            OrderKind::Drawn(drawn) => drawn.row(position),
            OrderKind::Windowed(windowed) => {
                let (lane, place) = (position % windowed.lanes, position / windowed.lanes);
                let span = windowed.span(self.rows, lane, windowed.group(lane, place));
                windowed.mixed(self.unit_rows, &span, place)
            }
        })
    }

    /// Which selected rows are at these positions: [`index`](Self::index) for many, without those at or after the end.
    #[must_use]
    pub fn indexes(&self, positions: &[u64]) -> Vec<u64> {
        let OrderKind::Global(permutation) = &self.kind else {
            return positions.iter().filter_map(|position| self.index(*position)).collect();
        };
        let mut rows: Vec<u64> = positions.iter().copied().filter(|position| *position < self.rows).collect();
        permutation.apply_all(&mut rows);
        rows
    }

    /// The unit of a selected row: `unit * unit_rows()` is its first.
    #[must_use]
    pub fn unit(&self, index: u64) -> u64 {
        index / self.unit_rows
    }

    /// The group that is read at `position`: a lane's, a run of a unit's length when nothing is shuffled, or `None` when rows are
    /// mixed over the whole selection.
    #[must_use]
    pub fn group(&self, position: u64) -> Option<Group> {
        match &self.kind {
            OrderKind::Global(_) | OrderKind::Drawn(_) => None,
            OrderKind::Off => Some(Group { lane: 0, number: position / self.unit_rows }),
            OrderKind::Windowed(windowed) => {
                let (lane, place) = (position % windowed.lanes, position / windowed.lanes);
                Some(Group { lane, number: windowed.group(lane, place) })
            }
        }
    }

    /// At which position a selected row comes; `None` if there is no such row, or if rows are drawn.
    #[must_use]
    pub fn position(&self, index: u64) -> Option<u64> {
        if index >= self.rows {
            return None;
        }
        Some(match &self.kind {
            OrderKind::Off => index,
            OrderKind::Global(permutation) => permutation.invert(index),
            OrderKind::Drawn(_) => return None,
            OrderKind::Windowed(windowed) => {
                let (lane, place) = windowed.place(self.rows, windowed.sequence(self.unit_rows, index));
                let span = windowed.span(self.rows, lane, windowed.group(lane, place));
                (span.start + span.mix.invert(place - span.start)) * windowed.lanes + lane
            }
        })
    }
}

/// A group's rows within its lane, and how they are mixed.
struct Span {
    /// The first place of the lane in the sequence of permuted units.
    lane_start: u64,
    start: u64,
    mix: Permutation,
}

impl Windowed {
    /// The rows of the first group of a lane: 1 to `group_rows`, spread evenly over the lanes.
    fn first_group(&self, lane: u64) -> u64 {
        let stagger = (u128::from(lane) * u128::from(self.group_rows) / u128::from(self.lanes)) as u64;
        1 + (self.phase + stagger) % self.group_rows
    }

    fn group(&self, lane: u64, place: u64) -> u64 {
        let first = self.first_group(lane);
        if place < first { 0 } else { 1 + (place - first) / self.group_rows }
    }

    /// Where a lane begins in the sequence of permuted units.
    fn lane_start(&self, rows: u64, lane: u64) -> u64 {
        lane * (rows / self.lanes) + lane.min(rows % self.lanes)
    }

    /// The lane that a place of the sequence is in, and its place within that lane.
    fn place(&self, rows: u64, sequence: u64) -> (u64, u64) {
        // The first `longer` lanes have a row more than the others.
        let (each, longer) = (rows / self.lanes, rows % self.lanes);
        let lane = if sequence < longer * (each + 1) { sequence / (each + 1) } else { (sequence - longer) / each };
        (lane, sequence - self.lane_start(rows, lane))
    }

    /// Where a selected row is in the sequence of permuted units.
    fn sequence(&self, unit_rows: u64, index: u64) -> u64 {
        let unit = index / unit_rows;
        let unit_place = self.units.as_ref().map_or(unit, |units| units.invert(unit));
        let missing = if unit_place > self.short_place { unit_rows - self.short_rows } else { 0 };
        unit_place * unit_rows + index % unit_rows - missing
    }

    fn span(&self, rows: u64, lane: u64, group: u64) -> Span {
        let lane_start = self.lane_start(rows, lane);
        let lane_rows = rows.saturating_sub(lane).div_ceil(self.lanes);
        let first = self.first_group(lane);
        let start = if group == 0 { 0 } else { first + (group - 1) * self.group_rows };
        let end = if group == 0 { first } else { start + self.group_rows };
        let (start, end) = (start.min(lane_rows), end.min(lane_rows));
        let mix = Permutation::new(end - start, &self.key, Purpose::Group, lane, group);
        Span { lane_start, start, mix }
    }

    /// The selected row at a place of a lane, which lies in `span`.
    fn mixed(&self, unit_rows: u64, span: &Span, place: u64) -> u64 {
        let sequence = span.lane_start + span.start + span.mix.apply(place - span.start);
        // Behind the short unit, the sequence is as if that unit were whole.
        let short_start = self.short_place * unit_rows;
        let behind = sequence >= short_start + self.short_rows;
        let sequence = if behind { sequence + (unit_rows - self.short_rows) } else { sequence };
        let place = sequence / unit_rows;
        self.units.as_ref().map_or(place, |units| units.apply(place)) * unit_rows + sequence % unit_rows
    }
}
