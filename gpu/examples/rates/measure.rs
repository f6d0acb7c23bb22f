//! Rates of routes, as ratios to the largest pinned copy of the same run.

use std::{path::Path, time::Instant};

use forebay_format::{Column as Schema, DType, Dim};
use forebay_gpu::{Column, CudaDevice, Finishing, Gathered, Options, Place, Region, Route, Rows};
use forebay_loader::finish::{Crop, Finish, Layout, Number, Prepared, Resize, Scratch, Window};

use crate::{Result, data};

/// One line of the table.
struct Case<'a> {
    name: String,
    device: &'a CudaDevice,
    bytes: usize,
    batch: usize,
    finish: Option<Prepared>,
}

pub(crate) fn run(path: &Path, gibibytes: usize) -> Result<()> {
    let started = Instant::now();
    let options = Options { device_bytes: 24 << 30, ..Options::default() };
    let device = CudaDevice::open(0, options.clone())?;
    println!("{}: opened in {:.2} s", device.name(), started.elapsed().as_secs_f64());
    let memory = data::map(path, gibibytes << 30)?;
    let started = Instant::now();
    let region = data::region(&device, &memory)?;
    let rate = memory.len() as f64 / started.elapsed().as_secs_f64() / 1e9;
    println!("registered {gibibytes} GiB at {rate:.1} GB/s; refused: {:?}", region.refused());
    let ceiling = device.link_rate(1 << 30, 7)?;
    println!("largest pinned copy: {:.2} GB/s; {:?}", ceiling / 1e9, device.stats().batch_copy);
    println!(
        "{:<44} {:>8} {:>9} {:>7} {:>10} {:>7} {:>6}",
        "case", "batch", "GB/s", "ratio", "rows/s", "cores", "right"
    );

    let forced = |route| CudaDevice::open(0, Options { route: Some(route), ..options.clone() });
    let routes = [Route::BatchCopy, Route::Kernel].map(forced);
    let mut devices = vec![("chosen".to_owned(), device)];
    for (route, device) in [Route::BatchCopy, Route::Kernel].iter().zip(routes) {
        devices.push((route.to_string(), device?));
    }
    for resident in [1, 2, 4] {
        let options = Options { route: Some(Route::Kernel), resident, ..options.clone() };
        devices.push((format!("kernel, {resident} blocks"), CudaDevice::open(0, options)?));
    }
    let mut cases = Vec::new();
    for bytes in [150_528_usize, 151_875, 65_536, 65_535, 32_768, 32_767, 24_576, 24_575, 6_144, 1_024, 1_000, 600] {
        for (route, device) in &devices {
            if (route == "batch-copy" && bytes < 24_000) || (route.ends_with("blocks") && bytes > 30_000) {
                continue;
            }
            let full = (38_535_168 / bytes).next_multiple_of(256);
            let batches = if bytes < 100_000 && route == "chosen" { vec![256, 4096, full] } else { vec![full] };
            for batch in batches {
                let name = format!("{bytes} B, {route}");
                cases.push(Case { name, device, bytes, batch, finish: None });
            }
        }
    }
    let device = &devices[0].1;
    for (name, finish) in finishes() {
        let shape = [224, 224, 3].map(Dim::Fixed);
        let finish = Some(finish.prepare(&Schema::new("image", DType::U8, shape)?)?);
        cases.push(Case { name: name.to_owned(), device, bytes: 150_528, batch: 256, finish });
    }
    cases.push(Case { name: "64 B, packed".to_owned(), device, bytes: 64, batch: 65_536, finish: None });
    for case in &cases {
        measure(case, &memory, &region, ceiling)?;
    }
    let plain = CudaDevice::open(0, Options { registered_bytes: 2 << 30, ..options })?;
    let refused = data::region(&plain, &memory)?;
    let case = Case { name: "150528 B, slab".to_owned(), device: &plain, bytes: 150_528, batch: 256, finish: None };
    measure(&case, &memory, &refused, ceiling)?;
    Ok(())
}

