//! The seam to the C code: one object per image, whose errors unwind to here.
//!
//! libjpeg reports an error by calling `error_exit`, which must not return. Ours unwinds with the error as its payload, through
//! C code that was compiled with unwind tables and has nothing to clean up; all memory belongs to the object, which is
//! destroyed when it is dropped, whatever state an error left it in. After an error nothing else is done with it: `open` drops
//! it, and `decode` takes it.
#![allow(unsafe_code)]

use std::{
    ffi::c_int,
    marker::PhantomData,
    mem::MaybeUninit,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    ptr::NonNull,
};

use mozjpeg_sys::{
    J_COLOR_SPACE, JERR_INPUT_EMPTY, JERR_INPUT_EOF, JWRN_ADOBE_XFORM, JWRN_EXTRANEOUS_DATA, JWRN_HIT_MARKER,
    JWRN_JFIF_MAJOR, JWRN_JPEG_EOF, JWRN_NOT_SEQUENTIAL, jpeg_common_struct, jpeg_create_decompress,
    jpeg_crop_scanline, jpeg_decompress_struct, jpeg_destroy_decompress, jpeg_error_mgr, jpeg_finish_decompress,
    jpeg_mem_src, jpeg_progress_mgr, jpeg_read_header, jpeg_read_scanlines, jpeg_save_markers, jpeg_skip_scanlines,
    jpeg_start_decompress, jpeg_std_error,
};

use crate::{CopyRows, Error, Part, Pixels, Result, inks};

/// The marker of segments that hold Exif metadata.
const APP1: c_int = 0xe1;
const EXIF: &[u8] = b"Exif\0\0";
/// A progressive image has some ten scans. Each is a pass over all of it, so that a small file could ask for hours.
const SCANS: c_int = 500;
/// Rows that are asked for at once. The decoder makes up to 32 at a time.
const ROWS: usize = 32;

/// A JPEG file whose header was read.
#[derive(Debug)]
pub struct Jpeg<'a> {
    /// From a box, and freed by `drop` alone.
    state: NonNull<State>,
    bytes: PhantomData<&'a [u8]>,
}

// SAFETY: the state belongs to no thread, and is reached by way of the one that has it alone; the bytes are only read.
unsafe impl Send for Jpeg<'_> {}

/// Stays where it is: its parts point at each other.
struct State {
    info: jpeg_decompress_struct,
    errors: jpeg_error_mgr,
    progress: jpeg_progress_mgr,
}

impl<'a> Jpeg<'a> {
    /// Reads the header of a file.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Undecodable`].
    pub fn open(bytes: &'a [u8]) -> Result<Self> {
        // SAFETY: all parts are numbers, pointers, optional functions, and enums that have a variant 0.
        let state = unsafe { Box::new(MaybeUninit::<State>::zeroed()).assume_init() };
        let jpeg = Self { state: NonNull::from(Box::leak(state)), bytes: PhantomData };
        let state = jpeg.state.as_ptr();
        jpeg.guarded(|| {
            // SAFETY: `state` is ours alone; `errors` and `progress` live as long as `info`, and stay where they are. The bytes
            // outlive `self`. `jpeg_create_decompress` keeps `err` and `client_data` and makes everything else anew.
            unsafe {
                let info = &mut (*state).info;
                info.common.err = jpeg_std_error(&mut (*state).errors);
                (*state).errors.error_exit = Some(fail);
                (*state).errors.emit_message = Some(heed);
                info.common.client_data = state.cast();
                jpeg_create_decompress(info);
                (*state).progress.progress_monitor = Some(count_scans);
                info.common.progress = &raw mut (*state).progress;
                jpeg_mem_src(info, bytes.as_ptr(), bytes.len() as _);
                jpeg_save_markers(info, APP1, 0xffff);
                jpeg_read_header(info, 1);
            }
        })?;
        Ok(jpeg)
    }

