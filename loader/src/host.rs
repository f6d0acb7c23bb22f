//! The device that is the host: rows are copied once, or finished, by threads, into recycled buffers.

use std::{any::Any, fmt, ops::Range, sync::Arc};

use forebay_versioning::Verify;

use crate::{
    Error, HostBuffer, HostPool, Result,
    buffer::copy_streaming,
    device::{
        ArenaBuffer, Buffer, ColumnPlan, Device, Finishing, GatherPlan, Gathered, MappedColumn, PlanLayout, Region,
        Source,
    },
    error::RowsOf,
    finish::Scratch,
};

/// What one thread copies before it looks for more work: enough to hide the hand-over, little enough to share evenly.
const TASK_BYTES: usize = 1 << 20;
/// A row above this is copied by several threads.
const SPLIT_BYTES: usize = 4 << 20;
/// A column of a batch that takes at least this many bytes is copied past the caches.
const STREAM_BYTES: usize = 4 << 20;
/// Shorter runs are copied through the caches: they would end in too many half-written lines.
const STREAM_ROW_BYTES: usize = 1 << 10;
/// What one thread finishes before it looks for more work: some tenths of a millisecond.
const FINISH_BYTES: usize = 256 << 10;
/// Copying many small rows costs as if each had at least this many bytes.
const ROW_COST: usize = 256;

/// Copies rows into 64-byte-aligned host buffers with threads of its own. The oracle of every other device.
pub struct HostDevice {
    threads: rayon::ThreadPool,
    batches: HostPool,
    arena: HostPool,
    process: u32,
}

impl HostDevice {
    /// Bytes of batch buffers kept for the next batch.
    const KEEP_BATCHES: usize = 1 << 30;
    /// Bytes of arena buffers kept for the next fetch; more, while they are what an epoch had in use at once.
    const KEEP_ARENA: usize = 64 << 20;

    /// A host device with `threads` copying threads; 0 for one a core, at most 16.
    ///
    /// # Errors
    /// [`Error::Threads`] if the system refuses threads.
    pub fn new(threads: usize) -> Result<Arc<Self>> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(if threads == 0 { cores.min(16) } else { threads })
            .thread_name(|index| format!("forebay-copy-{index}"))
            .build()
            .map_err(|error| Error::Threads { source: std::io::Error::other(error) })?;
        Ok(Arc::new(Self {
            threads,
            batches: HostPool::new(Self::KEEP_BATCHES),
            arena: HostPool::keeping_most(Self::KEEP_ARENA),
            process: std::process::id(),
        }))
    }
}

impl fmt::Debug for HostDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostDevice").field("threads", &self.threads.current_num_threads()).finish_non_exhaustive()
    }
}

impl Device for HostDevice {
    fn name(&self) -> String {
        format!("host ({} threads)", self.threads.current_num_threads())
    }

    /// Two: while the last rows of one batch are copied, the other threads go on with the next.
    fn concurrency(&self) -> usize {
        2
    }

    fn gather(&self, plan: GatherPlan) -> Result<Vec<Gathered>> {
        if std::process::id() != self.process {
            return Err(Error::Forked);
        }
        let mut outputs = Vec::with_capacity(plan.columns.len());
        for column in &plan.columns {
            outputs.push(self.batches.take(column.delivered())?);
        }
        let mut tasks = Vec::new();
        for (column, output) in plan.columns.iter().zip(&mut outputs) {
            split(column, output, &mut tasks);
        }
        self.run(tasks)?;
        plan.columns.iter().zip(outputs).map(|(column, values)| self.deliver(column, values)).collect()
    }

    fn adopts(&self) -> bool {
        true
    }

    fn adopt(&self, column: &ColumnPlan, buffer: Box<dyn ArenaBuffer>) -> Result<Gathered> {
        let buffer: Box<dyn Any> = buffer;
        let other = |_| Error::Device { reason: format!("the buffer of column '{}' is another device's", column.name) };
        self.deliver(column, *buffer.downcast().map_err(other)?)
    }

    fn arena(&self, bytes: usize) -> Result<Box<dyn ArenaBuffer>> {
        Ok(Box::new(self.arena.take(bytes)?))
    }
}

