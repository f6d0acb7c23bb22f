//! The fastest that the link can be.

use std::time::Instant;

use super::CudaDevice;
use crate::{
    Result,
    cuda::{DeviceMemory, Pinned, upload},
};

impl CudaDevice {
    /// Bytes a second of one copy of `bytes` bytes of pinned memory to the device, the median of `times`: the ceiling of
    /// every route.
    ///
    /// # Errors
    /// [`Error::Budget`](crate::Error::Budget), [`Error::Call`](crate::Error::Call).
    pub fn link_rate(&self, bytes: usize, times: usize) -> Result<f64> {
        let _shares = (self.registered.take(bytes as u64)?, self.device.take(bytes as u64)?);
        let (from, to) = (Pinned::new(&self.context, bytes)?, DeviceMemory::new(&self.context, bytes)?);
        let mut seconds = Vec::new();
        for _ in 0..times.max(1) {
            let started = Instant::now();
            // SAFETY: both are `bytes` long and stay until the stream was waited for, here and on an error before that
            // when they are freed.
            unsafe { upload(&self.context, to.address(), &from, 0, bytes, self.streams.link.handle())? };
            self.streams.link.synchronize()?;
            seconds.push(started.elapsed().as_secs_f64());
        }
        seconds.sort_by(f64::total_cmp);
        Ok(bytes as f64 / seconds[seconds.len() / 2])
    }
}