    /// Height and width, as stored.
    #[must_use]
    pub fn size(&self) -> [u32; 2] {
        [self.info().image_height, self.info().image_width]
    }

    /// Numbers of a pixel, as stored: 1 for grey, 3 for colours, 4 for inks.
    #[must_use]
    pub fn channels(&self) -> u32 {
        self.info().num_components.unsigned_abs()
    }

    /// The Exif metadata, from the header of TIFF on.
    #[must_use]
    pub fn exif(&self) -> Option<&[u8]> {
        let mut marker = self.info().marker_list;
        // SAFETY: a list that the object made and keeps as long as it lives; each entry has so many bytes of data.
        while let Some(found) = unsafe { marker.as_ref() } {
            if found.data_length > 0 {
                // SAFETY: as above.
                let data = unsafe { std::slice::from_raw_parts(found.data, found.data_length as usize) };
                if let Some(exif) = data.strip_prefix(EXIF) {
                    return Some(exif);
                }
            }
            marker = found.next;
        }
        None
    }

    /// Decodes a part of the image into `out`, a C-order array `[rows, columns, channels]` with `stride` bytes from one row to
    /// the next; what lies between rows stays as it is. Data that is behind the last row of the part isn't looked at; if that is
    /// the last row of the image, the file is complete.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Undecodable`]; [`Error::Part`] if the image has no such part, it is empty, or `out` doesn't
    /// end where its last row does.
    pub fn decode(self, pixels: Pixels, part: &Part, out: &mut [u8], stride: usize) -> Result<()> {
        self.decode_by(pixels, part, out, stride, None)
    }

    /// As [`decode`](Self::decode); `copy`, if there is one, brings to `out` what was made in memory that stays in the processor's caches,
    /// some rows at a time: a copy past the caches is the faster way into memory that nobody reads soon.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn decode_by(
        self,
        pixels: Pixels,
        part: &Part,
        out: &mut [u8],
        stride: usize,
        copy: Option<CopyRows>,
    ) -> Result<()> {
        let [height, width] = self.size();
        let whole = Part::whole([height, width], part.shrink);
        let fits = |range: &Range<u32>, all: &Range<u32>| range.start < range.end && range.end <= all.end;
        if ![1, 2, 4, 8].contains(&part.shrink)
            || !fits(&part.rows, &whole.rows)
            || !fits(&part.columns, &whole.columns)
            || stride < part.row_bytes(pixels)
            || out.len() != (part.rows.len() - 1) * stride + part.row_bytes(pixels)
        {
            return Err(Error::Part { part: part.clone(), height, width, bytes: out.len() });
        }
        let state = self.state.as_ptr();
        self.guarded(|| {
            // SAFETY: `state` is ours alone, and its header was read.
            let info = unsafe { &mut (*state).info };
            let mut output = Output { info, pixels, part, whole };
            output.start();
            output.read(out, stride, copy);
        })
    }

    fn info(&self) -> &jpeg_decompress_struct {
        // SAFETY: the state lives until `drop`, and is changed only by `open` and `decode`, which have it alone.
        unsafe { &self.state.as_ref().info }
    }

    /// Does what may unwind with an [`Error`].
    fn guarded(&self, work: impl FnOnce()) -> Result<()> {
        catch_unwind(AssertUnwindSafe(work)).map_err(|payload| match payload.downcast() {
            Ok(error) => *error,
            Err(_) => Error::Undecodable { reason: "the decoder gave up on it".to_owned() },
        })
    }
}

impl Drop for Jpeg<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `open` from a box, and nobody else frees it. Destroying an object is right in any state, also in
        // that of zeros, and raises no errors.
        unsafe {
            jpeg_destroy_decompress(&mut (*self.state.as_ptr()).info);
            drop(Box::from_raw(self.state.as_ptr()));
        }
    }
}

