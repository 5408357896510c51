//! A mock web server with files of any size, ranges, directory listings, entity tags and injected
//! faults.
//!
//! The server creates the bytes of large files on the fly. It records its requests and counts the
//! bytes that it sends.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// HTTP method: `GET`, `HEAD`, …
    pub(crate) method: String,
    /// Path and query string.
    pub(crate) path: String,
    /// Headers by their lower-case names.
    pub(crate) headers: BTreeMap<String, String>,
}

/// The contents of a file: some bytes, then zeros up to its size.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    pub(crate) head: Vec<u8>,
    pub(crate) size: u64,
    pub(crate) tag: String,
}

/// A response.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Body,
}

/// The body of a response.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Part of a file: offset and number of bytes.
    Part(Content, u64, u64),
    /// These bytes, then silence until the test ends.
    Stall(Vec<u8>),
    /// Endless zeros.
    Endless,
}

type Answer = dyn Fn(&Asked) -> Told + Send + Sync;

/// A running server. Dropping it stops it.
pub(crate) struct Web {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    asked: Mutex<Vec<Asked>>,
    sent: AtomicU64,
    over: AtomicBool,
    answer: Box<Answer>,
}

impl Content {
    pub(crate) fn of(bytes: impl AsRef<[u8]>) -> Self {
        let head = bytes.as_ref().to_vec();
        let size = head.len() as u64;
        let sum = head.iter().fold(size, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
        });
        let tag = format!("\"{sum:x}\"");
        Self { head, size, tag }
    }

    /// Returns the same bytes, extended with zeros to this size.
    pub(crate) fn sized(mut self, size: u64) -> Self {
        self.size = size;
        self
    }

    fn fill(&self, from: u64, buffer: &mut [u8]) {
        buffer.fill(0);
        if let Some(rest) = usize::try_from(from)
            .ok()
            .and_then(|from| self.head.get(from..))
        {
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
        }
    }

    /// Returns the response of a well-behaved server: the requested range, or the whole file.
    pub(crate) fn told(&self, asked: &Asked) -> Told {
        let headers = vec![
            ("ETag".to_owned(), self.tag.clone()),
            ("Accept-Ranges".to_owned(), "bytes".to_owned()),
        ];
        let is_same = asked
            .headers
            .get("if-range")
            .is_none_or(|tag| *tag == self.tag);
        let Some((from, to)) = asked.range().filter(|_| is_same) else {
            return Told {
                status: 200,
                headers,
                body: Body::Part(self.clone(), 0, self.size),
            };
        };
        if from >= self.size {
            return Told::new(416, "").with("Content-Range", &format!("bytes */{}", self.size));
        }
        let to = to.unwrap_or(u64::MAX).min(self.size - 1);
        let told = Told {
            status: 206,
            headers,
            body: Body::Part(self.clone(), from, to - from + 1),
        };
        told.with("Content-Range", &format!("bytes {from}-{to}/{}", self.size))
    }
}

impl Asked {
    /// Returns the first and the last requested byte.
    pub(crate) fn range(&self) -> Option<(u64, Option<u64>)> {
        let (from, to) = self
            .headers
            .get("range")?
            .strip_prefix("bytes=")?
            .split_once('-')?;
        Some((from.parse().ok()?, to.parse().ok()))
    }
}

