//! Which positions a rank takes, and in how many batches. Each rank works it out alone.

/// What happens to the rows at the end of an epoch that don't fill a batch on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Tail {
    /// They are left out: every rank has the same number of whole batches.
    #[default]
    Drop,
    /// A rank's last batch is shorter. Ranks may differ by one batch when the rows don't suffice for all of them.
    Short,
}

/// The part of an epoch that one rank reads: the positions congruent to `rank` modulo `world`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    rows: u64,
    batch: u64,
    rank: u64,
    world: u64,
    tail: Tail,
}

impl Shard {
    /// Rank `rank` of `world`'s part of `rows`, in batches of `batch` rows; both at least 1 and `rank < world`.
    #[must_use]
    pub fn new(rows: u64, batch: u64, rank: u32, world: u32, tail: Tail) -> Self {
        Self { rows, batch: batch.max(1), rank: u64::from(rank), world: u64::from(world.max(1)), tail }
    }

    /// How many batches this rank delivers.
    #[must_use]
    pub fn batches(&self) -> u64 {
        match self.tail {
            Tail::Drop => self.rows / self.batch.saturating_mul(self.world),
            Tail::Short => self.own_rows().div_ceil(self.batch),
        }
    }

    /// How many rows this rank delivers.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.own_rows().min(self.batches().saturating_mul(self.batch))
    }

    /// The positions of batch `batch` of this rank, in order.
    pub fn positions(&self, batch: u64) -> impl ExactSizeIterator<Item = u64> + Clone + use<> {
        let first = batch.saturating_mul(self.batch).min(self.delivered());
        let last = first.saturating_add(self.batch).min(self.delivered());
        let (rank, world) = (self.rank, self.world);
        (0..(last - first) as usize).map(move |offset| (first + offset as u64) * world + rank)
    }

    /// The batch in which this rank delivers `position`, if it does.
    #[must_use]
    pub fn batch_of(&self, position: u64) -> Option<u64> {
        let own = position % self.world == self.rank && position / self.world < self.delivered();
        own.then(|| position / self.world / self.batch)
    }

    fn own_rows(&self) -> u64 {
        self.rows.saturating_sub(self.rank).div_ceil(self.world)
    }
}
