//! Random rows and random finishes on the device, against the host.

use forebay_format::{Column as Schema, DType, Dim};
use forebay_gpu::{Column, CudaDevice, Finishing, Options, Place, Route, Rows};
use forebay_loader::finish::{Crop, Finish, Interpolation, Layout, Number, Resize, Scratch};

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
        let plain = Column { name: "plain", regions: &regions, places: &places, rows, finishing: None, cached: None };

        let (finish, shape) = any_finish(&mut random)?;
        let prepared = finish.prepare(&shape)?;
        let size = prepared.size().unwrap_or_default();
        let bytes = size.iter().product::<u32>() as usize * prepared.channels() as usize;
        let images: Vec<_> =
            (0..count).map(|_| Place { region: 0, offset: random.below(memory.len() - bytes + 1) as u64 }).collect();
        let seeds: Vec<_> = (0..count).map(|_| random.next()).collect();
        let windows = seeds.iter().map(|seed| Ok(prepared.window(*seed, size)?)).collect::<Result<Vec<_>>>()?;
        let finishing = Some(Finishing { prepared: &prepared, windows: &windows });
        let rows = Rows::Fixed { bytes };
        let image = Column { name: "image", regions: &regions, places: &images, rows, finishing, cached: None };

        let gathered =
            device.gather(&[plain, image], &[&seeds.iter().map(|s| *s as u8).collect::<Vec<_>>()], Box::new(()))?;
        let at = |offset: u64, length: usize| &memory[offset as usize..offset as usize + length];
        let expected: Vec<u8> =
            places.iter().enumerate().flat_map(|(row, place)| at(place.offset, length(row)).iter().copied()).collect();
        let same = gathered.columns[0].to_host()? == expected;
        let mut finished = Vec::new();
        for (place, window) in images.iter().zip(&windows) {
            let mut out = vec![0; prepared.out_row_bytes()];
            prepared.run(at(place.offset, bytes), window, &mut out, &mut Scratch::default())?;
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

fn any_finish(random: &mut Random) -> Result<(Finish, Schema)> {
    let layout = |random: &mut Random| [Layout::Interleaved, Layout::Planar][random.below(2)];
    let (input, output) = (layout(random), layout(random));
    let number = [Number::U8, Number::F16, Number::Bf16, Number::F32][random.below(4)];
    let mut side = || 1 + random.below(60);
    let (height, width, a, b) = (side(), side(), side(), side());
    let channels = 1 + random.below(4);
    let mut values = || (0..channels).map(|_| (random.below(20_000) as f32 - 10_000.0) / 777.0).collect();
    let (scale, bias) = (values(), values());
    let (resize, resized) = match random.below(4) {
        0 => (None, [height, width]),
        1 => (Some(Resize::To { height: a, width: b }), [a, b]),
        2 => (Some(Resize::Shorter(a)), [a, a]),
        _ => {
            let (area, ratio) = ((0.08, 1.0), (0.75, 4.0 / 3.0));
            (Some(Resize::RandomPart { height: a, width: b, area, ratio }), [a, b])
        }
    };
    let [cut, narrow] = resized.map(|side| side - random.below(side));
    let crop = match random.below(3) {
        0 => None,
        1 => Some(Crop::Centre { height: cut, width: narrow }),
        _ => Some(Crop::Random { height: cut, width: narrow }),
    };
    let interpolation = [None, Some(Interpolation::Nearest)][random.below(2)];
    let shape = match input {
        Layout::Interleaved => [height, width, channels],
        Layout::Planar => [channels, height, width],
    };
    let column = Schema::new("image", DType::U8, shape.map(|length| Dim::Fixed(length as u32)))?;
    Ok((Finish { input: Some(input), output, number, scale, bias, resize, interpolation, crop, mirror: 0.5 }, column))
}
