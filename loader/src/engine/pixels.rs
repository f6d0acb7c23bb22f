//! Encoded images become pixels, on their way from what was fetched to what is gathered.
//!
//! ```text
//!  rows of a column ──► headers ──► one buffer, as long as all pixels ──► decoded, each to its place
//!                                     └─ is the batch's as it is, if the device takes it and nothing is done to the pixels
//! ```

use std::sync::{Arc, Mutex, PoisonError, atomic::Ordering};

use super::{
    JobColumn,
    builder::{Builder, Cause, Held, Place, Planned},
};
use crate::{
    Error, Fault, Pixels, Result,
    device::{ColumnPlan, GatherPlan, Gathered, Region, Source},
    finish::{Needed, Window},
    image::Encoded,
};

/// Pixels of a batch that are at least so many bytes, about what is in the caches of a core, go past these.
const STREAM_BYTES: usize = 2 << 20;

/// An image whose header was read, and what is needed of it.
struct Image<'a> {
    encoded: Encoded<'a>,
    needed: Needed,
    window: Option<Window>,
    /// Height, width and channels of what is needed.
    shape: [u32; 3],
}

/// A row that isn't decoded yet: its image or what is wrong with it; `None` for a null.
type Opened<'a> = Option<Result<Image<'a>, String>>;

/// A row of a batch, and its pixels or what is wrong with its image.
type Row = (usize, Result<Place, String>);

impl Builder {
    /// Decodes the images of a batch, by several threads.
    pub(super) fn decode(&self, planned: &mut Planned, faults: &mut Vec<Fault>) -> Result<(), Cause> {
        for column in 0..self.job.columns.len() {
            let JobColumn { pixels: Some(pixels), .. } = &self.job.columns[column] else { continue };
            let found = self.decode_rows(column, *pixels, &planned.columns[column].rows, &planned.positions)?;
            for (row, decoded) in found {
                match decoded {
                    Ok(place) => planned.columns[column].rows[row] = place,
                    Err(reason) => {
                        let error = Error::Decode { column: self.job.columns[column].name.to_string(), reason };
                        if !self.job.options.faults.tolerates() {
                            return Err(Cause::Row { row, column, error });
                        }
                        self.mend(planned, row, &[(column, error.to_string())], faults)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// What becomes of each row that has an image, in order.
    fn decode_rows(
        &self,
        column: usize,
        pixels: Pixels,
        places: &[Place],
        positions: &[u64],
    ) -> Result<Vec<Row>, Cause> {
        let column = &self.job.columns[column];
        let rows = places.iter().zip(positions).enumerate();
        let opened = self.each(rows, |(row, (place, position))| {
            self.open(place, column, pixels, *position).map(|opened| Some((row, opened?))).transpose()
        });
        let (mut found, mut images) = (Vec::new(), Vec::new());
        for opened in opened.into_iter().flatten() {
            match opened? {
                (row, None) => found.push((row, Ok(Place::Masked))),
                (row, Some(Ok(image))) => images.push((row, image)),
                (row, Some(Err(reason))) => found.push((row, Err(reason))),
            }
        }
        if !images.is_empty() {
            let length = images.iter().map(|(_, image)| image.bytes()).sum();
            let past_caches = column.finish.is_none() && length >= STREAM_BYTES;
            let mut buffer = self.job.device.arena(length).map_err(Cause::from)?;
            let mut rest = buffer.bytes_mut();
            let places = images.into_iter().map(|(row, image)| {
                let (out, behind) = std::mem::take(&mut rest).split_at_mut(image.bytes());
                rest = behind;
                (row, image, out)
            });
            let decoded = self.each(places.collect::<Vec<_>>(), |(row, image, out)| {
                let (shape, window) = (image.shape, image.window);
                (row, shape, window, image.encoded.decode(pixels, &image.needed, out, past_caches))
            });
            let (region, mut end) = (self.region(buffer), 0);
            for (row, shape, window, decoded) in decoded {
                let (at, length) = (end, bytes(shape));
                end += length;
                let held = Held { region: region.clone(), at, length, shape: shape.into(), valid: true, window };
                found.push((row, decoded.map(|()| Place::Held(held))));
            }
            found.sort_unstable_by_key(|(row, _)| *row);
        }
        Ok(found)
    }

    /// Does something to each of several items, by several threads; gives the results in order.
    fn each<T: Send, R: Send>(
        &self,
        items: impl IntoIterator<IntoIter: ExactSizeIterator<Item = T> + Send>,
        work: impl Fn(T) -> R + Sync,
    ) -> Vec<R> {
        let items = items.into_iter();
        let (threads, next) = (self.job.options.cores().min(items.len()), Mutex::new(items.enumerate()));
        let run = || {
            let mut done = Vec::new();
            loop {
                let item = next.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((number, item)) = item else { return done };
                done.push((number, work(item)));
            }
        };
        let mut done = std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
            let mut done = run();
            for other in others {
                done.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            done
        });
        done.sort_unstable_by_key(|(number, _)| *number);
        done.into_iter().map(|(_, result)| result).collect()
    }

    /// The image of a row, or what is wrong with it; `None` if it has none that isn't decoded yet.
    fn open<'a>(
        &self,
        place: &'a Place,
        column: &JobColumn,
        pixels: Pixels,
        position: u64,
    ) -> Result<Option<Opened<'a>>, Cause> {
        let bytes = match place {
            Place::Linked(held) => held.bytes(),
            place => match place.fetched()? {
                Some(Some(bytes)) => bytes,
                Some(None) => return Ok(Some(None)),
                None => return Ok(None),
            },
        };
        Ok(Some(Some(self.image(bytes, column, pixels, position))))
    }

    /// What is needed of an image: all, or the pixels for the part that is taken at this position.
    fn image<'a>(
        &self,
        bytes: &'a [u8],
        column: &JobColumn,
        pixels: Pixels,
        position: u64,
    ) -> Result<Image<'a>, String> {
        let encoded = Encoded::open(bytes)?;
        let size = encoded.size();
        let seed = self.job.course.sample_seed(position);
        // An image that has no such part is decoded whole; who takes it says why it has none.
        let window = column.finish.as_ref().and_then(|finish| Some((finish, finish.window(seed, size).ok()?)));
        let shrink = self.job.options.shrink_on_load && encoded.shrinks();
        let (needed, window) = match window.map(|(finish, window)| finish.needed(&window, shrink)) {
            Some((needed, window)) => (needed, Some(window)),
            None => (Needed::all(size), None),
        };
        let [height, width] = needed.size();
        Ok(Image { encoded, needed, window, shape: [height, width, pixels.channels()] })
    }