/// A decoding under way. What it does may unwind with an [`Error`].
struct Output<'a> {
    info: &'a mut jpeg_decompress_struct,
    pixels: Pixels,
    part: &'a Part,
    /// All of the image at the size of the part.
    whole: Part,
}

impl Output<'_> {
    fn start(&mut self) {
        self.info.scale_num = 1;
        self.info.scale_denom = self.part.shrink;
        self.info.out_color_space = match (self.info.jpeg_color_space, self.pixels) {
            (J_COLOR_SPACE::JCS_CMYK | J_COLOR_SPACE::JCS_YCCK, _) => J_COLOR_SPACE::JCS_CMYK,
            (_, Pixels::Rgb) => J_COLOR_SPACE::JCS_RGB,
            (_, Pixels::Grey) => J_COLOR_SPACE::JCS_GRAYSCALE,
        };
        // SAFETY: the header was read, and this is done once.
        unsafe { jpeg_start_decompress(self.info) };
        for component in 0..self.info.num_components.unsigned_abs() as usize {
            // SAFETY: there are so many of them. Their tables are noted when their first data are met.
            if unsafe { (*self.info.comp_info.add(component)).quant_table.is_null() } {
                resume_unwind(Box::new(Error::Truncated));
            }
        }
        if self.info.output_height != self.whole.rows.end || self.info.output_width != self.whole.columns.end {
            raise("it has other pixels than its header says");
        }
    }

    fn read(&mut self, out: &mut [u8], stride: usize, copy: Option<CopyRows>) {
        let inks = self.info.out_color_space == J_COLOR_SPACE::JCS_CMYK;
        let (from, width) = self.crop();
        let Part { rows, columns, .. } = self.part;
        // SAFETY: started, and no row was read; there are so many rows.
        if rows.start > 0 && unsafe { jpeg_skip_scanlines(self.info, rows.start) } != rows.start {
            raise("it has fewer rows than its header says");
        }
        let row_bytes = self.part.row_bytes(self.pixels);
        let as_made = !inks && width == columns.len();
        if as_made && copy.is_none() {
            self.lines(out, row_bytes, stride);
        } else {
            let copy = copy.unwrap_or(<[u8]>::copy_from_slice);
            // Rows, perhaps with more columns, or of inks.
            let channels = if inks { 4 } else { self.pixels.channels() as usize };
            let wide_bytes = width * channels;
            let mut wide = vec![0; ROWS.min(rows.len()) * wide_bytes];
            let skip = (columns.start as usize - from) * channels;
            for out in out.chunks_mut(ROWS * stride) {
                let wide = &mut wide[..out.len().div_ceil(stride) * wide_bytes];
                self.lines(wide, wide_bytes, wide_bytes);
                if as_made && stride == row_bytes {
                    copy(out, wide);
                    continue;
                }
                for (wide, out) in wide.chunks_exact(wide_bytes).zip(out.chunks_mut(stride)) {
                    let (wanted, out) = (&wide[skip..skip + columns.len() * channels], &mut out[..row_bytes]);
                    if inks { inks::convert(wanted, self.pixels, out) } else { copy(out, wanted) }
                }
            }
        }
        if rows.end == self.whole.rows.end {
            // SAFETY: all rows were read.
            unsafe { jpeg_finish_decompress(self.info) };
        }
    }

    /// Has only some columns decoded: the first, and how many. There is one unit of the image more on either side than is
    /// wanted: in the outermost columns colours are blended as at the edge of an image.
    fn crop(&mut self) -> (usize, usize) {
        let (columns, width) = (&self.part.columns, self.whole.columns.end);
        if columns.len() == width as usize {
            return (0, width as usize);
        }
        let unit = self.info.max_h_samp_factor.unsigned_abs() * 8 / self.part.shrink;
        let mut from = columns.start.saturating_sub(unit);
        let mut count = (columns.end + unit).min(width) - from;
        // SAFETY: started, and no row was read.
        unsafe { jpeg_crop_scanline(self.info, &mut from, &mut count) };
        if from > columns.start || from + count < columns.end || self.info.output_width != count {
            raise("it has other columns than its header says");
        }
        (from as usize, count as usize)
    }

    /// Reads rows of so many bytes each, until `out` is full.
    fn lines(&mut self, out: &mut [u8], row_bytes: usize, stride: usize) {
        let made = self.info.output_width as usize * self.info.output_components.unsigned_abs() as usize;
        if made != row_bytes {
            raise("it has other pixels than its header says");
        }
        let mut rows = out.chunks_mut(stride).map(|row| row[..row_bytes].as_mut_ptr());
        let (mut lines, mut ready) = ([std::ptr::null_mut(); ROWS], 0);
        loop {
            while ready < ROWS
                && let Some(row) = rows.next()
            {
                (lines[ready], ready) = (row, ready + 1);
            }
            if ready == 0 {
                return;
            }
            // SAFETY: started; so many of the pointers are at rows of as many bytes as the decoder makes, which are ours alone.
            let read = unsafe { jpeg_read_scanlines(self.info, lines.as_mut_ptr(), ready as u32) } as usize;
            if !(1..=ready).contains(&read) {
                raise("it has fewer rows than its header says");
            }
            lines.copy_within(read..ready, 0);
            ready -= read;
        }
    }
}

