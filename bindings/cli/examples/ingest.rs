//! How fast `forebay create` takes a folder of JPEG files, beside the decoder's own loop over the same files.
//!
//! ```sh
//! cargo run --release -p forebay-cli --example ingest -- FOLDER [THREADS] [ROUNDS]
//! ```
//!
//! Three things take turns, and the medians count: reading and decoding alone, that with resizing and cropping, and the
//! whole command with its durable commit. Each runs on the same number of threads. The lake is made in a temporary
//! folder, or below `$TMPDIR`.
#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Instant,
};

use fast_image_resize::{
    FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer,
    images::{Image, ImageRef},
};
use forebay_jpeg::{Jpeg, Part};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// As its first argument this makes the program the command itself, so that it runs in a process of its own.
const COMMAND: &str = "forebay";

fn main() -> Result<(), Failure> {
    if std::env::args_os().nth(1).is_some_and(|first| first == COMMAND) {
        std::process::exit(forebay_cli::run(std::env::args_os().skip(1)));
    }
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(args.next().ok_or("usage: ingest FOLDER [THREADS] [ROUNDS]")?);
    let threads = args.next().map_or(Ok(2), |text| text.parse())?;
    let rounds = args.next().map_or(Ok(5), |text| text.parse())?;
    let files: Vec<PathBuf> = walkdir::WalkDir::new(&folder)
        .into_iter()
        .filter_map(Result::ok)
        .map(walkdir::DirEntry::into_path)
        .filter(|path| path.extension().is_some_and(|ending| ending == "jpg"))
        .collect();
    if files.is_empty() {
        return Err("no .jpg in the folder".into());
    }
    let mut seconds = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        seconds[0].push(time(|| on_threads(&files, threads, |path| decode(path).map(drop)))?);
        seconds[1].push(time(|| on_threads(&files, threads, |path| resize(&decode(path)?)))?);
        seconds[2].push(time(|| create(&folder, threads))?);
    }
    let rate = seconds.map(|mut seconds| {
        seconds.sort_by(f64::total_cmp);
        files.len() as f64 / seconds[seconds.len() / 2]
    });
    println!("{} images on {threads} threads, medians of {rounds} rounds, images/s", files.len());
    println!("{:>8.0}  read and decode", rate[0]);
    println!("{:>8.0}  read, decode, resize and crop", rate[1]);
    println!("{:>8.0}  forebay create", rate[2]);
    println!("ratio to decoding {:.3}, to decoding and resizing {:.3}", rate[2] / rate[0], rate[2] / rate[1]);
    Ok(())
}

fn time(work: impl FnOnce() -> Result<(), Failure>) -> Result<f64, Failure> {
    let started = Instant::now();
    work()?;
    Ok(started.elapsed().as_secs_f64())
}

fn create(folder: &Path, threads: usize) -> Result<(), Failure> {
    let target = tempfile::tempdir()?;
    let status = Command::new(std::env::current_exe()?)
        .args([COMMAND, "create"])
        .arg(target.path().join("lake"))
        .arg("--from")
        .arg(folder)
        .args(["--threads", &threads.to_string()])
        .stdout(Stdio::null())
        .status()?;
    if status.success() { Ok(()) } else { Err(format!("forebay create ended with {status}").into()) }
}

fn on_threads(
    files: &[PathBuf],
    threads: usize,
    work: impl Fn(&Path) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                        work(path)?;
                    }
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a thread panicked")?)
    })
}

struct Pixels {
    width: u32,
    height: u32,
    rgb: Vec<u8>,
}

fn decode(path: &Path) -> Result<Pixels, Failure> {
    let bytes = std::fs::read(path)?;
    let jpeg = Jpeg::open(&bytes)?;
    let [height, width] = jpeg.size();
    let whole = Part::whole([height, width], 1);
    let mut rgb = vec![0; whole.bytes(forebay_jpeg::Pixels::Rgb)];
    jpeg.decode(forebay_jpeg::Pixels::Rgb, &whole, &mut rgb, whole.row_bytes(forebay_jpeg::Pixels::Rgb))?;
    Ok(Pixels { width, height, rgb })
}

fn resize(image: &Pixels) -> Result<(), Failure> {
    let (width, height) = (image.width, image.height);
    let short = width.min(height);
    let size = (256 * width / short, 256 * height / short);
    let source = ImageRef::new(width, height, &image.rgb, PixelType::U8x3)?;
    let mut resized = Image::new(size.0, size.1, PixelType::U8x3);
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
    Resizer::new().resize(&source, &mut resized, &options)?;
    let pixels = resized.buffer();
    let (left, top) = ((size.0 - 224) as usize / 2, (size.1 - 224) as usize / 2);
    let mut planes: Vec<u8> = Vec::with_capacity(3 * 224 * 224);
    for channel in 0..3 {
        for row in top..top + 224 {
            let start = 3 * (row * size.0 as usize + left) + channel;
            planes.extend(pixels[start..start + 3 * 223 + 1].iter().step_by(3));
        }
    }
    std::hint::black_box(planes);
    Ok(())
}
