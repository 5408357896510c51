//! A file on a server, read by ranges.
//!
//! Invariant: every answer is held against what was asked for and against what was said before: the
//! range, the file's size, its tag. What was fetched is kept until the run ends, so the bytes of a file
//! that may be fetched bound the memory, too.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::Url;

use super::RemoteError;
use super::web::{Answer, Ask, Web, plain};
use crate::source::ReadAt;

/// Bytes of the first request: most headers are in them.
const FIRST: u64 = 64 << 10;
/// Bytes of a request somewhere else: one record of a table.
const LEAP: u64 = 8 << 10;
/// Bytes of a request at most; where reading goes on, each is twice the one before.
const LONGEST: u64 = 256 << 10;
/// What requests begin at.
const PAGE: u64 = 4 << 10;
/// Bytes of a file whose size nobody tells.
const UNTOLD: u64 = 1 << 20;

/// A file on a server.
pub(super) struct RangedFile {
    web: Arc<Web>,
    url: Url,
    size: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What was fetched, by offset; nothing twice.
    held: BTreeMap<u64, Arc<[u8]>>,
    bytes: u64,
    mark: Option<String>,
    /// Where redirects led the first time.
    direct: Option<Url>,
    last_end: u64,
    last_size: u64,
    /// Why nothing more is asked.
    broken: Option<RemoteError>,
}

/// What is fetched of a file while it is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// Its beginning, which will be read.
    Beginning,
    /// Nothing: its size is all that is needed.
    Size,
}

/// What one answer brought.
struct Brought {
    from: u64,
    bytes: Vec<u8>,
    /// The file's size; a server may leave it out (`bytes 0-9/*`).
    size: Option<u64>,
    mark: Option<String>,
    url: Url,
    whole: bool,
}

impl RangedFile {
    /// A file of a size that a listing gives.
    pub(super) fn listed(web: Arc<Web>, url: Url, size: u64) -> Self {
        Self {
            web,
            url,
            size,
            state: Mutex::default(),
        }
    }

    /// Looks whether a file is there, and how large it is; its beginning is fetched by the way if it is
    /// to be read.
    pub(super) fn find(web: &Arc<Web>, url: &Url, look: Look) -> Result<Option<Self>, RemoteError> {
        // A range of one byte is told with the size of the whole.
        let (count, whole) = match look {
            Look::Beginning => (FIRST, web.limits.whole_bytes),
            Look::Size => (1, 0),
        };
        let ask = Ask::part(0, count - 1);
        let answer = web.get(url, &ask)?;
        if matches!(answer.status, 404 | 410) {
            return Ok(None);
        }
        let mut brought = Brought::read(answer, 0, count, None, whole)?;
        let size = match brought.size {
            Some(size) => size,
            None => told_size(web, url)?,
        };
        if look == Look::Size {
            // One byte is not worth to be kept: the next question begins where this one did.
            brought.bytes.clear();
        }
        let file = Self::listed(Arc::clone(web), url.clone(), size);
        file.state().take(brought);
        Ok(Some(file))
    }