impl HostDevice {
    /// Runs tasks on the threads; gives the error of the first that failed, in order of the batch.
    fn run(&self, mut tasks: Vec<Task<'_>>) -> Result<()> {
        if let [task] = &mut tasks[..] {
            return task.run();
        }
        // Large tasks first: the small ones fill the gaps at the end.
        tasks.sort_by_key(|task| std::cmp::Reverse(task.output.len()));
        let failure = std::sync::Mutex::new(None);
        self.threads.scope_fifo(|scope| {
            for task in &mut tasks {
                let failure = &failure;
                scope.spawn_fifo(move |_| {
                    if let Err(error) = task.run() {
                        let mut failure = failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        let row = task.rows.start;
                        if failure.as_ref().is_none_or(|(first, _)| row < *first) {
                            *failure = Some((row, error));
                        }
                    }
                });
            }
        });
        match failure.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    fn deliver(&self, column: &ColumnPlan, values: HostBuffer) -> Result<Gathered> {
        let offsets = match &column.layout {
            _ if column.finishing.is_some() => None,
            PlanLayout::Fixed { .. } => None,
            PlanLayout::Ragged { offsets, .. } => {
                let mut buffer = self.batches.take(offsets.len() * 8)?;
                for (bytes, offset) in buffer.chunks_exact_mut(8).zip(offsets) {
                    bytes.copy_from_slice(&offset.to_le_bytes());
                }
                Some(Buffer::Host(buffer))
            }
        };
        let validity = match &column.validity {
            None => None,
            Some(rows) => {
                let mut buffer = self.batches.take(rows.len())?;
                buffer.copy_from_slice(rows);
                Some(Buffer::Host(buffer))
            }
        };
        Ok(Gathered { values: Buffer::Host(values), offsets, validity })
    }
}

/// Copies rows of a batch that is larger than the caches.
fn copy_large(to: &mut [u8], from: &[u8]) {
    if from.len() >= STREAM_ROW_BYTES { copy_streaming(to, from) } else { to.copy_from_slice(from) }
}

/// Rows of a column that one thread copies or finishes.
struct Task<'a> {
    column: &'a ColumnPlan,
    /// Rows of the batch.
    rows: Range<usize>,
    /// For a part of one large row: where it starts in the row.
    part: Option<usize>,
    output: &'a mut [u8],
}

/// Cuts a column of a batch into tasks of about [`TASK_BYTES`].
fn split<'a>(column: &'a ColumnPlan, output: &'a mut [u8], tasks: &mut Vec<Task<'a>>) {
    let count = column.sources.len();
    if let Some(finishing) = &column.finishing {
        let bytes = finishing.prepared.out_row_bytes();
        let each = (FINISH_BYTES / bytes).max(1);
        for (task, output) in output.chunks_mut(each * bytes).enumerate() {
            let rows = task * each..task * each + output.len() / bytes;
            tasks.push(Task { column, rows, part: None, output });
        }
        return;
    }
    let (mut rest, mut start) = (output, 0);
    while start < count {
        let (mut end, mut cost, mut bytes) = (start, 0, 0);
        while end < count && (end == start || cost < TASK_BYTES) {
            let row = column.output(end).len();
            cost += row.max(ROW_COST);
            bytes += row;
            end += 1;
        }
        let (mut mine, behind) = rest.split_at_mut(bytes);
        rest = behind;
        if end == start + 1 && bytes > SPLIT_BYTES {
            let mut part = 0;
            while !mine.is_empty() {
                let (now, later) = mine.split_at_mut(mine.len().min(TASK_BYTES));
                tasks.push(Task { column, rows: start..end, part: Some(part), output: now });
                part += TASK_BYTES;
                mine = later;
            }
        } else {
            tasks.push(Task { column, rows: start..end, part: None, output: mine });
        }
        start = end;
    }
}

