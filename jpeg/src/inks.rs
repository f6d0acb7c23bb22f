//! Cyan, magenta, yellow and black to what screens show.

use crate::Pixels;

/// Converts pixels of four inks, inverted as Adobe's programs write them, as Pillow does: `CMYK` to `RGB`, and that to `L`.
pub(crate) fn convert(inks: &[u8], pixels: Pixels, out: &mut [u8]) {
    let shown = inks.as_chunks::<4>().0.iter().map(|[cyan, magenta, yellow, black]| {
        [cyan, magenta, yellow].map(|ink| {
            // black - (255 - ink) * black / 255, rounded to nearest.
            let product = u32::from(255 - ink) * u32::from(*black) + 128;
            (u32::from(*black) - ((product + (product >> 8)) >> 8)) as u8
        })
    });
    match pixels {
        Pixels::Rgb => out.as_chunks_mut::<3>().0.iter_mut().zip(shown).for_each(|(to, rgb)| *to = rgb),
        Pixels::Grey => out.iter_mut().zip(shown).for_each(|(to, [red, green, blue])| {
            let weighted = u32::from(red) * 19_595 + u32::from(green) * 38_470 + u32::from(blue) * 7_471;
            *to = ((weighted + 0x8000) >> 16) as u8;
        }),
    }
}