fn finishes() -> Vec<(&'static str, Finish)> {
    let (height, width) = (224, 224);
    let resize = Some(Resize::RandomPart { height, width, area: (0.08, 1.0), ratio: (0.75, 4.0 / 3.0) });
    let base = Finish {
        number: Number::Bf16,
        scale: vec![0.017, 0.0175, 0.0174],
        bias: vec![-2.1, -2.0, -1.8],
        mirror: 0.5,
        ..Finish::default()
    };
    vec![
        ("150528 B, to bf16, crop 192, mirror", {
            let crop = Some(Crop::Random { height: 192, width: 192 });
            Finish { crop, ..base.clone() }
        }),
        ("150528 B, to bf16, whole, mirror", base.clone()),
        ("150528 B, to bf16 planar, whole, mirror", Finish { output: Layout::Planar, ..base.clone() }),
        ("150528 B, to bf16, resized crop, mirror", Finish { resize, ..base.clone() }),
        ("150528 B, to f32 planar, resized crop, mirror", {
            Finish { resize, output: Layout::Planar, number: Number::F32, ..base }
        }),
    ]
}

/// Times two epochs, or parts of them, and then checks every byte of another.
fn measure(case: &Case<'_>, memory: &[u8], region: &Region, ceiling: f64) -> Result<()> {
    let places = data::shuffled(memory.len(), case.bytes);
    let regions = [region.clone()];
    let batches: Vec<(u64, &[Place])> = (0..).zip(places.chunks(case.batch)).collect();
    let windows = |(batch, places): (u64, &[Place])| -> Result<Vec<Window>> {
        let Some(prepared) = &case.finish else { return Ok(Vec::new()) };
        let seeds = (0..places.len() as u64).map(|row| batch * case.batch as u64 + row);
        seeds.map(|seed| Ok(prepared.window(seed, [224, 224])?)).collect()
    };
    let gather = |batch: (u64, &[Place])| -> Result<Gathered> {
        let (windows, places) = (windows(batch)?, batch.1);
        let finishing = case.finish.as_ref().map(|prepared| Finishing { prepared, windows: &windows });
        let rows = Rows::Fixed { bytes: case.bytes };
        let column = Column { name: &case.name, regions: &regions, places, rows, finishing, cached: None };
        Ok(case.device.gather(&[column], &[], Box::new(()))?)
    };
    let timed = batches.len().min((8 << 30) / (case.batch * case.bytes)).clamp(1, 20_000);
    for batch in &batches[..timed.min(8)] {
        gather(*batch)?;
    }
    case.device.synchronize()?;
    let (started, cpu) = (Instant::now(), cpu_seconds());
    for batch in &batches[..timed] {
        gather(*batch)?;
    }
    case.device.synchronize()?;
    let seconds = started.elapsed().as_secs_f64();
    let cores = (cpu_seconds() - cpu) / seconds;
    let rows: usize = batches[..timed].iter().map(|(_, places)| places.len()).sum();
    let rate = (rows * case.bytes) as f64 / seconds;

    let mut wrong = 0;
    let mut out = case.finish.as_ref().map_or(Vec::new(), |prepared| vec![0; prepared.out_row_bytes()]);
    let checked = if case.finish.is_some() { 12 } else { batches.len().min((2 << 30) / (case.batch * case.bytes)) };
    for batch in &batches[..checked.min(batches.len())] {
        let bytes = gather(*batch)?.columns[0].to_host()?;
        let each = case.finish.as_ref().map_or(case.bytes, Prepared::out_row_bytes);
        let windows = windows(*batch)?;
        for (index, (place, got)) in batch.1.iter().zip(bytes.chunks_exact(each)).enumerate() {
            let row = &memory[place.offset as usize..place.offset as usize + case.bytes];
            wrong += match &case.finish {
                None => usize::from(row != got),
                Some(prepared) => {
                    prepared.run(row, &windows[index], &mut out, &mut Scratch::default())?;
                    usize::from(out != got)
                }
            };
        }
    }
    println!(
        "{:<44} {:>8} {:>9.2} {:>7.3} {:>10.0} {:>7.2} {:>6}",
        case.name,
        case.batch,
        rate / 1e9,
        rate / ceiling,
        rows as f64 / seconds,
        cores,
        if wrong == 0 { "yes".to_owned() } else { format!("{wrong} no") }
    );
    Ok(())
}

fn cpu_seconds() -> f64 {
    // SAFETY: all zeros is a valid value of this plain struct, and the function fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}
