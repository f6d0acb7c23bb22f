//! How little of an encoded image has to be decoded for a window.

use std::ops::Range;

use super::{Interpolation, Prepared, Window, host};

/// The pixels of an image that are decoded, of the image shrunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Needed {
    /// How many pixels, across and down, become one: 1, 2, 4 or 8.
    pub(crate) shrink: u32,
    /// The rows and columns of the shrunk image that have a place in memory, side by side.
    pub(crate) held: [Range<u32>; 2],
    /// Those among them that are looked at. The places of others may hold anything.
    pub(crate) read: [Range<u32>; 2],
}

impl Needed {
    /// All of an image of this height and width.
    pub(crate) fn all(size: [u32; 2]) -> Self {
        let sides = size.map(|side| 0..side);
        Self { shrink: 1, held: sides.clone(), read: sides }
    }

    /// Height and width of what has a place in memory.
    pub(crate) fn size(&self) -> [u32; 2] {
        self.held.each_ref().map(|side| side.end - side.start)
    }
}

impl Prepared {
    /// What is needed of an image for a window of it, and the window of that.
    ///
    /// Without `shrink` the result has the pixels that the whole image gives, to the bit. With it the image is shrunk as far as
    /// the window's part stays at least as large as what it becomes; the part's edges then fall on whole pixels of the shrunk
    /// image, so that they move by at most half of one, and a blend is made of averages. Pixels that name something aren't
    /// averaged.
    pub(crate) fn needed(&self, window: &Window, shrink: bool) -> (Needed, Window) {
        let nearest = self.interpolation() == Interpolation::Nearest;
        let fits = |shrink: &u64| window.step.iter().all(|step| *step >= shrink << 32);
        let shrink = if shrink && !nearest { [8, 4, 2].into_iter().find(fits).unwrap_or(1) } else { 1 };
        let (mut inner, mut needed) = (*window, Needed::all([0, 0]));
        needed.shrink = shrink as u32;
        for axis in 0..2 {
            let size = window.size[axis].div_ceil(needed.shrink);
            let shrunk = |edge: u32| {
                let at_end = edge == window.size[axis];
                if at_end { size } else { (edge + needed.shrink / 2) / needed.shrink }
            };
            let (start, end) = (shrunk(window.corner[axis]), shrunk(window.corner[axis] + window.part[axis]));
            // The sides of what the part becomes: a step was rounded up from this division, or it would be a whole number.
            let becomes = (u64::from(window.part[axis]) << 32).div_ceil(window.step[axis]);
            let part = end - start;
            let step = if shrink == 1 { window.step[axis] } else { (u64::from(part) << 32).div_ceil(becomes) };
            (inner.size[axis], inner.corner[axis]) = (part, 0);
            (inner.part[axis], inner.step[axis]) = (part, step);
            let at = |x: u32| host::place(x + window.skip[axis], step, part, nearest);
            let ((first, ..), (_, last, _)) = (at(0), at(self.out_size()[axis] - 1));
            needed.held[axis] = start..end;
            needed.read[axis] = start + first..start + last + 1;
        }
        (needed, inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use forebay_format::{Column, DType, Dim};
    use proptest::prelude::*;

    use super::*;
    use crate::finish::{Crop, Finish, Number, Resize, Scratch};

    fn prepared(finish: Finish) -> Prepared {
        let column = Column::new("photo", DType::U8, [Dim::Free, Dim::Free, Dim::Fixed(3)]).unwrap();
        Finish { number: Number::U8, ..finish }.prepare(&column).unwrap()
    }

    fn finishes() -> impl Strategy<Value = Prepared> {
        let sides = (1..40_usize, 1..40_usize, 0..4_u8, 0..3_u8, any::<bool>());
        sides.prop_map(|(height, width, resize, crop, nearest)| {
            let (area, ratio) = ((0.05, 1.0), (0.5, 2.0));
            let (resize, [tall, wide]) = match resize {
                0 => (Resize::To { height, width }, [height, width]),
                1 => (Resize::Shorter(height), [height; 2]),
                _ => (Resize::RandomPart { height, width, area, ratio }, [height, width]),
            };
            let (tall, wide) = (tall - tall / 3, wide - wide / 3);
            let crop = match crop {
                0 if !matches!(resize, Resize::Shorter(_)) => None,
                1 => Some(Crop::Centre { height: tall, width: wide }),
                _ => Some(Crop::Random { height: tall, width: wide }),
            };
            let interpolation = nearest.then_some(Interpolation::Nearest);
            prepared(Finish { resize: Some(resize), crop, interpolation, mirror: 0.5, ..Finish::default() })
        })
    }

    fn run(prepared: &Prepared, row: &[u8], window: &Window) -> Vec<u8> {
        let mut out = vec![0; prepared.out_row_bytes()];
        prepared.run(row, window, &mut out, &mut Scratch::default()).unwrap();
        out
    }

    /// What is needed of an image, with `other` wherever nothing is read.
    fn cut(image: &[u8], width: usize, needed: &Needed, other: u8) -> Vec<u8> {
        let [rows, columns] = needed.held.clone();
        let pixels = rows.flat_map(|row| columns.clone().map(move |column| (row, column)));
        let pixel = |(row, column): (u32, u32)| {
            let read = needed.read[0].contains(&row) && needed.read[1].contains(&column);
            let at = (row as usize * width + column as usize) * 3;
            if read { [image[at], image[at + 1], image[at + 2]] } else { [other; 3] }
        };
        pixels.flat_map(pixel).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn what_is_needed_is_all_that_is_looked_at(
            prepared in finishes(),
            [height, width] in [1..60_u32, 1..60_u32],
            (seed, other, pixels) in (any::<u64>(), any::<u8>(), prop::collection::vec(any::<u8>(), 60 * 60 * 3)),
        ) {
            let image = &pixels[..(height * width * 3) as usize];
            let window = prepared.window(seed, [height, width]).unwrap();
            let (needed, inner) = prepared.needed(&window, false);
            prop_assert_eq!((needed.shrink, needed.size()), (1, inner.size));
            let row = cut(image, width as usize, &needed, other);
            prop_assert_eq!(run(&prepared, &row, &inner), run(&prepared, image, &window));
        }

        #[test]
        fn an_image_is_shrunk_as_far_as_its_part_stays_as_large_as_what_it_becomes(
            prepared in finishes(),
            size in [1..900_u32, 1..900_u32],
            seed in any::<u64>(),
        ) {
            let window = prepared.window(seed, size).unwrap();
            let (needed, inner) = prepared.needed(&window, true);
            let becomes = [0, 1].map(|axis| (u64::from(window.part[axis]) << 32).div_ceil(window.step[axis]) as u32);
            let large = |shrink: u32| (0..2).all(|axis| window.part[axis] >= becomes[axis] * shrink);
            let wanted = [8, 4, 2].into_iter().find(|shrink| large(*shrink)).unwrap_or(1);
            let nearest = prepared.interpolation() == Interpolation::Nearest;
            prop_assert_eq!(needed.shrink, if nearest { 1 } else { wanted });
            prop_assert!(prepared.fits(&inner), "{:?}", inner);
            prop_assert_eq!((inner.skip, inner.mirror, inner.size), (window.skip, window.mirror, needed.size()));
            for axis in 0..2 {
                let (held, read) = (&needed.held[axis], &needed.read[axis]);
                prop_assert!(held.start <= read.start && read.start < read.end && read.end <= held.end);
                prop_assert!(held.end <= size[axis].div_ceil(needed.shrink));
                prop_assert!(held.end - held.start >= becomes[axis].min(window.part[axis]));
                let shrink = needed.shrink;
                prop_assert!((held.start * shrink).abs_diff(window.corner[axis]) <= shrink / 2);
                let end = (held.end * shrink).min(size[axis]);
                prop_assert!(end.abs_diff(window.corner[axis] + window.part[axis]) <= shrink / 2);
            }
        }
    }

    #[test]
    fn a_crop_of_a_photo_needs_few_of_its_pixels() {
        let resize = Some(Resize::Shorter(256));
        let crop = Some(Crop::Centre { height: 224, width: 224 });
        let prepared = prepared(Finish { resize, crop, ..Finish::default() });
        let window = prepared.window(0, [1200, 1600]).unwrap();
        let (needed, inner) = prepared.needed(&window, true);
        assert_eq!((needed.shrink, inner.size), (4, [300, 400]));
        assert_eq!(needed.read, [18..282, 68..331]);
    }
}
