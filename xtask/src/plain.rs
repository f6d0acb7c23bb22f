//! Plain ranged GETs: what an object-store client is measured against.
//!
//! Each of N threads keeps one connection and takes the next range when it is done with one. Nothing is checked, signed
//! or kept: a client that does all that can at best be as fast.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The server, as host:port.
    server: SocketAddr,
    /// How many GETs are in flight at once.
    #[arg(long)]
    connections: usize,
}

/// One GET, a line of standard input: `{"path": "/bucket/key", "start": 0, "end": 100}`.
#[derive(Deserialize)]
pub(crate) struct Get {
    path: String,
    start: u64,
    end: u64,
}

/// What it took, the line that is printed.
#[derive(Serialize)]
struct Outcome {
    seconds: f64,
    bytes: u64,
    requests: usize,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let lines = std::io::stdin().lines().collect::<Result<Vec<_>, _>>()?;
    let gets: Vec<Get> = lines.iter().map(|line| serde_json::from_str(line)).collect::<Result<_, _>>()?;
    println!("{}", serde_json::to_string(&fetch(args, &gets)?)?);
    Ok(ExitCode::SUCCESS)
}

fn fetch(args: &Args, gets: &[Get]) -> Result<Outcome> {
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    let bytes = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.connections).map(|_| scope.spawn(|| work(args, gets, &next))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a fetching thread ended early"))?)
            .sum::<Result<u64>>()
    })?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(Outcome { seconds, bytes, requests: gets.len() })
}

fn work(args: &Args, gets: &[Get], next: &AtomicUsize) -> Result<u64> {
    let stream = TcpStream::connect(args.server)?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(256 << 10, stream);
    let (mut body, mut bytes) = (Vec::new(), 0);
    while let Some(get) = gets.get(next.fetch_add(1, Ordering::Relaxed)) {
        bytes += one(&mut reader, args.server, get, &mut body).with_context(|| format!("GET {}", get.path))?;
    }
    Ok(bytes)
}

/// One GET over a kept connection; the body lands in a reused buffer.
fn one(reader: &mut BufReader<TcpStream>, server: SocketAddr, get: &Get, body: &mut Vec<u8>) -> Result<u64> {
    let head = format!(
        "GET {} HTTP/1.1\r\nhost: {server}\r\nrange: bytes={}-{}\r\n\r\n",
        get.path,
        get.start,
        get.end.checked_sub(1).context("an empty range")?
    );
    reader.get_mut().write_all(head.as_bytes())?;
    let mut line = String::new();
    reader.read_line(&mut line)?;
    if line.split(' ').nth(1) != Some("206") {
        bail!("answered with {}", line.trim_end());
    }
    let mut length = None;
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(value.trim().parse::<usize>()?);
        }
    }
    let length = length.context("no content-length")?;
    if length as u64 != get.end - get.start {
        bail!("{length} bytes where {} were asked for", get.end - get.start);
    }
    body.resize(length, 0);
    reader.read_exact(body)?;
    Ok(length as u64)
}