    /// The pixels of one image.
    pub(super) fn pixels(&self, bytes: &[u8], column: &JobColumn, pixels: Pixels, position: u64) -> Result<Held> {
        let wrong = |reason| Error::Decode { column: column.name.to_string(), reason };
        let image = self.image(bytes, column, pixels, position).map_err(wrong)?;
        let (length, shape, window) = (image.bytes(), image.shape.into(), image.window);
        let mut buffer = self.job.device.arena(length)?;
        image.encoded.decode(pixels, &image.needed, buffer.bytes_mut(), false).map_err(wrong)?;
        Ok(Held { region: self.region(buffer), at: 0, length, shape, valid: true, window })
    }

    /// Takes the columns out of a plan that needn't be gathered, and their places in it: pixels that lie as the batch has them.
    pub(super) fn set_apart(&self, plan: &mut GatherPlan) -> Vec<(usize, ColumnPlan)> {
        let whole = |number: usize, column: &ColumnPlan| self.job.columns[number].pixels.is_some() && column.is_whole();
        let mut apart = Vec::new();
        if self.job.device.adopts() {
            for (number, column) in std::mem::take(&mut plan.columns).into_iter().enumerate() {
                if whole(number, &column) { apart.push((number, column)) } else { plan.columns.push(column) }
            }
        }
        apart
    }

    /// Puts columns that were set apart between those that were gathered.
    pub(super) fn put_back(
        &self,
        apart: Vec<(usize, ColumnPlan)>,
        planned: &mut Planned,
        gathered: &mut Vec<Gathered>,
    ) -> Result<(), Cause> {
        for (number, mut column) in apart {
            planned.columns[number].rows.clear();
            let Some(Region::Arena(region)) = column.regions.pop() else { continue };
            let adopted = match Arc::try_unwrap(region) {
                Ok(region) => {
                    self.shared.counters.bytes.fetch_add(column.bytes() as u64, Ordering::Relaxed);
                    Some(self.job.device.adopt(&column, region.buffer)?)
                }
                Err(shared) => {
                    column.regions.push(Region::Arena(shared));
                    self.gather(GatherPlan { rows: column.sources.len(), columns: vec![column] })?.pop()
                }
            };
            gathered.splice(number..number, adopted);
        }
        Ok(())
    }
}

impl Image<'_> {
    /// How many bytes its pixels have.
    fn bytes(&self) -> usize {
        bytes(self.shape)
    }
}

/// How many bytes pixels of a height, a width and so many channels have.
fn bytes(shape: [u32; 3]) -> usize {
    shape.into_iter().map(|length| length as usize).product()
}

impl ColumnPlan {
    /// Whether its rows are all of one arena buffer, side by side, and nothing is done to them.
    fn is_whole(&self) -> bool {
        let [Region::Arena(region)] = &self.regions[..] else { return false };
        let mut rows = self.sources.iter().enumerate().map(|(row, source)| (source, self.output(row)));
        self.finishing.is_none()
            && self.bytes() == region.buffer().bytes().len()
            && rows.all(|(source, out)| out.is_empty() || *source == Source { region: 0, at: out.start as u64 })
    }
}
