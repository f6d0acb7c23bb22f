//! Where blocks begin and end in a chunk of rows of one length: arithmetic that writer and reader share.

/// As many whole rows as fit make a block; a row that doesn't fit is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    row_bytes: u64,
    block_bytes: u64,
}

/// A block of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Where it starts among the raw bytes of the chunk.
    pub(crate) start: u64,
    /// Its raw length.
    pub(crate) raw: u32,
    /// The first row of which it holds bytes, from the chunk's start.
    pub(crate) row: u32,
    /// Rows that begin in it.
    pub(crate) rows: u32,
    /// Bytes of `row` that lie before it.
    pub(crate) part: u32,
}

impl Geometry {
    pub(crate) fn new(row_bytes: usize, block_bytes: u32) -> Self {
        Self { row_bytes: row_bytes as u64, block_bytes: u64::from(block_bytes) }
    }

    /// Bytes of a full block of whole rows; `None` if rows are split.
    fn full(&self) -> Option<u64> {
        match self.block_bytes.checked_div(self.row_bytes) {
            None => Some(self.block_bytes),
            Some(0) => None,
            Some(rows) => Some(rows * self.row_bytes),
        }
    }

    fn blocks_per_row(&self) -> u64 {
        self.row_bytes.div_ceil(self.block_bytes)
    }

    /// Bytes from `position` in the chunk to the end of the block there.
    pub(crate) fn remaining(&self, position: u64) -> u64 {
        if let Some(full) = self.full() {
            return full - position % full;
        }
        let within = position % self.row_bytes;
        (self.block_bytes - within % self.block_bytes).min(self.row_bytes - within)
    }

    /// Blocks of a chunk of `rows` rows.
    pub(crate) fn blocks(&self, rows: u32) -> u64 {
        match self.full() {
            Some(full) => (u64::from(rows) * self.row_bytes).div_ceil(full),
            None => u64::from(rows) * self.blocks_per_row(),
        }
    }

    /// The first block that holds bytes of `row`.
    pub(crate) fn block_of(&self, row: u32) -> u64 {
        match self.full() {
            Some(full) => u64::from(row) * self.row_bytes / full,
            None => u64::from(row) * self.blocks_per_row(),
        }
    }

    /// The block behind the last one that holds bytes of `row`.
    pub(crate) fn block_after(&self, row: u32) -> u64 {
        self.block_of(row) + if self.full().is_some() { 1 } else { self.blocks_per_row() }
    }

    /// Block `block` of a chunk of `rows` rows.
    pub(crate) fn place(&self, block: u64, rows: u32) -> Place {
        if let Some(full) = self.full() {
            let start = block * full;
            let raw = (u64::from(rows) * self.row_bytes - start).min(full);
            let (row, rows) = (start / self.row_bytes, raw / self.row_bytes);
            return Place { start, raw: raw as u32, row: row as u32, rows: rows as u32, part: 0 };
        }
        let (row, index) = (block / self.blocks_per_row(), block % self.blocks_per_row());
        let part = index * self.block_bytes;
        Place {
            start: row * self.row_bytes + part,
            raw: (self.row_bytes - part).min(self.block_bytes) as u32,
            row: row as u32,
            rows: u32::from(index == 0),
            part: part as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_tile_every_chunk_and_rows_are_found_in_them() {
        for block_bytes in [1, 2, 7, 64, 65] {
            for row_bytes in 0..200 {
                let geometry = Geometry::new(row_bytes, block_bytes);
                for rows in 0..20u32 {
                    let total = u64::from(rows) * row_bytes as u64;
                    let mut position = 0;
                    for block in 0..geometry.blocks(rows) {
                        let place = geometry.place(block, rows);
                        assert_eq!(place.start, position);
                        assert_eq!(place.start, u64::from(place.row) * row_bytes as u64 + u64::from(place.part));
                        assert_eq!(u64::from(place.raw), geometry.remaining(position).min(total - position));
                        assert!(place.raw > 0 && place.raw <= block_bytes);
                        for row in place.row..place.row + place.rows {
                            assert_eq!(geometry.block_of(row), block);
                        }
                        assert!(geometry.block_after(place.row) > block);
                        position += u64::from(place.raw);
                    }
                    assert_eq!(position, total);
                }
            }
        }
    }
}