fn raise(reason: &str) -> ! {
    resume_unwind(Box::new(Error::Undecodable { reason: reason.to_owned() }))
}

/// `error_exit`: what is wrong ends the decoding.
unsafe extern "C-unwind" fn fail(info: &mut jpeg_common_struct) {
    // SAFETY: set by `open`, and as long-lived as `info`.
    let errors = unsafe { &*info.err };
    let error = match errors.msg_code {
        JWRN_JPEG_EOF | JWRN_HIT_MARKER | JERR_INPUT_EOF | JERR_INPUT_EMPTY => Error::Truncated,
        _ => Error::Undecodable { reason: message(info) },
    };
    resume_unwind(Box::new(error))
}

/// `emit_message`: a warning says that some of the picture is missing or made up, unless it is one of those that don't.
unsafe extern "C-unwind" fn heed(info: &mut jpeg_common_struct, level: c_int) {
    // SAFETY: as above.
    let code = unsafe { &*info.err }.msg_code;
    let harmless = matches!(code, JWRN_ADOBE_XFORM | JWRN_EXTRANEOUS_DATA | JWRN_JFIF_MAJOR | JWRN_NOT_SEQUENTIAL);
    if level < 0 && !harmless {
        // SAFETY: called with what we were called with.
        unsafe { fail(info) };
    }
}

/// `progress_monitor`, called before each row of blocks.
unsafe extern "C-unwind" fn count_scans(info: &mut jpeg_common_struct) {
    // SAFETY: set by `open`. The number isn't in the part that `info` is.
    if unsafe { (*info.client_data.cast::<State>()).info.input_scan_number } > SCANS {
        raise(&format!("it has more than {SCANS} scans"));
    }
}

/// What the library says is wrong.
fn message(info: &mut jpeg_common_struct) -> String {
    /// The most that the library writes: its `JMSG_LENGTH_MAX`.
    const LENGTH: usize = 200;
    type Declared = unsafe extern "C-unwind" fn(&mut jpeg_common_struct, &[u8; 80]);
    type Actual = unsafe extern "C-unwind" fn(&mut jpeg_common_struct, *mut [u8; LENGTH]);
    // SAFETY: as above.
    let errors = unsafe { &*info.err };
    let Some(format) = errors.format_message else { return format!("error {}", errors.msg_code) };
    let mut text = [0; LENGTH];
    // SAFETY: in C the second argument is a `char *` that is written to, to at most so many bytes.
    unsafe { std::mem::transmute::<Declared, Actual>(format)(info, &mut text) };
    String::from_utf8_lossy(text.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}
