//! Tells a whole JPEG from one that was cut short, which decoders tend to fill up with grey.

/// Whether the end-of-image marker follows the picture's data (ISO/IEC 10918-1, annex B).
pub(crate) fn is_complete(bytes: &[u8]) -> bool {
    const END: u8 = 0xd9;
    const SCAN: u8 = 0xda;
    let mut rest = bytes;
    while let Some((marker, after)) = next_marker(rest) {
        rest = after;
        match marker {
            END => return true,
            // Start of image, temporary, restart: markers without a segment.
            0x01 | 0xd0..=0xd8 => continue,
            _ => {}
        }
        let Some(length) = rest.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length))) else { break };
        let Some(after) = rest.get(length..) else { break };
        rest = after;
        if marker == SCAN {
            // In a scan's data this pair is never anything but the end; usually it is where the file ends.
            if rest.ends_with(&[0xff, END]) {
                return true;
            }
            rest = skip_scan(rest);
        }
    }
    false
}

/// The next marker, passing over anything before it.
fn next_marker(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let mut rest = bytes;
    loop {
        let at = rest.iter().position(|byte| *byte == 0xff)?;
        rest = &rest[at + 1..];
        let (first, after) = rest.split_first()?;
        match first {
            0xff => {}
            0 => rest = after,
            marker => return Some((*marker, after)),
        }
    }
}

/// Passes over entropy-coded data, in which `ff 00` is a byte of data and `ff d0` to `ff d7` restart it.
fn skip_scan(bytes: &[u8]) -> &[u8] {
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == 0xff) {
        from += at;
        match bytes.get(from + 1) {
            Some(0 | 0xd0..=0xd7) => from += 2,
            Some(_) => return &bytes[from..],
            None => break,
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::is_complete;
    use image::codecs::jpeg::JpegEncoder;

    fn jpeg() -> Vec<u8> {
        let image = image::RgbImage::from_fn(70, 50, |x, y| image::Rgb([x as u8 * 3, y as u8 * 5, (x * y) as u8]));
        let mut bytes = Vec::new();
        image.write_with_encoder(JpegEncoder::new(&mut bytes)).unwrap();
        bytes
    }

    #[test]
    fn a_jpeg_is_complete_only_with_its_last_byte() {
        let bytes = jpeg();
        assert!(is_complete(&bytes));
        for length in 0..bytes.len() {
            assert!(!is_complete(&bytes[..length]), "of {} bytes the first {length}", bytes.len());
        }
    }

    #[test]
    fn an_end_marker_inside_a_thumbnail_does_not_end_the_picture() {
        let bytes = jpeg();
        let thumbnail = [&[0xff, 0xe1, 0, 6, 0xff, 0xd9, 0xff, 0xd9], &bytes[2..]].concat();
        let whole = [&bytes[..2], &thumbnail].concat();
        assert!(is_complete(&whole));
        assert!(!is_complete(&whole[..whole.len() - 2]));
    }

    #[test]
    fn what_follows_the_end_does_not_matter() {
        assert!(is_complete(&[jpeg(), b"trailing".to_vec()].concat()));
    }
}
