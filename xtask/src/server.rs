//! Servers that a task starts on loopback and that end with it, whatever ends it.

use crate::repo::Repo;
use crate::venv::Venv;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A running server; it ends when this is dropped.
///
/// The server is a child of `xtask/py/leash.py`, which ends it when its own standard input closes. That happens when
/// this is dropped and also when this process dies, so that no way of stopping a task leaves a server behind.
pub(crate) struct Server {
    leash: Child,
    address: SocketAddr,
}

impl Server {
    /// A fresh moto server: an S3 with exact conditional puts, which holds everything in memory.
    pub(crate) fn moto(repo: &Repo, venv: &Venv) -> Result<Self> {
        let port = free_ports(1)?[0];
        Self::start(repo, venv, "moto", &["moto_server", "-H", "127.0.0.1", "-p", &port.to_string()], port)
    }

    /// A fresh SeaweedFS server: an S3 that is fast enough to measure a client with.
    pub(crate) fn seaweed(repo: &Repo, venv: &Venv) -> Result<Self> {
        // Each of its services listens at its port and at that port + 10,000.
        let ports = free_ports(4)?;
        let [s3, master, volume, filer] = ports[..] else { bail!("too few free ports") };
        let folder = repo.target.join("seaweed");
        if folder.exists() {
            std::fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
        }
        std::fs::create_dir_all(&folder)?;
        let flags = [
            "server".into(),
            "-ip=127.0.0.1".into(),
            "-ip.bind=127.0.0.1".into(),
            format!("-dir={}", folder.display()),
            format!("-master.port={master}"),
            format!("-volume.port={volume}"),
            "-volume.max=0".into(),
            "-master.volumeSizeLimitMB=1024".into(),
            "-filer".into(),
            format!("-filer.port={filer}"),
            "-s3".into(),
            format!("-s3.port={s3}"),
            "-s3.port.iceberg=0".into(),
            "-s3.port.lance=0".into(),
            "-master.telemetry=false".into(),
        ];
        let command: Vec<&str> = std::iter::once("weed").chain(flags.iter().map(String::as_str)).collect();
        Self::start(repo, venv, "seaweed", &command, s3)
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Makes a bucket, and by that waits until the server works: starting servers answer 5xx for a while.
    pub(crate) fn make_bucket(&mut self, bucket: &str) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            match put_bucket(self.address, bucket) {
                Ok(200) => return Ok(()),
                Ok(status) if Instant::now() > until => bail!("making the bucket {bucket} was answered with {status}"),
                Err(error) if Instant::now() > until => return Err(error).context("the server does not answer"),
                _ => std::thread::sleep(Duration::from_millis(100)),
            }
            if let Some(status) = self.leash.try_wait()? {
                bail!("the server ended with {status}");
            }
        }
    }

    fn start(repo: &Repo, venv: &Venv, name: &str, command: &[&str], port: u16) -> Result<Self> {
        let log: PathBuf = repo.target.join(format!("{name}.log"));
        println!("$ {}   (log: {})", command.join(" "), repo.short(&log));
        let out = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut leash = venv.command("python");
        leash.arg(repo.root.join("xtask").join("py").join("leash.py")).args(command);
        leash.stdin(Stdio::piped()).stderr(out.try_clone()?).stdout(out);
        let leash = leash.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { leash, address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.leash.stdin.take());
        if let Err(error) = self.leash.wait() {
            eprintln!("warning: the server at {} may still run: {error}", self.address);
        }
    }
}

/// Free loopback ports, each below 55,536 and with its port + 10,000 free as well.
fn free_ports(count: usize) -> Result<Vec<u16>> {
    let mut held = Vec::new();
    for port in 20_000..50_000_u16 {
        let pair = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .and_then(|low| Ok((low, TcpListener::bind((Ipv4Addr::LOCALHOST, port + 10_000))?)));
        if let Ok(pair) = pair {
            held.push((port, pair));
        }
        if held.len() == count {
            return Ok(held.into_iter().map(|(port, _)| port).collect());
        }
    }
    bail!("no {count} free loopback ports")
}

/// `PUT /bucket` as the access key `test`; returns the status.
fn put_bucket(address: SocketAddr, bucket: &str) -> Result<u16> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let scope = "test/20000101/us-east-1/s3/aws4_request";
    write!(
        stream,
        "PUT /{bucket} HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0\r\nconnection: close\r\n\
         authorization: AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let head = String::from_utf8_lossy(&answer);
    head.split(' ').nth(1).and_then(|code| code.parse().ok()).context("the answer is not HTTP")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ_and_can_be_bound() -> Result<()> {
        let ports = free_ports(3)?;
        let listeners: Vec<_> = ports.iter().map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port))).collect();
        assert!(listeners.len() == 3 && listeners.iter().all(std::result::Result::is_ok));
        Ok(())
    }
}
