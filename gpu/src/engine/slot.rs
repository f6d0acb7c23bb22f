//! The memory that a batch needs on its way: used again by a later batch once this one is there.

use std::sync::Arc;

use super::{
    budget::{Budget, Share},
    plan::Layout,
};
use crate::{
    Result,
    cuda::{Context, DeviceMemory, Event, Pinned, Stream},
};

/// Memory grows to a multiple of this.
const GRAIN: usize = 64 << 10;

/// One place of the ring: a batch that is under way, or was.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// Reached when the batch is there: nothing reads the slot's memory any more. `None` before the first.
    pub(super) done: Option<Arc<Event>>,
    pub(super) pinned: Option<(Pinned, Share)>,
    /// The plan on the device.
    pub(super) plan: Option<(DeviceMemory, Share)>,
    /// Rows on the device that wait for their finish.
    pub(super) staging: Option<(DeviceMemory, Share)>,
}

impl Slot {
    /// Waits until the slot's last batch is there, and makes the memory large enough for the next. The next batch's work is asked of the streams only after this has returned.
    pub(super) fn prepare(
        &mut self,
        context: &Arc<Context>,
        registered: &Arc<Budget>,
        device: &Arc<Budget>,
        layout: &Layout,
    ) -> Result<()> {
        if let Some(done) = self.done.take() {
            done.wait()?;
        }
        if self.pinned.as_ref().map_or(0, |(memory, _)| memory.length()) < layout.pinned {
            self.pinned = None;
            let bytes = layout.pinned.next_multiple_of(GRAIN);
            // A few batches' worth: registered regions may have taken all else.
            let share = registered.take_anyway(bytes as u64);
            self.pinned = Some((Pinned::new(context, bytes)?, share));
        }
        grow(&mut self.plan, context, device, layout.plan)?;
        grow(&mut self.staging, context, device, layout.staging)
    }

    pub(super) fn plan_address(&self) -> u64 {
        self.plan.as_ref().map_or(0, |(memory, _)| memory.address())
    }

    pub(super) fn staging_address(&self) -> u64 {
        self.staging.as_ref().map_or(0, |(memory, _)| memory.address())
    }
}

fn grow(
    memory: &mut Option<(DeviceMemory, Share)>,
    context: &Arc<Context>,
    device: &Arc<Budget>,
    bytes: usize,
) -> Result<()> {
    if memory.as_ref().map_or(0, |(memory, _)| memory.length()) >= bytes {
        return Ok(());
    }
    *memory = None;
    let bytes = bytes.next_multiple_of(GRAIN);
    let share = device.take(bytes as u64)?;
    *memory = Some((DeviceMemory::new(context, bytes)?, share));
    Ok(())
}

/// The streams of a device: `upload` brings plans and what the CPU packed, `link` rows, and `finish` makes tensors of those
/// that need it.
///
/// They are three so that one batch is on the link while the next one's plan arrives and the one before is finished.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) upload: Stream,
    pub(super) link: Stream,
    pub(super) finish: Stream,
    /// Carries `link` behind `upload`, again for each batch.
    planned: Event,
    /// Carries `finish` behind `link`, likewise.
    brought: Event,
}

impl Streams {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self> {
        let stream = || Stream::new(context);
        let event = || Event::new(context);
        Ok(Self { upload: stream()?, link: stream()?, finish: stream()?, planned: event()?, brought: event()? })
    }

    /// Makes what `link` is asked from now on wait for what `upload` was asked until now.
    pub(super) fn start_link(&self) -> Result<()> {
        self.planned.record(self.upload.handle())?;
        self.planned.hold_back(self.link.handle())
    }

    /// Makes what `finish` is asked from now on wait for what `link` was asked until now.
    pub(super) fn hand_over(&self) -> Result<()> {
        self.brought.record(self.link.handle())?;
        self.brought.hold_back(self.finish.handle())
    }

    /// Blocks until all have done what they were asked.
    pub(super) fn synchronize(&self) -> Result<()> {
        let (upload, link) = (self.upload.synchronize(), self.link.synchronize());
        self.finish.synchronize().and(link).and(upload)
    }
}
