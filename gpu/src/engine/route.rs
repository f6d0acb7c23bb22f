//! How the rows of a column come to the device.

use crate::Route;

/// Rows up to this many bytes are packed by the CPU: an address for each would be a notable part of what the link carries,
/// and the CPU copies so few bytes faster than a request over the link takes.
pub(super) const PACKED: u64 = 512;
/// Rows from this many bytes on keep the copy engines busy: below, the work of starting each copy is most of its time.
pub(super) const BATCH_COPY: u64 = 48 << 10;

/// The route for rows of `bytes` on average, in memory that is `registered` or not; `only` this, if it can be.
pub(super) fn choose(bytes: u64, registered: bool, batch_copy: bool, only: Option<Route>) -> Route {
    match only {
        Some(Route::BatchCopy) if registered && batch_copy => return Route::BatchCopy,
        Some(Route::Kernel) if registered => return Route::Kernel,
        Some(route @ (Route::Packed | Route::Slab)) => return route,
        _ => {}
    }
    if bytes <= PACKED {
        Route::Packed
    } else if !registered {
        Route::Slab
    } else if bytes >= BATCH_COPY && batch_copy {
        Route::BatchCopy
    } else {
        Route::Kernel
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_rows_go_to_the_copy_engines_middling_ones_to_the_kernel_and_small_ones_are_packed() {
        assert_eq!(choose(150_528, true, true, None), Route::BatchCopy);
        assert_eq!(choose(24_576, true, true, None), Route::Kernel);
        assert_eq!(choose(513, true, true, None), Route::Kernel);
        assert_eq!(choose(512, true, true, None), Route::Packed);
    }

    #[test]
    fn without_the_batched_call_the_kernel_takes_large_rows_and_without_registration_the_cpu_does() {
        assert_eq!(choose(150_528, true, false, None), Route::Kernel);
        assert_eq!(choose(150_528, false, true, None), Route::Slab);
        assert_eq!(choose(8, false, true, None), Route::Packed);
    }
}
