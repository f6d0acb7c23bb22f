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
        Self::start(repo, venv, "moto", &["moto_server", "-H", "127.0.0.1", "-p", "0"], None)
    }

    /// A fresh Google Cloud Storage of our own: `xtask/py/gcs.py`.
    pub(crate) fn google(repo: &Repo, venv: &Venv) -> Result<Self> {
        let script = repo.root.join("xtask").join("py").join("gcs.py");
        Self::start(repo, venv, "gcs", &["python", &script.display().to_string(), "0"], None)
    }

    /// A fresh Azurite, Microsoft's own server for tests, from the folder that npm installed it in.
    pub(crate) fn azurite(repo: &Repo, venv: &Venv, modules: &std::path::Path) -> Result<Self> {
        let program = modules.join("node_modules").join("azurite").join("dist/src/blob/main.js");
        let program = program.display().to_string();
        let flags = ["--blobHost", "127.0.0.1", "--blobPort", "0", "--inMemoryPersistence", "--skipApiVersionCheck"];
        let command: Vec<&str> = ["node", &program].into_iter().chain(flags).chain(["--disableTelemetry"]).collect();
        Self::start(repo, venv, "azurite", &command, None)
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
        Self::start(repo, venv, "seaweed", &command, Some(s3))
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

    /// Starts a server at a port, or at one that the system gives it and that it then names in its log.
    fn start(repo: &Repo, venv: &Venv, name: &str, command: &[&str], port: Option<u16>) -> Result<Self> {
        let log: PathBuf = repo.target.join(format!("{name}.log"));
        println!("$ {}   (log: {})", command.join(" "), repo.short(&log));
        let out = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut leash = venv.command("python");
        leash.arg(repo.root.join("xtask").join("py").join("leash.py")).args(command);
        leash.stdin(Stdio::piped()).stderr(out.try_clone()?).stdout(out);
        let leash = leash.spawn().with_context(|| format!("cannot start {name}"))?;
        let mut server = Self { leash, address: SocketAddr::from((Ipv4Addr::LOCALHOST, port.unwrap_or(0))) };
        if port.is_none() {
            server.await_port(&log).with_context(|| format!("{name} did not start; see {}", log.display()))?;
        }
        Ok(server)
    }

    /// Waits until the server has said where it listens.
    fn await_port(&mut self, log: &std::path::Path) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(port) = said_port(&std::fs::read_to_string(log)?) {
                self.address.set_port(port);
                return Ok(());
            }
            if let Some(status) = self.leash.try_wait()? {
                bail!("it ended with {status}");
            }
            if Instant::now() > until {
                bail!("it did not say where it listens");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The port in a whole line that names a URL of this machine.
fn said_port(log: &str) -> Option<u16> {
    let line = log.split_inclusive('\n').find(|line| line.ends_with('\n') && line.contains("http://127.0.0.1:"))?;
    let digits = line.split_once("http://127.0.0.1:")?.1;
    digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok().filter(|port| *port != 0)
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.leash.stdin.take());
        if let Err(error) = self.leash.wait() {
            eprintln!("warning: the server at {} may still run: {error}", self.address);
        }
    }
}

/// Free loopback ports, each below 55,536 and with its port + 10,000 free as well. The system gives them out in turn, so that
/// two tasks at once get different ones.
fn free_ports(count: usize) -> Result<Vec<u16>> {
    let (mut held, mut unfit) = (Vec::new(), Vec::new());
    for _ in 0..1000 {
        let low = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = low.local_addr()?.port();
        match port.checked_add(10_000).map(|high| TcpListener::bind((Ipv4Addr::LOCALHOST, high))) {
            Some(Ok(high)) => held.push((port, (low, high))),
            // Held on to, so that the next one is another one.
            _ => unfit.push(low),
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
    fn the_port_is_read_from_a_whole_line_of_the_log() {
        assert_eq!(said_port("starts on 127.0.0.1:0\n * Running on http://127.0.0.1:4123\n"), Some(4123));
        assert_eq!(said_port("listens on http://127.0.0.1:41/x \n"), Some(41));
        assert_eq!(said_port("listens on http://127.0.0.1:41"), None);
        assert_eq!(said_port("starts on http://127.0.0.1:0\n"), None);
    }

    #[test]
    fn free_ports_differ_and_can_be_bound() -> Result<()> {
        let ports = free_ports(3)?;
        let listeners: Vec<_> = ports.iter().map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port))).collect();
        assert!(listeners.len() == 3 && listeners.iter().all(std::result::Result::is_ok));
        Ok(())
    }
}
