//! Whatever a file's format, its pixels are stored as a plain reader sees them.

use image::{DynamicImage, ImageFormat, imageops};

use crate::{
    images::{assert_close, encode, expected, grey_jpeg, jpeg, picture, png, seen, turned},
    support::{Bench, fixed, texts},
};

const SIZES: [&str; 4] = ["--resize", "48", "--crop", "40"];

/// Stores one file and gives its planes.
fn stored(name: &str, bytes: &[u8], sizes: &[&str]) -> Vec<u8> {
    let bench = Bench::new();
    bench.put(&format!("class/{name}"), bytes);
    bench.created(sizes);
    fixed(&bench.table("main"), "image").remove(0)
}

#[test]
fn a_picture_is_resized_and_cropped_as_by_a_plain_implementation() {
    let shapes = [(48, 48), (64, 48), (97, 131), (300, 55), (20, 31), (1, 1), (3, 500), (641, 480)];
    for (seed, (width, height)) in (0..).zip(shapes) {
        let image = picture(width, height, seed);
        let found = stored("x.png", &png(&image), &SIZES);
        assert_close(&found, &expected(&image, 48, 40), 1, &format!("{width} x {height}"));
    }
}

#[test]
fn the_default_is_256_and_224() {
    let image = picture(500, 375, 1);
    assert_close(&stored("x.png", &png(&image), &[]), &expected(&image, 256, 224), 1, "defaults");
}

#[test]
fn no_resizing_keeps_every_byte() {
    let image = picture(40, 40, 2);
    let planes: Vec<u8> = (0..3).flat_map(|channel| image.pixels().map(move |pixel| pixel[channel])).collect();
    assert_eq!(stored("x.png", &png(&image), &["--resize", "40", "--crop", "40"]), planes);
}

#[test]
fn lossless_formats_agree_with_each_other() {
    let image = picture(90, 60, 3);
    let wanted = expected(&image, 48, 40);
    for format in [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Bmp] {
        let bytes = encode(&DynamicImage::ImageRgb8(image.clone()), format);
        let name = format!("x.{}", format.extensions_str()[0]);
        assert_close(&stored(&name, &bytes, &SIZES), &wanted, 1, &name);
    }
}

#[test]
fn a_jpeg_is_decoded_as_by_another_decoder() {
    let bytes = jpeg(&picture(120, 90, 4));
    assert_close(&stored("x.jpg", &bytes, &SIZES), &expected(&seen(&bytes), 48, 40), 1, "jpeg");
}

#[test]
fn grey_alpha_and_16_bits_become_rgb() {
    let image = DynamicImage::ImageRgb8(picture(70, 50, 5));
    let grey = image.to_luma8();
    let repeated = DynamicImage::ImageLuma8(grey.clone()).into_rgb8();
    let mut see_through = image.to_rgba8();
    see_through.pixels_mut().for_each(|pixel| pixel[3] = pixel[0]);
    let cases = [
        ("grey", DynamicImage::ImageLuma8(grey.clone()), repeated.clone()),
        ("grey alpha", DynamicImage::ImageLuma8(grey.clone()).into_luma_alpha8().into(), repeated.clone()),
        ("grey 16", DynamicImage::ImageLuma16(DynamicImage::ImageLuma8(grey).into_luma16()), repeated),
        ("alpha", DynamicImage::ImageRgba8(see_through), image.to_rgb8()),
        ("rgb 16", DynamicImage::ImageRgb16(image.to_rgb16()), image.to_rgb8()),
        ("rgba 16", DynamicImage::ImageRgba16(image.to_rgba16()), image.to_rgb8()),
    ];
    for (what, file, seen) in cases {
        let found = stored("x.png", &encode(&file, ImageFormat::Png), &SIZES);
        assert_close(&found, &expected(&seen, 48, 40), 1, what);
    }
}

#[test]
fn a_grey_jpeg_becomes_rgb() {
    let bytes = grey_jpeg(&DynamicImage::ImageRgb8(picture(70, 50, 6)).into_luma8());
    assert_close(&stored("x.jpg", &bytes, &SIZES), &expected(&seen(&bytes), 48, 40), 1, "grey jpeg");
}

#[test]
fn a_cmyk_jpeg_has_the_colours_that_pillow_gives() {
    // Patches of 8 x 8 in a picture of 32 x 24, made and read back by Pillow 13: a pixel of each and its RGB.
    let patches = [
        ((6, 4), [255, 255, 255]),
        ((12, 4), [175, 255, 255]),
        ((20, 4), [95, 255, 135]),
        ((26, 4), [15, 255, 135]),
        ((6, 20), [195, 42, 195]),
        ((26, 20), [11, 42, 103]),
    ];
    let found = stored("x.jpg", include_bytes!("../data/cmyk.jpg"), &["--resize", "24", "--crop", "24"]);
    for ((x, y), rgb) in patches {
        // The window of 24 starts 4 pixels from the left of 32.
        let pixel = [0, 1, 2].map(|channel| found[channel * 576 + y * 24 + (x - 4)]);
        assert_close(&pixel, &rgb, 0, &format!("patch at ({x}, {y})"));
    }
}

#[test]
fn pictures_are_turned_as_exif_says() {
    let image = picture(83, 59, 7);
    for orientation in 1..=8_u8 {
        let turn = |image: &image::RgbImage| match orientation {
            2 => imageops::flip_horizontal(image),
            3 => imageops::rotate180(image),
            4 => imageops::flip_vertical(image),
            5 => imageops::flip_horizontal(&imageops::rotate90(image)),
            6 => imageops::rotate90(image),
            7 => imageops::flip_horizontal(&imageops::rotate270(image)),
            8 => imageops::rotate270(image),
            _ => image.clone(),
        };
        for format in [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::WebP] {
            let bytes = turned(&image, format, orientation);
            let seen = turn(&seen(&bytes));
            let name = format!("x.{}", format.extensions_str()[0]);
            let found = stored(&name, &bytes, &SIZES);
            assert_close(&found, &expected(&seen, 48, 40), 1, &format!("{name} turned {orientation}"));
        }
    }
}

#[test]
fn a_compressed_table_holds_the_same_pixels() {
    let image = picture(64, 64, 8);
    for codec in ["lz4", "zstd", "zstd:19"] {
        let found = stored("x.png", &png(&image), &["--resize", "48", "--crop", "40", "--compression", codec]);
        assert_close(&found, &expected(&image, 48, 40), 1, codec);
    }
}

#[test]
fn any_number_of_threads_gives_the_same_table() {
    let bench = Bench::new();
    for index in 0..40 {
        let image = picture(30 + index * 7 % 50, 40 + index * 13 % 60, index);
        bench.put(&format!("c{}/{index:02}.jpg", index % 3), &jpeg(&image));
    }
    // Many decoders take a picture that ends early and is closed properly; here it is left out.
    let whole = jpeg(&picture(60, 60, 50));
    bench.put("c1/cut.jpg", &[&whole[..whole.len() * 2 / 3], &[0xff, 0xd9]].concat());
    let mut seen = Vec::new();
    for (at, threads) in ["1", "2", "8"].into_iter().enumerate() {
        let table = format!("t{at}");
        let append: &[&str] = if at == 0 { &[] } else { &["--append"] };
        bench.created(
            &[&["--threads", threads, "--table", &table, "--resize", "32", "--on-error", "skip"], append].concat(),
        );
        let table = bench.table(&table);
        seen.push((fixed(&table, "image"), fixed(&table, "label"), texts(&table, "path"), fixed(&table, "id")));
    }
    assert!(seen.iter().all(|table| *table == seen[0] && table.2.len() == 40));
}
