//! Blocks to stored bytes and back: byte shuffle, then LZ4 or Zstandard.
//!
//! A block that compression doesn't make smaller is stored as it is, neither shuffled nor compressed; it is told by its
//! stored length, which is then its raw length. So stored bytes are never more than raw ones.

use std::cell::RefCell;

use zstd::bulk::{Compressor, Decompressor};

use crate::{Codec, Compression, Result};

/// Compresses the blocks of one column.
pub(crate) struct Encoder {
    compression: Compression,
    item: usize,
    shuffled: Vec<u8>,
    stored: Vec<u8>,
    zstd: Option<Compressor<'static>>,
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").field("compression", &self.compression).finish_non_exhaustive()
    }
}

impl Encoder {
    /// For elements of `item` bytes.
    pub(crate) fn new(compression: Compression, item: usize) -> Result<Self> {
        let zstd = match compression.codec {
            Codec::Zstd { level } => Some(Compressor::new(level)?),
            _ => None,
        };
        Ok(Self { compression, item, shuffled: Vec::new(), stored: Vec::new(), zstd })
    }

    /// What is stored for a block.
    pub(crate) fn encode<'a>(&'a mut self, raw: &'a [u8]) -> Result<&'a [u8]> {
        if self.compression.codec == Codec::None {
            return Ok(raw);
        }
        let mut input = raw;
        if self.compression.shuffle && self.item > 1 {
            self.shuffled.resize(raw.len(), 0);
            shuffle(self.item, raw, &mut self.shuffled);
            input = &self.shuffled;
        }
        let length = if let Some(zstd) = &mut self.zstd {
            self.stored.resize(zstd::zstd_safe::compress_bound(raw.len()), 0);
            zstd.compress_to_buffer(input, &mut self.stored[..])?
        } else {
            self.stored.resize(lz4_flex::block::get_maximum_output_size(raw.len()), 0);
            lz4_flex::block::compress_into(input, &mut self.stored).map_err(std::io::Error::other)?
        };
        Ok(if length < raw.len() { &self.stored[..length] } else { raw })
    }

    /// Bytes held by its buffers.
    pub(crate) fn memory(&self) -> usize {
        self.shuffled.capacity() + self.stored.capacity()
    }
}

/// Fills `out` with the raw bytes of the block that is stored as `stored`; an error says what is wrong, and what is in `out` then
/// is undefined.
pub(crate) fn decode(compression: Compression, item: usize, stored: &[u8], out: &mut [u8]) -> Result<(), String> {
    if stored.len() == out.len() {
        out.copy_from_slice(stored);
        return Ok(());
    }
    if !(compression.shuffle && item > 1) {
        return decompress(compression.codec, stored, out);
    }
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.resize(out.len(), 0);
        decompress(compression.codec, stored, scratch)?;
        unshuffle(item, scratch, out);
        Ok(())
    })
}

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static ZSTD: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

fn decompress(codec: Codec, stored: &[u8], out: &mut [u8]) -> Result<(), String> {
    let length = match codec {
        Codec::None => return Err(format!("{} bytes stored for {} of no codec", stored.len(), out.len())),
        Codec::Lz4 => lz4_flex::block::decompress_into(stored, out).map_err(|error| format!("lz4: {error}"))?,
        Codec::Zstd { .. } => ZSTD.with_borrow_mut(|zstd| {
            let fail = |error| format!("zstd: {error}");
            let zstd = match zstd {
                Some(zstd) => zstd,
                none => none.insert(Decompressor::new().map_err(fail)?),
            };
            zstd.decompress_to_buffer(stored, out).map_err(fail)
        })?,
    };
    if length != out.len() {
        return Err(format!("{length} bytes decompressed instead of {}", out.len()));
    }
    Ok(())
}

/// Writes the first bytes of all elements, then their second bytes, and so on; a rest that is no element stays behind.
fn shuffle(item: usize, input: &[u8], out: &mut [u8]) {
    match item {
        2 => shuffle_by::<2>(input, out),
        4 => shuffle_by::<4>(input, out),
        _ => shuffle_by::<8>(input, out),
    }
}

fn shuffle_by<const N: usize>(input: &[u8], out: &mut [u8]) {
    let (elements, rest) = input.as_chunks::<N>();
    let (planes, tail) = out.split_at_mut(elements.len() * N);
    tail.copy_from_slice(rest);
    if elements.is_empty() {
        return;
    }
    for (byte, plane) in planes.chunks_exact_mut(elements.len()).enumerate() {
        for (to, element) in plane.iter_mut().zip(elements) {
            *to = element[byte];
        }
    }
}

/// Undoes [`shuffle`].
fn unshuffle(item: usize, input: &[u8], out: &mut [u8]) {
    match item {
        2 => unshuffle_by::<2>(input, out),
        4 => unshuffle_by::<4>(input, out),
        _ => unshuffle_by::<8>(input, out),
    }
}

fn unshuffle_by<const N: usize>(input: &[u8], out: &mut [u8]) {
    let (elements, rest) = out.as_chunks_mut::<N>();
    let (planes, tail) = input.split_at(elements.len() * N);
    rest.copy_from_slice(tail);
    if elements.is_empty() {
        return;
    }
    for (byte, plane) in planes.chunks_exact(elements.len()).enumerate() {
        for (from, element) in plane.iter().zip(elements.iter_mut()) {
            element[byte] = *from;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_shuffle_moves_equal_bytes_of_elements_together() {
        let mut out = [0; 7];
        shuffle(2, &[1, 2, 3, 4, 5, 6, 7], &mut out);
        assert_eq!(out, [1, 3, 5, 2, 4, 6, 7]);
        let mut back = [0; 7];
        unshuffle(2, &out, &mut back);
        assert_eq!(back, [1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn blocks_come_back_from_every_codec_and_are_never_stored_longer() {
        for codec in [Codec::None, Codec::Lz4, Codec::Zstd { level: 1 }, Codec::Zstd { level: 19 }] {
            for (shuffle, item) in [(false, 1), (true, 1), (true, 2), (true, 4), (true, 8)] {
                let compression = Compression { codec, shuffle: shuffle && codec != Codec::None };
                let mut encoder = Encoder::new(compression, item).unwrap();
                for length in [0, 1, 2, 7, 8, 63, 64, 1000] {
                    for step in [0u32, 1, 77_777_777] {
                        let raw: Vec<u8> = (0..length).map(|i: u32| (i.wrapping_mul(step) >> 3) as u8).collect();
                        let stored = encoder.encode(&raw).unwrap();
                        assert!(stored.len() <= raw.len());
                        let mut out = vec![9; raw.len()];
                        decode(compression, item, stored, &mut out).unwrap();
                        assert_eq!(out, raw);
                    }
                }
            }
        }
    }

    #[test]
    fn a_block_never_decompresses_to_more_or_less_than_it_declares() {
        for codec in [Codec::Lz4, Codec::Zstd { level: 1 }] {
            let compression = Compression { codec, shuffle: false };
            let mut encoder = Encoder::new(compression, 1).unwrap();
            let stored = encoder.encode(&[7; 1000]).unwrap();
            for raw in [0, 999, 1001] {
                decode(compression, 1, stored, &mut vec![0; raw]).unwrap_err();
            }
        }
    }
}
