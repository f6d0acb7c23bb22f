//! Manifest pages: what most fragments have is packed in runs, what few have stands beside.
//!
//! A packed fragment takes 16 bytes for its identity and some ten for its numbers; the columns are named once a run. A table of a
//! million fragments of 300 columns is then some 26 MB of pages.

use std::sync::Arc;

use flatbuffers::WIPOffset;

use super::{
    DataFileRef, Fragment, Page,
    decode::{
        corrupt, data_file as read_data_file, fields as read_fields, fragment as read_fragment, list as read_list,
    },
    decode::{overlay as read_overlay, pointer as read_pointer, row_set as read_row_set},
    encode::{Builder, data_file, fields, fragment, list, overlay, pointer, row_set},
};
use crate::{
    FieldId, FileId, Footer, FragmentId, Id, Result, RowSet,
    bytes::{number, put_number},
    generated::meta as fb,
};

impl Page {
    /// Whether it is written as runs: each fragment needs a data file.
    pub(super) fn is_packed(&self) -> bool {
        !self.fragments.is_empty() && self.fragments.iter().all(|fragment| !fragment.files.is_empty())
    }
}

pub(super) fn write(b: &mut Builder, page: &Page) -> WIPOffset<fb::Page<'static>> {
    if !page.is_packed() {
        let fragments = list(b, &page.fragments, fragment);
        return fb::Page::create(b, &fb::PageArgs { fragments, ..Default::default() });
    }
    let alike =
        |one: &Fragment, other: &Fragment| one.files[0].fields == other.files[0].fields && is_own(one) == is_own(other);
    let runs: Vec<&[Fragment]> = page.fragments.chunk_by(alike).collect();
    let runs = list(b, &runs, |b, fragments| run(b, fragments));
    let more = |fragment: &Fragment| {
        fragment.files.len() > 1
            || !fragment.deleted.is_empty()
            || !fragment.overlays.is_empty()
            || fragment.origins.is_some()
    };
    let extras: Vec<_> = page.fragments.iter().enumerate().filter(|(_, fragment)| more(fragment)).collect();
    let extras = list(b, &extras, |b, (place, fragment)| extra(b, *place, fragment));
    fb::Page::create(b, &fb::PageArgs { runs, extras, ..Default::default() })
}

/// Whether a fragment's first file has the fragment's id.
fn is_own(fragment: &Fragment) -> bool {
    fragment.files[0].id == fragment.id.cast()
}

/// Fragments whose first files have the same columns, and all the fragment's id or none.
fn run(b: &mut Builder, run: &[Fragment]) -> WIPOffset<fb::Run<'static>> {
    let (mut ids, mut files, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
    for fragment in run {
        let file = &fragment.files[0];
        ids.extend_from_slice(fragment.id.as_bytes());
        files.extend_from_slice(file.id.as_bytes());
        for value in [u64::from(fragment.rows), file.size, u64::from(file.index_length)] {
            put_number(&mut numbers, value);
        }
    }
    let args = fb::RunArgs {
        fragments: Some(b.create_vector(&ids)),
        files: (!is_own(&run[0])).then(|| b.create_vector(&files)),
        numbers: Some(b.create_vector(&numbers)),
        fields: fields(b, &run[0].files[0].fields),
    };
    fb::Run::create(b, &args)
}

fn extra(b: &mut Builder, place: usize, fragment: &Fragment) -> WIPOffset<fb::Extra<'static>> {
    let args = fb::ExtraArgs {
        fragment: place as u32,
        files: list(b, &fragment.files[1..], data_file),
        deleted: (!fragment.deleted.is_empty()).then(|| row_set(b, &fragment.deleted)),
        overlays: list(b, &fragment.overlays, overlay),
        origins: fragment.origins.as_ref().map(|origins| pointer(b, origins)),
    };
    fb::Extra::create(b, &args)
}

pub(super) fn read(what: &str, page: fb::Page<'_>) -> Result<Page> {
    let mut fragments = read_list(page.fragments(), |item| read_fragment(what, item))?;
    let runs = page.runs().into_iter().flatten();
    for (number, run) in runs.enumerate() {
        if number == 0 && !fragments.is_empty() {
            return corrupt(what, "a page has both fragments and runs");
        }
        read_run(what, run, &mut fragments)?;
    }
    let mut next = 0;
    for extra in page.extras().into_iter().flatten() {
        let place = extra.fragment() as usize;
        let Some(fragment) = fragments.get_mut(place).filter(|_| place >= next && page.runs().is_some()) else {
            return corrupt(what, "what fragments have besides is not in their order");
        };
        next = place + 1;
        fragment.files.extend(read_list(extra.files(), |file| read_data_file(what, file))?);
        fragment.deleted = read_row_set(what, extra.deleted())?;
        fragment.overlays = read_list(extra.overlays(), |item| read_overlay(what, item))?;
        fragment.origins = extra.origins().map(|origins| read_pointer(what, origins).map(Box::new)).transpose()?;
        check_rows(what, fragment)?;
    }
    Ok(Page { fragments })
}

fn read_run(what: &str, run: fb::Run<'_>, fragments: &mut Vec<Fragment>) -> Result<()> {
    let (ids, rest) = run.fragments().bytes().as_chunks::<16>();
    let (files, rest_of_files) = run.files().unwrap_or(run.fragments()).bytes().as_chunks::<16>();
    if !rest.is_empty() || !rest_of_files.is_empty() || ids.len() != files.len() || ids.is_empty() {
        return corrupt(
            what,
            "the ids of a run are none, not of 16 bytes each, or not as many of fragments as of files",
        );
    }
    let columns: Arc<[FieldId]> = read_fields(run.fields());
    let (numbers, mut at) = (run.numbers().bytes(), 0);
    fragments.reserve(ids.len());
    for (id, file) in ids.iter().zip(files) {
        let mut next = || number(numbers, &mut at, 10).or_else(|reason| corrupt(what, reason));
        let (rows, size, index_length) = (next()?, next()?, next()?);
        let (Ok(rows), Ok(index_length)) = (u32::try_from(rows), u32::try_from(index_length)) else {
            return corrupt(what, "a fragment's rows, or the length of its file's index, are past what there can be");
        };
        let Some(index_offset) = size.checked_sub(u64::from(index_length) + Footer::SIZE as u64) else {
            return corrupt(what, "a file is smaller than its index");
        };
        let id: FragmentId = Id::from_bytes(*id);
        let file_id: FileId = Id::from_bytes(*file);
        let file = DataFileRef { id: file_id, size, index_offset, index_length, fields: columns.clone() };
        file.check().or_else(|error| corrupt(what, error.to_string()))?;
        fragments.push(Fragment::new(id, rows, vec![file]));
    }
    if at != numbers.len() {
        return corrupt(what, "a run has more numbers than fragments");
    }
    Ok(())
}

/// Checks that what is deleted and overlaid are rows of the fragment.
pub(super) fn check_rows(what: &str, fragment: &Fragment) -> Result<()> {
    let past = |rows: &RowSet| rows.end() > fragment.rows;
    if past(&fragment.deleted) || fragment.overlays.iter().any(|overlay| past(&overlay.rows)) {
        return corrupt(what, format!("rows past the {} of a fragment are deleted or overlaid", fragment.rows));
    }
    Ok(())
}
