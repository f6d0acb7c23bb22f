//! Epoch order, shards, prefetch, shuffle: turns a selection into batches through a device.
