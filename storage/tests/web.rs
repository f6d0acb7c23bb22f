//! A small web server inside the test: what it answers is a closure, what it was asked is kept.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// The path and the query, as sent.
    pub(crate) target: String,
    pub(crate) headers: HashMap<String, String>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The path without the query.
    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap()
    }

    /// The bytes asked for of an object of this length; `None` for all of it.
    pub(crate) fn range(&self, length: usize) -> Option<std::ops::Range<usize>> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        let last = last.parse().unwrap_or(usize::MAX);
        Some(first.parse().unwrap()..(last.min(length - 1) + 1))
    }
}

/// An answer. A body shorter than `length` says is cut off, and the connection is closed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) length: Option<usize>,
}

impl Answer {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, body: body.into(), ..Self::default() }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// An object or a range of it, as a good server sends it.
    pub(crate) fn object(request: &Request, bytes: &[u8]) -> Self {
        let answer = |status, body: &[u8]| {
            Self::new(status, body).with("last-modified", "Sat, 28 Nov 2026 10:00:00 GMT").with("etag", "\"1\"")
        };
        match request.header("range").map(|_| request.range(bytes.len())) {
            None => answer(200, bytes),
            Some(Some(range)) if range.start < bytes.len() => {
                let content = format!("bytes {}-{}/{}", range.start, range.end - 1, bytes.len());
                answer(206, &bytes[range]).with("content-range", content)
            }
            Some(_) => Self::new(416, ""),
        }
    }
}

/// A server that runs until the test's process ends.
pub(crate) struct Web {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Web {
    pub(crate) fn new(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (seen, answer) = (Arc::<Mutex<Vec<Request>>>::default(), Arc::new(answer));
        let requests = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, requests, answer) = (stream.unwrap(), requests.clone(), answer.clone());
                std::thread::spawn(move || serve(stream, &requests, &*answer));
            }
        });
        Self { url, seen }
    }

    /// Everything asked so far.
    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, seen: &Mutex<Vec<Request>>, answer: &(dyn Fn(&Request) -> Answer + Send + Sync)) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some(request) = read(&mut reader) {
        seen.lock().unwrap().push(request.clone());
        let answer = answer(&request);
        let length = answer.length.unwrap_or(answer.body.len());
        let mut head = format!("HTTP/1.1 {} X\r\ncontent-length: {length}\r\n", answer.status);
        answer.headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        let mut out = &stream;
        let sent = out
            .write_all(format!("{head}\r\n").as_bytes())
            .and_then(|()| if request.method == "HEAD" { Ok(()) } else { out.write_all(&answer.body) });
        if sent.is_err() || answer.body.len() < length {
            return;
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    reader.read_exact(&mut vec![0; length]).ok()?;
    Some(Request { method, target, headers })
}