impl Told {
    pub(crate) fn new(status: u16, body: impl AsRef<[u8]>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Body::Bytes(body.as_ref().to_vec()),
        }
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

impl Web {
    /// Starts a server that answers with the result of a function.
    pub(crate) fn start(answer: impl Fn(&Asked) -> Told + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            asked: Mutex::default(),
            sent: AtomicU64::new(0),
            over: AtomicBool::new(false),
            answer: Box::new(answer),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if serving.over.load(Ordering::SeqCst) {
                    return;
                }
                let serving = Arc::clone(&serving);
                thread::spawn(move || serving.serve(stream));
            }
        });
        Self { address, shared }
    }

    /// Starts a server for files by their paths, without directory listings.
    pub(crate) fn of(files: BTreeMap<String, Content>) -> Self {
        Self::start(move |asked| site(&files, asked))
    }

    /// Returns the URL of a path on this server.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the requests received so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.shared
            .asked
            .lock()
            .expect("the lock is not poisoned")
            .clone()
    }

    /// Number of body bytes sent so far.
    pub(crate) fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::SeqCst)
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) {
        let Some(asked) = read_request(&stream) else {
            return;
        };
        self.asked
            .lock()
            .expect("the lock is not poisoned")
            .push(asked.clone());
        let told = (self.answer)(&asked);
        // A client may disconnect as soon as it has enough.
        let _ = self.write(&mut stream, &asked, &told);
    }

    fn write(&self, stream: &mut TcpStream, asked: &Asked, told: &Told) -> std::io::Result<()> {
        let mut head = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", told.status);
        let has = |name: &str| {
            told.headers
                .iter()
                .any(|(known, _)| known.eq_ignore_ascii_case(name))
        };
        let length = match &told.body {
            Body::Bytes(bytes) => Some(bytes.len() as u64),
            Body::Part(_, _, count) => Some(*count),
            Body::Stall(_) | Body::Endless => None,
        };
        if let Some(length) = length.filter(|_| !has("content-length") && !has("transfer-encoding"))
        {
            let _ = write!(head, "Content-Length: {length}\r\n");
        }
        for (name, value) in &told.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        stream.write_all(format!("{head}\r\n").as_bytes())?;
        if asked.method == "HEAD" {
            return Ok(());
        }
        match &told.body {
            Body::Bytes(bytes) => self.send(stream, bytes),
            Body::Part(content, from, count) => {
                let (mut at, end) = (*from, from + count);
                let mut buffer = vec![0; 64 << 10];
                while at < end {
                    let count = usize::try_from(end - at)
                        .unwrap_or(usize::MAX)
                        .min(buffer.len());
                    content.fill(at, &mut buffer[..count]);
                    self.send(stream, &buffer[..count])?;
                    at += count as u64;
                }
                Ok(())
            }
            Body::Stall(bytes) => {
                self.send(stream, bytes)?;
                while !self.over.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(20));
                }
                Ok(())
            }
            Body::Endless => loop {
                self.send(stream, &[0; 16 << 10])?;
            },
        }
    }

    fn send(&self, stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<()> {
        stream.write_all(bytes)?;
        self.sent.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        Ok(())
    }
}

/// Returns the response of a server that does not support ranges: always the whole file.
pub(crate) fn without_ranges(mut asked: Asked, answer: impl Fn(&Asked) -> Told) -> Told {
    asked.headers.remove("range");
    let mut told = answer(&asked);
    told.headers.retain(|(name, _)| name != "Accept-Ranges");
    told
}

/// Returns the response of a well-behaved server with these files.
pub(crate) fn site(files: &BTreeMap<String, Content>, asked: &Asked) -> Told {
    let path = asked.path.split('?').next().unwrap_or_default();
    files
        .get(path)
        .map_or_else(|| Told::new(404, "no"), |content| content.told(asked))
}

/// The same, with a listing of each directory in the style of Apache and nginx.
pub(crate) fn listing_site(files: &BTreeMap<String, Content>, asked: &Asked) -> Told {
    let path = asked.path.split('?').next().unwrap_or_default();
    if !path.ends_with('/') || !files.keys().any(|file| file.starts_with(path)) {
        return site(files, asked);
    }
    let mut names: Vec<&str> = files
        .keys()
        .filter_map(|file| file.strip_prefix(path)?.split_inclusive('/').next())
        .collect();
    names.dedup();
    let links: String = names.iter().fold(String::new(), |mut links, name| {
        let _ = writeln!(links, "<a href=\"{name}\">{name}</a>");
        links
    });
    let page = format!(
        "<html><title>Index of {path}</title><a href=\"../\">../</a><a href=\"?C=N\">Name</a>{links}"
    );
    Told::new(200, page).with("Content-Type", "text/html")
}

fn read_request(stream: &TcpStream) -> Option<Asked> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            return Some(Asked {
                method,
                path,
                headers,
            });
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
}
