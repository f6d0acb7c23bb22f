//! Integers in bytes: little-endian ones in slices whose length was checked, and LEB128.

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

/// The `N` bytes from `at`, which must be there.
pub(crate) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

/// Appends a number in LEB128.
pub(crate) fn put_number(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// The LEB128 number of at most `most` (up to ten) bytes at `at`, which then is behind it; or what is wrong.
pub(crate) fn number(bytes: &[u8], at: &mut usize, most: usize) -> Result<u64, &'static str> {
    let mut value = 0_u64;
    for place in 0..most {
        let byte = *bytes.get(*at).ok_or("it ends in the middle of a number")?;
        *at += 1;
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has room for one bit.
        if place == 9 && bits > 1 {
            break;
        }
        value |= bits << (7 * place);
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err("a number has too many bytes")
}
