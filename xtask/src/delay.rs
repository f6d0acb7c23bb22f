//! A loopback proxy that adds a delay to each HTTP request, as the way to a distant object store does.
//!
//! A request begins with the first bytes from the client after bytes of a response; it is held back once, then both
//! directions are copied as they come. Each GET that passes is noted, so that a bench can tell what was fetched.

use anyhow::Result;
use serde::Serialize;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A request that passed: when it was forwarded is its place in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Request {
    method: String,
    path: String,
    /// The value of the `range` header, as sent.
    range: Option<String>,
}

/// A running proxy; it serves until the process ends.
pub(crate) struct Proxy {
    address: SocketAddr,
    control: SocketAddr,
}

#[derive(Default)]
struct Log {
    requests: Mutex<Vec<Request>>,
    /// Bytes of responses, heads included.
    bytes: AtomicU64,
    /// Connections that are open now, and the most that were open at once.
    open: AtomicUsize,
    most: AtomicUsize,
}

impl Proxy {
    /// Starts to listen on two free loopback ports: one for requests to `upstream`, one for [`Self::control`].
    pub(crate) fn start(upstream: SocketAddr, delay: Duration) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let control = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let proxy = Self { address: listener.local_addr()?, control: control.local_addr()? };
        let log = Arc::new(Log::default());
        let controlled = Arc::clone(&log);
        thread::spawn(move || control.incoming().flatten().for_each(|stream| report(stream, &controlled)));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let log = Arc::clone(&log);
                thread::spawn(move || {
                    let open = log.open.fetch_add(1, Ordering::Relaxed) + 1;
                    log.most.fetch_max(open, Ordering::Relaxed);
                    // A connection that breaks is for its client to notice.
                    drop(serve(&client, upstream, delay, &log));
                    log.open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Ok(proxy)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where a connection is answered with one JSON object, `{"requests": [...], "bytes": N, "connections": N}`: what
    /// passed since the last time that somebody asked, and the most connections that were open at once.
    pub(crate) fn control(&self) -> SocketAddr {
        self.control
    }
}

fn report(mut stream: TcpStream, log: &Log) {
    #[derive(Serialize)]
    struct Report {
        requests: Vec<Request>,
        bytes: u64,
        connections: usize,
    }
    let requests = log.requests.lock().map(|mut requests| std::mem::take(&mut *requests)).unwrap_or_default();
    let connections = log.most.swap(log.open.load(Ordering::Relaxed), Ordering::Relaxed);
    let report = Report { requests, bytes: log.bytes.swap(0, Ordering::Relaxed), connections };
    if let Ok(text) = serde_json::to_vec(&report) {
        // Whoever asked may have gone; there is nobody else to tell.
        drop(stream.write_all(&text));
    }
}

fn serve(client: &TcpStream, upstream: SocketAddr, delay: Duration, log: &Arc<Log>) -> std::io::Result<()> {
    let server = TcpStream::connect(upstream)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let answered = Arc::new(AtomicBool::new(true));
    let back = {
        let (from, to, answered, log) =
            (server.try_clone()?, client.try_clone()?, Arc::clone(&answered), Arc::clone(log));
        thread::spawn(move || answer(&from, &to, &answered, &log))
    };
    let mut buffer = vec![0; 64 << 10];
    let mut ask = || -> std::io::Result<()> {
        loop {
            let count = (&mut &*client).read(&mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            if answered.swap(false, Ordering::AcqRel) {
                thread::sleep(delay);
                if let (Some(request), Ok(mut requests)) = (parse(&buffer[..count]), log.requests.lock()) {
                    requests.push(request);
                }
            }
            (&mut &server).write_all(&buffer[..count])?;
        }
    };
    let asked = ask();
    drop(server.shutdown(Shutdown::Both));
    drop(back.join());
    asked
}

/// Copies responses back until either side ends.
fn answer(mut from: &TcpStream, mut to: &TcpStream, answered: &AtomicBool, log: &Log) {
    let mut buffer = vec![0; 256 << 10];
    while let Ok(count) = from.read(&mut buffer) {
        answered.store(true, Ordering::Release);
        log.bytes.fetch_add(count as u64, Ordering::Relaxed);
        if count == 0 || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Both));
}

/// The request that these bytes begin with, if its head is whole.
fn parse(bytes: &[u8]) -> Option<Request> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_string(), first.next()?.to_string());
    let range = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("range"))
        .map(|(_, value)| value.trim().to_string());
    Some(Request { method, path, range })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_request_is_understood_when_its_head_is_whole() {
        let whole = b"GET /b/k HTTP/1.1\r\nHost: x\r\nRange: bytes=1-2\r\n\r\n";
        let request = Request { method: "GET".into(), path: "/b/k".into(), range: Some("bytes=1-2".into()) };
        assert_eq!(parse(whole), Some(request));
        assert_eq!(parse(&whole[..20]), None);
    }

    #[test]
    fn each_request_of_a_kept_connection_is_delayed_once_and_noted() -> Result<()> {
        let upstream = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = upstream.local_addr()?;
        thread::spawn(move || {
            let (mut stream, _) = upstream.accept()?;
            let mut bytes = [0; 1024];
            while stream.read(&mut bytes)? > 0 {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
            }
            std::io::Result::Ok(())
        });
        let delay = Duration::from_millis(30);
        let proxy = Proxy::start(address, delay)?;
        let mut client = TcpStream::connect(proxy.address)?;
        let start = Instant::now();
        for _ in 0..3 {
            client.write_all(b"GET /x HTTP/1.1\r\n\r\n")?;
            assert!(client.read(&mut [0; 1024])? > 0);
        }
        assert!(start.elapsed() >= delay * 3);
        let mut report = String::new();
        TcpStream::connect(proxy.control())?.read_to_string(&mut report)?;
        assert_eq!(report.matches("\"/x\"").count(), 3, "{report}");
        assert!(report.contains("\"connections\":1"), "{report}");
        Ok(())
    }
}
