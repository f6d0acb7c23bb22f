//! What a file of the disk cache holds, and what it is called: pure.

use std::ops::Range;

use crc_fast::{CrcAlgorithm, checksum};

/// The name of a piece: a hash of the storage, the object, the bytes and how often they were found to be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Name(u128);

impl Name {
    pub(super) fn of(url: &str, path: &str, bytes: &Range<u64>, wrong: u32) -> Self {
        let mut hash = blake3::Hasher::new();
        for text in [url, path] {
            hash.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        }
        hash.update(&bytes.start.to_le_bytes()).update(&bytes.end.to_le_bytes()).update(&wrong.to_le_bytes());
        let mut name = [0; 16];
        hash.finalize_xof().fill(&mut name);
        Self(u128::from_le_bytes(name))
    }

    /// Which of so many folders it lies in.
    pub(super) fn folder(self, of: u32) -> u32 {
        (self.0 % u128::from(of.max(1))) as u32
    }

    /// The name of its file, which also says how long that is.
    pub(super) fn file(self, length: u64) -> String {
        format!("{:032x}-{length}", self.0)
    }

    /// Reads the name of a file; `None` for one that is not ours.
    pub(super) fn parse(file: &str) -> Option<(Self, u64)> {
        let (name, length) = file.split_once('-')?;
        let ours = name.len() == 32 && !length.starts_with('+');
        let name = u128::from_str_radix(name, 16).ok().filter(|_| ours)?;
        Some((Self(name), length.parse().ok()?))
    }
}

const MAGIC: &[u8; 8] = b"fbcache1";

/// What stands before the bytes: the magic, the name and the checksum of name and bytes.
pub(super) const HEAD: usize = 8 + 16 + 8;

fn sum(name: Name, bytes: &[u8]) -> u64 {
    // The name is mixed in, so that a file under another's name is found out.
    checksum(CrcAlgorithm::Crc64Nvme, bytes) ^ (name.0 as u64) ^ ((name.0 >> 64) as u64)
}

/// What stands before the bytes of a piece.
pub(super) fn head(name: Name, bytes: &[u8]) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(MAGIC);
    head[8..24].copy_from_slice(&name.0.to_le_bytes());
    head[24..].copy_from_slice(&sum(name, bytes).to_le_bytes());
    head
}

/// The bytes of a piece, if a file holds it whole and undamaged.
pub(super) fn body(name: Name, file: &[u8]) -> Option<&[u8]> {
    let (start, bytes) = file.split_at_checked(HEAD)?;
    (start == head(name, bytes)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_gives_its_bytes_only_if_nothing_of_it_is_damaged_or_missing() {
        let (name, other) = (Name::of("u", "p", &(0..9), 0), Name::of("u", "p", &(0..9), 1));
        let file = [&head(name, b"some bytes")[..], b"some bytes"].concat();
        assert_eq!(body(name, &file).unwrap(), b"some bytes");
        assert_eq!(body(other, &file), None);
        for bit in 0..file.len() * 8 {
            let mut damaged = file.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(body(name, &damaged), None, "bit {bit}");
        }
        for end in 0..file.len() {
            assert_eq!(body(name, &file[..end]), None, "{end} bytes");
        }
    }

    #[test]
    fn names_differ_by_all_they_are_made_of_and_are_read_back() {
        let names = [
            Name::of("u", "p", &(0..9), 0),
            Name::of("up", "", &(0..9), 0),
            Name::of("u", "p", &(1..9), 0),
            Name::of("u", "p", &(0..8), 0),
            Name::of("u", "p", &(0..9), 1),
        ];
        for (i, name) in names.iter().enumerate() {
            assert!(names[..i].iter().all(|other| other != name));
            assert_eq!(Name::parse(&name.file(77)), Some((*name, 77)));
        }
        for file in ["", "lock", "notes.txt", "0123-4", &format!("{}x", names[0].file(7)), &names[0].file(7)[1..]] {
            assert_eq!(Name::parse(file), None, "{file}");
        }
    }
}