    /// Its size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// What the server said that changes when the file does, as far as it was asked.
    pub(super) fn mark(&self) -> Option<String> {
        self.state().mark.clone()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), RemoteError> {
        // One request of a file at a time: the next one may be answered by what this one brings.
        let mut state = self.state();
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            if let Some((start, bytes)) = state.covering(at) {
                let within = usize::try_from(at - start).unwrap_or(usize::MAX);
                let count = (bytes.len() - within).min(buffer.len() - done);
                buffer[done..done + count].copy_from_slice(&bytes[within..within + count]);
                done += count;
                continue;
            }
            if let Some(error) = &state.broken {
                return Err(error.clone());
            }
            if let Err(error) = self.fetch(&mut state, at) {
                state.broken = Some(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }

    fn fetch(&self, state: &mut State, at: u64) -> Result<(), RemoteError> {
        let (from, to) = state.next_range(at, self.size);
        let most = self.web.limits.file_bytes;
        if state.bytes + (to - from) > most {
            return Err(RemoteError::Budget {
                url: plain(&self.url),
                most: format!("{most} bytes of this file"),
            });
        }
        let ask = Ask::part(from, to - 1);
        let whole = self.web.limits.whole_bytes;
        let mut answer = self
            .web
            .get(state.direct.as_ref().unwrap_or(&self.url), &ask)?;
        // Where a redirect led may be good for a while only.
        if state.direct.is_some() && matches!(answer.status, 400 | 401 | 403 | 404 | 410) {
            state.direct = None;
            answer = self.web.get(&self.url, &ask)?;
        }
        let brought = match Brought::read(answer, from, to - from, Some(self.size), whole) {
            Err(error) if error.is_passing() => {
                let answer = self.web.get(&self.url, &ask)?;
                Brought::read(answer, from, to - from, Some(self.size), whole)?
            }
            brought => brought?,
        };
        let known = state.mark.is_some() && brought.mark.is_some();
        if known && state.mark != brought.mark {
            return Err(RemoteError::Changed {
                url: plain(&self.url),
            });
        }
        if let Some(size) = brought.size.filter(|size| *size != self.size) {
            return Err(RemoteError::lie(
                &plain(&self.url),
                format!("it said {} bytes, now {size}", self.size),
            ));
        }
        let end = brought.from + brought.bytes.len() as u64;
        if brought.whole && (at < brought.from || at >= end) {
            return Err(RemoteError::NoRanges {
                url: plain(&self.url),
                size: self.size,
                most: whole,
            });
        }
        state.take(brought);
        Ok(())
    }
}

impl State {
    fn covering(&self, at: u64) -> Option<(u64, Arc<[u8]>)> {
        let (start, bytes) = self.held.range(..=at).next_back()?;
        (at < start + bytes.len() as u64).then(|| (*start, Arc::clone(bytes)))
    }

    /// First byte and the one after the last, around `at`, which is not held.
    fn next_range(&self, at: u64, size: u64) -> (u64, u64) {
        let aligned = at - at % PAGE;
        let before = self.held.range(..=at).next_back();
        let from = before.map_or(aligned, |(start, bytes)| {
            aligned.max(start + bytes.len() as u64)
        });
        let goes_on = !self.held.is_empty() && from == self.last_end;
        let length = match (self.held.is_empty(), goes_on) {
            (true, _) => FIRST,
            (_, true) => (self.last_size * 2).clamp(LEAP, LONGEST),
            (_, false) => LEAP,
        };
        let after = self.held.range(from..).next().map(|(start, _)| *start);
        let to = (from + length).min(size).min(after.unwrap_or(u64::MAX));
        (from, to.max(at + 1))
    }

    fn take(&mut self, brought: Brought) {
        let length = brought.bytes.len() as u64;
        self.bytes += length;
        self.last_end = brought.from + length;
        self.last_size = length;
        self.direct.get_or_insert(brought.url);
        self.mark = self.mark.take().or(brought.mark);
        if length > 0 {
            if brought.whole {
                // It begins at 0 and holds all that was held.
                self.held.clear();
            }
            self.held.insert(brought.from, brought.bytes.into());
        }
    }
}

impl Brought {
    /// Reads the answer to a question for `count` bytes from `from`; of a whole file so many at most.
    fn read(
        mut answer: Answer<'_>,
        from: u64,
        count: u64,
        size: Option<u64>,
        most: u64,
    ) -> Result<Self, RemoteError> {
        let url = answer.url.clone();
        let lie = |reason: String| Err(RemoteError::lie(&plain(&url), reason));
        let (start, wanted, size, whole) = match answer.status {
            206 => {
                let said = answer.header("content-range").unwrap_or_default();
                let Some((first, last, total)) = content_range(&said) else {
                    return lie(format!("asked for a range, its Content-Range is `{said}`"));
                };
                if first != from
                    || last < first
                    || last - first >= count
                    || total.is_some_and(|total| last >= total)
                {
                    return lie(format!(
                        "asked for bytes {from} to {}, it sends {said}",
                        from + count - 1
                    ));
                }
                (first, last - first + 1, total.or(size), false)
            }
            200 => {
                let Some(size) = answer.length().or(size) else {
                    return Self::read_untold(answer);
                };
                (0, size.min(most), Some(size), true)
            }
            // No range of an empty file can be had.
            416 if answer.header("content-range").as_deref() == Some("bytes */0") => {
                (0, 0, Some(0), true)
            }
            416 => {
                return lie(
                    "it refuses a range inside the file: the file is shorter than it said"
                        .to_owned(),
                );
            }
            _ => return Err(answer.refused()),
        };
        let mark = answer.mark();
        let bytes = take_bytes(&mut answer, wanted)?;
        if bytes.len() as u64 != wanted {
            return lie(format!(
                "it announced {wanted} bytes and sent {}",
                bytes.len()
            ));
        }
        Ok(Self {
            from: start,
            bytes,
            size,
            mark,
            url,
            whole,
        })
    }
}

impl Brought {
    /// Reads a whole file of which the server does not tell the size.
    fn read_untold(mut answer: Answer<'_>) -> Result<Self, RemoteError> {
        let (url, mark) = (answer.url.clone(), answer.mark());
        let bytes = take_bytes(&mut answer, UNTOLD + 1)?;
        let size = bytes.len() as u64;
        if size > UNTOLD {
            let reason =
                "it does not tell the file's size, neither by a range nor by a Content-Length";
            return Err(RemoteError::lie(&plain(&url), reason));
        }
        Ok(Self {
            from: 0,
            bytes,
            size: Some(size),
            mark,
            url,
            whole: true,
        })
    }
}

/// The size of a file whose ranges come without it: as the head of an answer tells, else the answer itself.
fn told_size(web: &Web, url: &Url) -> Result<u64, RemoteError> {
    let head = Ask {
        head: true,
        ..Ask::default()
    };
    // Not every server answers that.
    let head = web.get(url, &head)?;
    if let Some(length) = head.length().filter(|_| head.status == 200) {
        return Ok(length);
    }
    let whole = web.get(url, &Ask::default())?;
    match (whole.status, whole.length()) {
        (200, Some(length)) => Ok(length),
        (200, None) => Ok(Brought::read_untold(whole)?.bytes.len() as u64),
        _ => Err(whole.refused()),
    }
}

/// At most so many bytes of a body; the rest is left unread.
fn take_bytes(answer: &mut Answer<'_>, most: u64) -> Result<Vec<u8>, RemoteError> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    while bytes.len() < most {
        let Some(chunk) = answer.chunk()? else {
            break;
        };
        let count = chunk.len().min(most - bytes.len());
        bytes.extend_from_slice(&chunk[..count]);
    }
    Ok(bytes)
}

/// `bytes 0-9/100`: first byte, last byte, size; `*` is a size that is not told.
pub(super) fn content_range(text: &str) -> Option<(u64, u64, Option<u64>)> {
    let rest = text.trim().strip_prefix("bytes ")?;
    let (range, total) = rest.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let total = match total {
        "*" => None,
        total => Some(total.parse().ok()?),
    };
    Some((first.parse().ok()?, last.parse().ok()?, total))
}

impl ReadAt for RangedFile {
    fn len(&self) -> u64 {
        self.size
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read(offset, buffer).map_err(|error| {
            self.web.remember(error.clone());
            io::Error::other(error)
        })
    }
}