impl Task<'_> {
    fn run(&mut self) -> Result<()> {
        match (&self.column.finishing, self.part) {
            (Some(finishing), _) => self.finish_rows(finishing),
            (None, Some(part)) => self.copy_part(part),
            (None, None) => self.copy_rows(),
        }
    }

    /// Finishes rows from where they lie.
    fn finish_rows(&mut self, finishing: &Finishing) -> Result<()> {
        let mut scratch = Scratch::default();
        let outputs = self.output.chunks_exact_mut(finishing.prepared.out_row_bytes());
        for (row, output) in self.rows.clone().zip(outputs) {
            let source = self.column.sources[row];
            let bytes = match self.column.regions.get(source.region as usize) {
                Some(Region::Arena(region)) => {
                    let from = source.at as usize;
                    &region.buffer().bytes()[from..from + self.column.output(row).len()]
                }
                Some(Region::Mapped(mapped)) => {
                    let row = source.at as u32;
                    let checked = mapped.file.verify_rows(mapped.column, row..row + 1, mapped.verify);
                    checked.map_err(|source| self.column.read_error(mapped, row..row + 1, source))?;
                    mapped.bytes(row).ok_or_else(|| self.column.not_mapped())?
                }
                None => &[],
            };
            finishing.prepared.run(bytes, &finishing.windows[row], output, &mut scratch)?;
        }
        Ok(())
    }

    fn copy_rows(&mut self) -> Result<()> {
        let copy = if self.column.bytes() >= STREAM_BYTES { copy_large } else { <[u8]>::copy_from_slice };
        let mut rest = &mut self.output[..];
        let mut row = self.rows.start;
        while row < self.rows.end {
            let source = self.column.sources[row];
            if source == Source::NOWHERE {
                row += 1;
                continue;
            }
            // Rows that lie side by side are copied as one.
            let mut count = 1;
            if let Region::Mapped(_) = self.column.regions[source.region as usize] {
                let follows = |count: usize| Source { region: source.region, at: source.at + count as u64 };
                while row + count < self.rows.end && self.column.sources[row + count] == follows(count) {
                    count += 1;
                }
            }
            let bytes = self.column.output(row).len() * count;
            let (mine, behind) = rest.split_at_mut(bytes);
            match &self.column.regions[source.region as usize] {
                Region::Mapped(mapped) => {
                    let rows = source.at as u32..source.at as u32 + count as u32;
                    let copied = mapped.file.copy_rows_with(mapped.column, rows.clone(), mine, mapped.verify, copy);
                    copied.map_err(|source| self.column.read_error(mapped, rows, source))?;
                }
                Region::Arena(region) => {
                    let from = source.at as usize;
                    copy(mine, &region.buffer().bytes()[from..from + bytes]);
                }
            }
            rest = behind;
            row += count;
        }
        Ok(())
    }

    fn copy_part(&mut self, part: usize) -> Result<()> {
        let source = self.column.sources[self.rows.start];
        let bytes = match &self.column.regions[source.region as usize] {
            Region::Arena(region) => {
                let from = source.at as usize + part;
                &region.buffer().bytes()[from..from + self.output.len()]
            }
            Region::Mapped(mapped) => {
                let row = source.at as u32;
                self.verify_part(mapped, row, part)?;
                let bytes = mapped.bytes(row).ok_or_else(|| self.column.not_mapped())?;
                &bytes[part..part + self.output.len()]
            }
        };
        copy_streaming(self.output, bytes);
        Ok(())
    }

    /// Checks the blocks that this part of a row touches.
    fn verify_part(&self, mapped: &MappedColumn, row: u32, part: usize) -> Result<()> {
        if mapped.verify == Verify::Never {
            return Ok(());
        }
        let checked = mapped.file.verify_part(mapped.column, row, part..part + self.output.len(), mapped.verify);
        checked.map_err(|source| self.column.read_error(mapped, row..row + 1, source))
    }
}

impl ColumnPlan {
    fn not_mapped(&self) -> Error {
        Error::Device { reason: format!("column '{}' is not mapped", self.name) }
    }

    /// The error of rows of a mapped column that could not be read.
    #[must_use]
    pub fn read_error(&self, mapped: &MappedColumn, rows: Range<u32>, source: forebay_versioning::Error) -> Error {
        let rows = RowsOf { path: mapped.file.path().to_owned(), rows };
        Error::Read { column: self.name.to_string(), rows, source: Box::new(source) }
    }
}
