//! Which blocks travel together, and which of them share memory: pure.

use std::{ops::Range, sync::Arc};

use super::{atom::Atom, cache::Slot, fetch::Part};

/// The most bytes of one request for several atoms.
const EXTENT: u64 = 8 << 20;
/// The most bytes of atoms that share memory, which is free again when the last of their rows was delivered: as long as a run of
/// them is fetched, its rows come up over all of a window.
const SHARED: u64 = 256 << 10;
/// Chunks start at multiples of this, behind zeros.
const PADDING: u64 = 4096;
/// Padding is read along with at least so many times its bytes.
const PADDING_SHARE: u64 = 64;

/// Whether what lies between these bytes and what begins behind them is the padding between two chunks, and worth reading for a
/// request less.
fn is_padding(read: Range<u64>, next: u64) -> bool {
    next == read.end.next_multiple_of(PADDING) && (next - read.end) * PADDING_SHARE <= read.end - read.start
}

/// Puts neighbours of one file together. The atoms are sorted by fragment and place. What lies in a gap between two may
/// be held already or be another rank's, so no gaps are bridged but the padding between two chunks.
pub(super) fn coalesce(atoms: Vec<Atom>) -> Vec<Vec<Atom>> {
    let mut extents: Vec<Vec<Atom>> = Vec::new();
    for atom in atoms {
        if let Some(extent) = extents.last_mut()
            && let Some((first, last)) = extent.first().zip(extent.last())
            && last.key.fragment == atom.key.fragment
            && (last.adjoins(&atom) || is_padding(first.stored.start..last.stored.end, atom.stored.start))
            && atom.stored.end - first.stored.start <= EXTENT
        {
            extent.push(atom);
        } else {
            extents.push(vec![atom]);
        }
    }
    extents
}

/// Puts small neighbours into memory together. `slot` gives where an atom arrives, and whether it may share memory.
pub(super) fn part(atoms: Vec<Atom>, mut slot: impl FnMut(&Atom) -> (Arc<Slot>, bool)) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let (mut shared, mut bytes) = (false, 0);
    for atom in atoms {
        let (slot, share) = slot(&atom);
        bytes += atom.raw;
        match parts.last_mut() {
            Some(part)
                if share && shared && bytes <= SHARED && part.last().is_some_and(|(last, _)| last.adjoins(&atom)) =>
            {
                part.push((atom, slot));
            }
            _ => {
                bytes = atom.raw;
                parts.push(vec![(atom, slot)]);
            }
        }
        shared = share;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::atom::AtomKey;

    fn atom(fragment: u32, start: u64, length: u64) -> Atom {
        Atom {
            key: AtomKey { column: 0, fragment, validity: false, block: start as u32 },
            blocks: 0..1,
            rows: 0..1,
            stored: start..start + length,
            raw: length,
            in_place: true,
        }
    }

    #[test]
    fn neighbours_share_memory_while_that_is_little_and_nobody_keeps_them_for_rows_to_come() {
        let third = SHARED / 3;
        let atoms = (0..9)
            .map(|number| atom(0, number * third, third))
            .chain([atom(0, 9 * third + 1, 10), atom(0, 9 * third + 11, SHARED)]);
        let parts = part(atoms.collect(), |atom| (Slot::new("".into()), u64::from(atom.key.block) != 4 * third));
        let lengths: Vec<_> = parts.iter().map(Vec::len).collect();
        assert_eq!(
            lengths,
            [3, 1, 1, 3, 1, 1, 1],
            "the fifth shares with none, the last two lie apart or are too large"
        );
    }

    #[test]
    fn neighbours_travel_together_and_others_apart() {
        let atoms = vec![
            atom(0, 0, 100),
            atom(0, 100, 100),
            atom(0, 200, 10),
            atom(0, 211, EXTENT - 1),
            atom(0, 210 + EXTENT, 10),
            atom(1, 220 + EXTENT, 10),
            atom(1, PADDING * 9_000 - 650, 640),
            atom(1, PADDING * 9_000, 10),
            atom(1, PADDING * 10_000 - 649, 639),
            atom(1, PADDING * 10_000, 10),
        ];
        let starts: Vec<Vec<u32>> =
            coalesce(atoms.clone()).iter().map(|extent| extent.iter().map(|atom| atom.key.block).collect()).collect();
        let blocks: Vec<u32> = atoms.iter().map(|atom| atom.key.block).collect();
        assert_eq!(
            starts,
            [&blocks[..3], &blocks[3..4], &blocks[4..5], &blocks[5..6], &blocks[6..8], &blocks[8..9], &blocks[9..]]
        );
    }
}
