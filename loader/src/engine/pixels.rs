//! Encoded images become pixels, on their way from what was fetched to what is gathered.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use super::{
    JobColumn,
    builder::{Builder, Cause, Held, Place, Planned},
};
use crate::{Error, Fault, Pixels, Result, finish::Needed, image::Encoded};

/// A row of a batch, and its pixels or what is wrong with its image.
type Row = (usize, Result<Place, String>);

impl Builder {
    /// Decodes the images of a batch, by several threads.
    pub(super) fn decode(&self, planned: &mut Planned, faults: &mut Vec<Fault>) -> Result<(), Cause> {
        for column in 0..self.job.columns.len() {
            if self.job.columns[column].pixels.is_none() {
                continue;
            }
            let found =
                self.decode_rows(&self.job.columns[column], &planned.columns[column].rows, &planned.positions)?;
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
    fn decode_rows(&self, column: &JobColumn, places: &[Place], positions: &[u64]) -> Result<Vec<Row>, Cause> {
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::with_capacity(places.len()));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if self.job.options.threads == 0 { cores } else { self.job.options.threads };
        let work = || {
            loop {
                let row = next.fetch_add(1, Ordering::Relaxed);
                let Some(place) = places.get(row) else { return };
                let decoded = self.decode_place(place, column, positions[row]).transpose();
                if let Some(decoded) = decoded {
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((row, decoded));
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.min(places.len()) {
                scope.spawn(work);
            }
            work();
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_unstable_by_key(|(row, _)| *row);
        let mut found = Vec::with_capacity(done.len());
        for (row, decoded) in done {
            found.push((
                row,
                match decoded {
                    Ok(place) => Ok(place),
                    Err(Wrong::Image(reason)) => Err(reason),
                    Err(Wrong::Other(cause)) => return Err(cause),
                },
            ));
        }
        Ok(found)
    }

    /// The decoded image of a row, if it has one that isn't decoded yet.
    fn decode_place(&self, place: &Place, column: &JobColumn, position: u64) -> Result<Option<Place>, Wrong> {
        let bytes = match place {
            Place::Linked(held) => &held.region.buffer().bytes()[..held.length],
            place => match place.fetched().map_err(Wrong::Other)? {
                Some(Some(bytes)) => bytes,
                Some(None) => return Ok(Some(Place::Masked)),
                None => return Ok(None),
            },
        };
        Ok(Some(Place::Held(self.pixels(bytes, column, position)?)))
    }

    /// The pixels of an image in a buffer of its own: all, or those that are needed for the part that is taken at this position.
    pub(super) fn pixels(&self, bytes: &[u8], column: &JobColumn, position: u64) -> Result<Held, Wrong> {
        let pixels = column.pixels.unwrap_or(Pixels::Rgb);
        let image = Encoded::open(bytes).map_err(Wrong::Image)?;
        let size = image.size();
        let seed = self.job.course.sample_seed(position);
        // An image that has no such part is decoded whole; who takes it says why it has none.
        let window = column.finish.as_ref().and_then(|finish| Some((finish, finish.window(seed, size).ok()?)));
        let shrink = self.job.options.shrink_on_load && image.shrinks();
        let (needed, window) = match window.map(|(finish, window)| finish.needed(&window, shrink)) {
            Some((needed, window)) => (needed, Some(window)),
            None => (Needed::all(size), None),
        };
        let [height, width] = needed.size();
        let length = height as usize * width as usize * pixels.channels() as usize;
        let mut buffer = self.job.device.arena(length).map_err(|error| Wrong::Other(error.into()))?;
        image.decode(pixels, &needed, buffer.bytes_mut()).map_err(Wrong::Image)?;
        let shape = vec![height, width, pixels.channels()];
        Ok(Held { region: self.region(buffer), length, shape, valid: true, window })
    }
}

/// Why a row has no pixels.
pub(super) enum Wrong {
    /// Its image can't be decoded.
    Image(String),
    Other(Cause),
}
