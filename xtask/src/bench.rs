//! `cargo xtask bench NAME`: starts what a bench needs and runs it. The benches are `xtask/bench/*.py`.

use crate::delay::Proxy;
use crate::repo::Repo;
use crate::server::Server;
use crate::venv::{Set, Venv};
use crate::{gpu, shell, wheel};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// The exit status of a bench that cannot run here; it says why.
const CANNOT_RUN: u8 = 2;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which bench.
    name: Name,
    /// Print one JSON object a line instead of a table.
    #[arg(long)]
    json: bool,
    /// Measure the package that is installed in target/venv instead of building it.
    #[arg(long)]
    installed: bool,
    /// Work on this many rows instead of the bench's own number, for a quick look.
    #[arg(long)]
    rows: Option<usize>,
    /// Milliseconds that are added to each request to an S3 server.
    #[arg(long, default_value_t = 20)]
    delay: u64,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Name {
    /// Local disk, page cache warm: epochs, ingest, single rows, import.
    Local,
    /// An S3 server on loopback behind 20 ms a request: first batch, epoch.
    S3,
    /// Commits, branches, merges and diffs of a table of a million rows on local disk; requests and bytes at up to a million
    /// fragments; 16 writers.
    Versions,
    /// How well epochs are mixed: distinct classes in batches of class-sorted data, beside a uniform permutation.
    Order,
    /// What epochs cost: bytes fetched beside those delivered, memory beside the budget, decoding beside libjpeg-turbo.
    Loader,
    /// SQL beside DuckDB, Lance and Deep Lake: filters, groups, joins, vectors; from SQL to a first batch on S3.
    Query,
    /// Batches in a GPU's memory. Also builds a folder that measures on another machine, without cargo.
    Gpu,
}

pub(crate) fn run(repo: &Repo, args: &Args) -> Result<ExitCode> {
    let ready = ready(repo, args);
    let (mut bench, _servers) = match ready {
        Ok(ready) => ready,
        Err(error) => {
            eprintln!("this bench cannot run here: {error:#}");
            return Ok(ExitCode::from(CANNOT_RUN));
        }
    };
    let status = bench.status().context("cannot start the bench")?;
    match status.code() {
        Some(0) => Ok(ExitCode::SUCCESS),
        Some(2) => Ok(ExitCode::from(CANNOT_RUN)),
        _ => bail!("the bench ended with {status}"),
    }
}

/// The command of a bench, and the servers that must live while it runs.
fn ready(repo: &Repo, args: &Args) -> Result<(Command, Option<Server>)> {
    let venv = Venv::with(repo, &[Set::Demo, Set::Bench])?;
    let wheel = match args.name {
        // It measures the crate, without Python.
        Name::Order => PathBuf::new(),
        _ if args.installed => wheel::built(repo)?,
        _ => wheel::install(repo, &venv)?,
    };
    if matches!(args.name, Name::Query) {
        Venv::with(repo, &[Set::Test])?;
        if !args.installed {
            wheel::install_sql(repo, &venv)?;
        }
    }
    let script = match args.name {
        Name::Local => "local.py",
        Name::S3 => "s3.py",
        Name::Versions => "versions.py",
        Name::Query => "query.py",
        Name::Gpu => return Ok((gpu_bench(repo, args, &wheel)?, None)),
        Name::Order | Name::Loader => "example.py",
    };
    let mut bench = venv.command("python");
    bench.arg(repo.root.join("xtask").join("bench").join(script));
    let modules = ["py", "demo"].map(|folder| repo.root.join("xtask").join(folder));
    bench.env("PYTHONPATH", std::env::join_paths(modules)?);
    bench.arg("--folder").arg(repo.target.join("bench"));
    if args.json {
        bench.arg("--json");
    }
    if let Some(rows) = args.rows {
        bench.args(["--rows", &rows.to_string()]);
    }
    // libgomp's busy waiting would take the cores from what is measured.
    bench.env("OMP_WAIT_POLICY", "passive").env("FOREBAY_BENCH_WHEEL", wheel);
    let server = match args.name {
        Name::Order => {
            bench
                .env("FOREBAY_BENCH_NAME", "order")
                .env("FOREBAY_BENCH_PROGRAM", example(repo, "forebay-loader", "order_quality")?);
            None
        }
        Name::Loader => {
            bench
                .env("FOREBAY_BENCH_NAME", "loader")
                .env("FOREBAY_BENCH_PROGRAM", example(repo, "forebay-loader", "loader_costs")?);
            None
        }
        Name::Versions => {
            bench.env("FOREBAY_BENCH_COSTS", costs(repo, args)?);
            None
        }
        Name::Local | Name::Gpu => None,
        Name::S3 | Name::Query => {
            let mut server = Server::seaweed(repo, &venv)?;
            server.make_bucket("bench")?;
            let proxy = Proxy::start(server.address(), Duration::from_millis(args.delay))?;
            bench.env("FOREBAY_BENCH_S3", server.url()).env("FOREBAY_BENCH_S3_DELAYED", proxy.url());
            bench.env("FOREBAY_BENCH_S3_CONTROL", proxy.control().to_string());
            bench.env("FOREBAY_BENCH_DELAY_MS", args.delay.to_string());
            bench.env("FOREBAY_XTASK", std::env::current_exe()?);
            if matches!(args.name, Name::S3) {
                bench.env("FOREBAY_BENCH_GETS", example(repo, "forebay-storage", "plain_gets")?);
            }
            Some(server)
        }
    };
    Ok((bench, server))
}

/// Runs the tests that count what commits and opens cost, at full length unless the bench is to be quick; gives what they
/// printed, one JSON object a line.
fn costs(repo: &Repo, args: &Args) -> Result<String> {
    let mut tests = shell::cargo(repo);
    tests.args(["test", "--release", "--quiet", "-p", "forebay-versioning", "--lib", "scale"]);
    tests.args(["--", "--nocapture", "--test-threads", "1"]);
    if args.rows.is_none() {
        tests.env("FOREBAY_LONG", "1");
    }
    let printed = shell::output(&mut tests)?;
    // The name of a test stands before the first line that it prints.
    Ok(printed.lines().filter_map(|line| Some(format!("{}\n", &line[line.find('{')?..]))).collect())
}

/// Builds a program among the examples of a crate.
fn example(repo: &Repo, of: &str, name: &str) -> Result<PathBuf> {
    shell::run(shell::cargo(repo).args(["build", "--release", "--quiet", "-p", of, "--example", name]))?;
    Ok(repo.target.join("release").join("examples").join(name))
}

/// The bench for GPUs, whose folder is built whether or not it can run here.
fn gpu_bench(repo: &Repo, args: &Args, wheel: &Path) -> Result<Command> {
    let folder = gpu::folder(repo, wheel)?;
    println!("built {}: copy it to a machine with a GPU and run `python3 bench.py` in it", repo.short(&folder));
    let mut bench = Command::new(gpu::python()?);
    bench.arg(folder.join("bench.py")).arg("--folder").arg(repo.target.join("bench").join("gpu"));
    if args.json {
        bench.arg("--json");
    }
    if let Some(rows) = args.rows {
        bench.args(["--gib", &format!("{}", rows as f64 * 150_528.0 / f64::from(1 << 30))]);
    }
    Ok(bench)
}
