//! Which positions a rank takes, and in how many batches. Each rank works it out alone.

/// What happens to the rows at the end of an epoch that don't fill a batch on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Tail {
    /// They are left out: every rank has the same number of whole batches.
    #[default]
    Drop,
    /// A rank's last batch is shorter. Ranks may differ by one batch when the rows don't suffice for all of them.
    Short,
    /// A rank's last batch is filled up with masked rows, zeros of weight 0: every rank has the same number of whole batches.
    Pad,
}

/// The part of an epoch that one rank reads: from a position on, every `world`-th.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    rows: u64,
    start: u64,
    batch: u64,
    rank: u64,
    world: u64,
    tail: Tail,
}

impl Shard {
    /// Rank `rank` of `world`'s part of `rows`, in batches of `batch` rows; both at least 1 and `rank < world`.
    #[must_use]
    pub fn new(rows: u64, batch: u64, rank: u32, world: u32, tail: Tail) -> Self {
        Self { rows, start: 0, batch: batch.max(1), rank: u64::from(rank), world: u64::from(world.max(1)), tail }
    }

    /// The same rank's part of what is left from position `start` on, whoever read what comes before it.
    #[must_use]
    pub fn from(self, start: u64) -> Self {
        Self { start: start.min(self.rows), ..self }
    }

    /// How many batches this rank delivers.
    #[must_use]
    pub fn batches(&self) -> u64 {
        match self.tail {
            Tail::Drop => self.left() / self.global_batch(),
            Tail::Short => self.own_rows().div_ceil(self.batch),
            Tail::Pad => self.left().div_ceil(self.global_batch()),
        }
    }

    /// How many rows this rank delivers, without masked ones.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.own_rows().min(self.batches().saturating_mul(self.batch))
    }

    /// The positions of batch `batch` of this rank, in order, without those of masked rows.
    pub fn positions(&self, batch: u64) -> impl ExactSizeIterator<Item = u64> + Clone + use<> {
        let first = batch.saturating_mul(self.batch).min(self.delivered());
        let last = first.saturating_add(self.batch).min(self.delivered());
        let (start, rank, world) = (self.start, self.rank, self.world);
        (0..(last - first) as usize).map(move |offset| start + (first + offset as u64) * world + rank)
    }

    /// How many masked rows fill up batch `batch` of this rank.
    #[must_use]
    pub fn padding(&self, batch: u64) -> usize {
        match self.tail {
            Tail::Pad if batch < self.batches() => self.batch as usize - self.positions(batch).len(),
            _ => 0,
        }
    }

    /// The batch in which this rank delivers `position`, if it does.
    #[must_use]
    pub fn batch_of(&self, position: u64) -> Option<u64> {
        let place = position.checked_sub(self.start)?;
        let own = place % self.world == self.rank && place / self.world < self.delivered();
        own.then(|| place / self.world / self.batch)
    }

    /// The position that comes next once every rank has delivered `batches` batches, or all it has: the same on every rank.
    /// `None` if nothing is left of the epoch then.
    #[must_use]
    pub fn after(&self, batches: u64) -> Option<u64> {
        let end = match self.tail {
            Tail::Drop => self.start + self.left() / self.global_batch() * self.global_batch(),
            Tail::Short | Tail::Pad => self.rows,
        };
        let next = self.start.saturating_add(batches.saturating_mul(self.global_batch()));
        (next < end).then_some(next)
    }

    /// Rows of a step of all ranks.
    fn global_batch(&self) -> u64 {
        self.batch.saturating_mul(self.world)
    }

    fn left(&self) -> u64 {
        self.rows - self.start
    }

    fn own_rows(&self) -> u64 {
        self.left().saturating_sub(self.rank).div_ceil(self.world)
    }
}
