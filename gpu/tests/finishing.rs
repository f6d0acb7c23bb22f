//! What the kernel makes of an image is, to the bit, what the host makes of it.

use forebay_gpu::Finishing;
use proptest::prelude::*;

use crate::{batches::Source, driver::Mock, images::finishes};

#[test]
fn the_kernel_and_the_host_make_the_same_bytes_of_any_image() {
    let mock = Mock::start();
    let device = mock.device();
    let sizes = prop::collection::vec([1_u32..24, 1_u32..24], 0..6);
    proptest!(ProptestConfig::with_cases(150), |((finish, column) in finishes(), sizes in sizes, seed in any::<u32>())| {
        let prepared = finish.prepare(&column).unwrap();
        let seed = u64::from(seed);
        let windows = sizes.iter().enumerate().map(|(row, size)| {
            prepared.window(row as u64 * 77 + seed, prepared.size().unwrap_or(*size)).unwrap()
        });
        let windows: Vec<_> = windows.collect();
        let lengths: Vec<_> = windows.iter().map(|window| prepared.row_bytes(window)).collect();
        let source = match prepared.size() {
            Some(size) => Source::fixed(windows.len(), size.iter().product::<u32>() as usize * prepared.channels() as usize, seed),
            None => Source::ragged(&lengths, seed),
        };
        let regions = source.regions(&device);
        let finishing = Finishing { prepared: &prepared, windows: &windows };
        let gathered = device.gather(&[source.column(&regions, Some(finishing))], &[], Box::new(())).unwrap();
        prop_assert_eq!(gathered.columns[0].to_host().unwrap(), source.finished(&prepared, &windows));
    });
}
