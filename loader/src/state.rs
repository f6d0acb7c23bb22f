//! Where a training stands, small enough to lie in every checkpoint.

use crate::{Error, Result};

/// Where the epochs of a loader stand: what all ranks delivered, and of what.
///
/// It is the same on every rank after the same number of steps, and says nothing of ranks, threads, batch size or
/// prefetched rows: it resumes on any number of ranks and with any of these. A [`checksum`](Self::checksum) guards it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The version of what follows.
    pub version: u32,
    /// The commit that the rows are of, in hex.
    pub commit: String,
    /// The hash of commit, table and selected rows, in hex.
    pub selection: String,
    /// The shuffle, with its numbers.
    pub shuffle: String,
    /// The seed of the order.
    pub seed: u64,
    /// The epoch under way.
    pub epoch: u64,
    /// How many samples of it were delivered, on all ranks together.
    pub position: u64,
    /// A hash of all the above, in hex.
    pub checksum: String,
}

impl State {
    /// The version that this code writes and reads.
    pub const VERSION: u32 = 2;

    /// What the checksum of these fields is.
    #[must_use]
    pub fn expected_checksum(&self) -> String {
        let mut hash = blake3::Hasher::new_derive_key("forebay 2026 loader state");
        hash.update(&self.version.to_le_bytes());
        for text in [&self.commit, &self.selection, &self.shuffle] {
            hash.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        }
        for number in [self.seed, self.epoch, self.position] {
            hash.update(&number.to_le_bytes());
        }
        hash.finalize().to_hex()[..32].to_owned()
    }

    pub(crate) fn seal(mut self) -> Self {
        self.checksum = self.expected_checksum();
        self
    }

    /// Checks that this is a whole state of what `now` is a state of.
    ///
    /// # Errors
    /// [`Error::State`], which names the field that doesn't fit.
    pub(crate) fn check(&self, now: &Self, rows: u64) -> Result<()> {
        let differ = |field, found: &dyn ToString, expected: &dyn ToString| {
            Err(Error::State { field, found: found.to_string(), expected: expected.to_string() })
        };
        if self.version != Self::VERSION {
            return differ("version", &self.version, &Self::VERSION);
        }
        if self.checksum != self.expected_checksum() {
            return differ("checksum", &self.checksum, &format!("{}: the state was damaged", self.expected_checksum()));
        }
        if self.commit != now.commit {
            return differ("commit", &self.commit, &now.commit);
        }
        if self.selection != now.selection {
            return differ("selection", &self.selection, &now.selection);
        }
        if self.shuffle != now.shuffle {
            return differ("shuffle", &self.shuffle, &now.shuffle);
        }
        if self.seed != now.seed {
            return differ("seed", &self.seed, &now.seed);
        }
        if self.position > rows {
            return differ("position", &self.position, &format!("at most {rows}"));
        }
        Ok(())
    }
}
