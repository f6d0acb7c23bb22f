//! Validity bitmaps: one bit a row, set for a valid row, least significant bit first.

use crate::Bitmap;

/// Bytes of a full validity block.
pub(crate) const BLOCK: usize = 64 << 10;
/// Rows of a full validity block.
pub(crate) const BLOCK_ROWS: u32 = BLOCK as u32 * 8;

/// A growing bitmap, which takes no memory while every row is valid.
#[derive(Debug, Default)]
pub(crate) struct Bits {
    rows: usize,
    nulls: u32,
    /// Empty while there are no nulls. Bits behind the last row are zero.
    bits: Vec<u8>,
}

impl Bits {
    /// Adds rows `start..end` of `validity`.
    pub(crate) fn extend(&mut self, validity: Option<Bitmap<'_>>, start: usize, end: usize) {
        let Some(validity) = validity else {
            self.extend_valid(end - start);
            return;
        };
        for row in start..end {
            if validity.get(row) {
                self.extend_valid(1);
            } else {
                self.extend_null();
            }
        }
    }

    fn extend_valid(&mut self, rows: usize) {
        let end = self.rows + rows;
        if self.nulls > 0 {
            self.bits.resize(end.div_ceil(8), 0xff);
            // The byte that was there before, and the last one.
            if let Some(byte) = self.bits.get_mut(self.rows / 8) {
                *byte |= 0xffu8 << (self.rows % 8);
            }
            if !end.is_multiple_of(8) {
                self.bits[end / 8] &= 0xff >> (8 - end % 8);
            }
        }
        self.rows = end;
    }

    fn extend_null(&mut self) {
        if self.nulls == 0 {
            let rows = std::mem::take(&mut self.rows);
            self.nulls = 1;
            self.extend_valid(rows);
            self.nulls = 0;
        }
        self.nulls += 1;
        self.rows += 1;
        self.bits.resize(self.rows.div_ceil(8), 0);
    }

    pub(crate) fn nulls(&self) -> u32 {
        self.nulls
    }

    /// The bitmap in blocks; none if every row is valid.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &[u8]> {
        self.bits.chunks(BLOCK)
    }

    pub(crate) fn memory(&self) -> usize {
        self.bits.capacity()
    }

    pub(crate) fn clear(&mut self) {
        self.rows = 0;
        self.nulls = 0;
        self.bits.clear();
    }

    /// The bitmap; `None` if every row is valid.
    pub(crate) fn into_bitmap(self) -> Option<Vec<u8>> {
        (self.nulls > 0).then_some(self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bitmap_built_in_pieces_is_the_bitmap_of_all_rows() {
        let mut seed = 1u64;
        for trial in 0..300 {
            let (mut bits, mut model) = (Bits::default(), Vec::new());
            for _ in 0..trial % 9 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let source: Vec<u8> = seed.to_le_bytes()[..6].to_vec();
                let (start, length) = ((seed >> 50) as usize % 20, (seed >> 57) as usize % 20);
                let validity = (trial % 3 != 0 && seed >> 63 == 0).then_some(Bitmap(&source));
                bits.extend(validity, start, start + length);
                model.extend((start..start + length).map(|row| validity.is_none_or(|bitmap| bitmap.get(row))));
            }
            assert_eq!(bits.nulls() as usize, model.iter().filter(|valid| !**valid).count());
            if let Some(bytes) = bits.into_bitmap() {
                assert_eq!(bytes.len(), model.len().div_ceil(8));
                for row in 0..bytes.len() * 8 {
                    assert_eq!(Bitmap(&bytes).get(row), model.get(row).copied().unwrap_or(false));
                }
            }
        }
    }
}
