//! Random rows and random finishes on the device, against the host.

use forebay_gpu::{
    Column, CudaDevice, Finishing, Options, Place, Route, Rows,
    finish::{Finish, Geometry, Layout, Number},
};

use crate::{
    Result,
    data::{self, Random},
};

pub(crate) fn run(cases: usize) -> Result<()> {
    let file = std::env::temp_dir().join(format!("forebay-check-{}", std::process::id()));
    let memory = data::map(&file, 32 << 20)?;
    std::fs::remove_file(&file)?;
    let routes = [None, Some(Route::BatchCopy), Some(Route::Kernel), Some(Route::Packed)];
    let mut devices = Vec::new();
    for route in routes {
        devices.push(CudaDevice::open(0, Options { route, ..Options::default() })?);
    }
    let mut random = Random(99);
    let mut wrong = 0;
    for case in 0..cases {
        let device = &devices[case % devices.len()];
        let regions = [data::region(device, &memory)?];
        let count = random.below(60);
        let most = [40, 700, 5000, 200_000][random.below(4)];
        let lengths: Vec<usize> = (0..count).map(|_| random.below(most)).collect();
        let ragged = random.below(2) == 1;
        let length = |row: usize| if ragged { lengths[row] } else { most };
        let mut offsets = vec![0];
        for row in 0..count {
            offsets.push(offsets[row] + length(row) as u64);
        }
        let places: Vec<_> = (0..count)
            .map(|row| Place { region: 0, offset: random.below(memory.len() - length(row) + 1) as u64 })
            .collect();
        let rows = if ragged { Rows::Ragged { offsets: &offsets } } else { Rows::Fixed { bytes: most } };
        let plain = Column { name: "plain", regions: &regions, places: &places, rows, finishing: None };

        let (finish, shape) = any_finish(&mut random);
        let prepared = finish.prepare(&shape)?;
        let bytes = prepared.row_bytes();
        let images: Vec<_> =
            (0..count).map(|_| Place { region: 0, offset: random.below(memory.len() - bytes + 1) as u64 }).collect();
        let seeds: Vec<_> = (0..count).map(|_| random.next()).collect();
        let finishing = Some(Finishing { prepared: &prepared, seeds: &seeds });
        let rows = Rows::Fixed { bytes };
        let image = Column { name: "image", regions: &regions, places: &images, rows, finishing };

        let gathered =
            device.gather(&[plain, image], &[&seeds.iter().map(|s| *s as u8).collect::<Vec<_>>()], Box::new(()))?;
        let at = |offset: u64, length: usize| &memory[offset as usize..offset as usize + length];
        let expected: Vec<u8> =
            places.iter().enumerate().flat_map(|(row, place)| at(place.offset, length(row)).iter().copied()).collect();
        let same = gathered.columns[0].to_host()? == expected;
        let mut finished = Vec::new();
        for (place, seed) in images.iter().zip(&seeds) {
            let mut out = vec![0; prepared.out_row_bytes()];
            prepared.run(at(place.offset, bytes), &prepared.window(*seed), &mut out)?;
            finished.extend_from_slice(&out);
        }
        let same_finished = gathered.columns[1].to_host()? == finished;
        if !same || !same_finished {
            wrong += 1;
            println!("case {case}: rows {same}, finish {same_finished}: {finish:?} of {shape:?}");
        }
    }
    println!("{cases} random batches, {wrong} wrong");
    if wrong > 0 { Err("wrong bytes".into()) } else { Ok(()) }
}

fn any_finish(random: &mut Random) -> (Finish, Vec<usize>) {
    let layout = |random: &mut Random| [Layout::Interleaved, Layout::Planar][random.below(2)];
    let (input, output) = (layout(random), layout(random));
    let number = [Number::U8, Number::F16, Number::Bf16, Number::F32][random.below(4)];
    let mut side = || 1 + random.below(60);
    let (height, width, a, b) = (side(), side(), side(), side());
    let channels = 1 + random.below(4);
    let mut values = || (0..channels).map(|_| (random.below(20_000) as f32 - 10_000.0) / 777.0).collect();
    let (scale, bias) = (values(), values());
    let geometry = match random.below(5) {
        0 => Geometry::Whole,
        1 => Geometry::Resize { height: a, width: b },
        2 => Geometry::CentreCrop { height: a.min(height), width: b.min(width) },
        3 => Geometry::RandomCrop { height: a.min(height), width: b.min(width) },
        _ => Geometry::RandomResizedCrop { height: a, width: b, area: (0.08, 1.0), ratio: (0.75, 4.0 / 3.0) },
    };
    let shape = match input {
        Layout::Interleaved => vec![height, width, channels],
        Layout::Planar => vec![channels, height, width],
    };
    (Finish { input, output, number, scale, bias, geometry, mirror: 0.5 }, shape)
}
