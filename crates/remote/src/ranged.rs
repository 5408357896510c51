//! A file on a server that is read with range requests.
//!
//! Invariant: every answer is checked against the request and against earlier answers: its range,
//! the size of the file, and its tag. Fetched bytes are kept in memory until the run ends, so the
//! limit of bytes per file also limits the memory.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::Url;

use super::RemoteError;
use super::web::{HttpClient, RequestParams, WebAnswer, without_query};
use pkgtool_base::source::ReadAt;

/// Size of the first request, in bytes. Most headers fit in it.
const FIRST_REQUEST_BYTES: u64 = 64 << 10;
/// Size of a request at a new offset, in bytes. One record of a table fits in it.
const JUMP_REQUEST_BYTES: u64 = 8 << 10;
/// Maximum size of a request, in bytes. Sequential requests double in size.
const MAX_REQUEST_BYTES: u64 = 256 << 10;
/// Alignment of the beginning of requests, in bytes.
const REQUEST_ALIGNMENT: u64 = 4 << 10;
/// Maximum size of a file whose size the server does not state, in bytes.
const MAX_UNKNOWN_SIZE_BYTES: u64 = 1 << 20;

/// A file on a server.
pub(super) struct RangedFile {
    web: Arc<HttpClient>,
    url: Url,
    size: u64,
    state: Mutex<RangedState>,
}

#[derive(Default)]
struct RangedState {
    /// Fetched bytes by offset, without overlaps.
    held: BTreeMap<u64, Arc<[u8]>>,
    bytes: u64,
    mark: Option<String>,
    /// Target of the redirects of the first request.
    direct: Option<Url>,
    last_end: u64,
    last_size: u64,
    /// The error after which nothing more is requested.
    broken: Option<RemoteError>,
}

/// The part of a file that is fetched while searching for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FetchedPart {
    /// Its beginning, which will be read.
    Beginning,
    /// Nothing; only its size is needed.
    Size,
}

/// The content of one answer.
struct FetchedRange {
    from: u64,
    bytes: Vec<u8>,
    /// Size of the file. A server may omit it (`bytes 0-9/*`).
    size: Option<u64>,
    mark: Option<String>,
    url: Url,
    whole: bool,
}

impl RangedFile {
    /// Creates a file with the size from a listing.
    pub(super) fn listed(web: Arc<HttpClient>, url: Url, size: u64) -> Self {
        Self {
            web,
            url,
            size,
            state: Mutex::default(),
        }
    }

    /// Searches for a file and determines its size. Fetches its beginning as well if it will be
    /// read.
    pub(super) fn find(
        web: &Arc<HttpClient>,
        url: &Url,
        look: FetchedPart,
    ) -> Result<Option<Self>, RemoteError> {
        // The answer to a range of one byte includes the size of the file.
        let (count, whole) = match look {
            FetchedPart::Beginning => (FIRST_REQUEST_BYTES, web.limits.whole_bytes),
            FetchedPart::Size => (1, 0),
        };
        let ask = RequestParams::part(0, count - 1);
        let answer = web.get(url, &ask)?;
        if matches!(answer.status, 404 | 410) {
            return Ok(None);
        }
        let mut brought = FetchedRange::read(answer, 0, count, None, whole)?;
        let size = match brought.size {
            Some(size) => size,
            None => request_size(web, url)?,
        };
        if look == FetchedPart::Size {
            // Discard the single byte: the next request begins at the same offset.
            brought.bytes.clear();
        }
        let file = Self::listed(Arc::clone(web), url.clone(), size);
        file.state().take(brought);
        Ok(Some(file))
    }

    /// Returns the size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the version marker of the file, if the server has sent one.
    pub(super) fn mark(&self) -> Option<String> {
        self.state().mark.clone()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, RangedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), RemoteError> {
        // Requests of one file run one at a time, since an answer may contain the bytes that the
        // next read needs.
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

    fn fetch(&self, state: &mut RangedState, at: u64) -> Result<(), RemoteError> {
        let (from, to) = state.next_range(at, self.size);
        let most = self.web.limits.file_bytes;
        if state.bytes + (to - from) > most {
            return Err(RemoteError::Budget {
                url: without_query(&self.url),
                most: format!("{most} bytes of this file"),
            });
        }
        let ask = RequestParams::part(from, to - 1);
        let whole = self.web.limits.whole_bytes;
        let mut answer = self
            .web
            .get(state.direct.as_ref().unwrap_or(&self.url), &ask)?;
        // The target of a redirect may expire.
        if state.direct.is_some() && matches!(answer.status, 400 | 401 | 403 | 404 | 410) {
            state.direct = None;
            answer = self.web.get(&self.url, &ask)?;
        }
        let brought = match FetchedRange::read(answer, from, to - from, Some(self.size), whole) {
            Err(error) if error.is_transient() => {
                let answer = self.web.get(&self.url, &ask)?;
                FetchedRange::read(answer, from, to - from, Some(self.size), whole)?
            }
            brought => brought?,
        };
        let known = state.mark.is_some() && brought.mark.is_some();
        if known && state.mark != brought.mark {
            return Err(RemoteError::Changed {
                url: without_query(&self.url),
            });
        }
        if let Some(size) = brought.size.filter(|size| *size != self.size) {
            return Err(RemoteError::lie(
                &without_query(&self.url),
                format!(
                    "the size of the file changed from {} to {size} bytes",
                    self.size
                ),
            ));
        }
        let end = brought.from + brought.bytes.len() as u64;
        if brought.whole && (at < brought.from || at >= end) {
            return Err(RemoteError::NoRanges {
                url: without_query(&self.url),
                size: self.size,
                most: whole,
            });
        }
        state.take(brought);
        Ok(())
    }
}

impl RangedState {
    fn covering(&self, at: u64) -> Option<(u64, Arc<[u8]>)> {
        let (start, bytes) = self.held.range(..=at).next_back()?;
        (at < start + bytes.len() as u64).then(|| (*start, Arc::clone(bytes)))
    }

    /// Returns the range to request around `at`, which is not in memory: its first byte, and the
    /// one after its last.
    fn next_range(&self, at: u64, size: u64) -> (u64, u64) {
        let aligned = at - at % REQUEST_ALIGNMENT;
        let before = self.held.range(..=at).next_back();
        let from = before.map_or(aligned, |(start, bytes)| {
            aligned.max(start + bytes.len() as u64)
        });
        let goes_on = !self.held.is_empty() && from == self.last_end;
        let length = match (self.held.is_empty(), goes_on) {
            (true, _) => FIRST_REQUEST_BYTES,
            (_, true) => (self.last_size * 2).clamp(JUMP_REQUEST_BYTES, MAX_REQUEST_BYTES),
            (_, false) => JUMP_REQUEST_BYTES,
        };
        let after = self.held.range(from..).next().map(|(start, _)| *start);
        let to = (from + length).min(size).min(after.unwrap_or(u64::MAX));
        (from, to.max(at + 1))
    }

    fn take(&mut self, brought: FetchedRange) {
        let length = brought.bytes.len() as u64;
        self.bytes += length;
        self.last_end = brought.from + length;
        self.last_size = length;
        self.direct.get_or_insert(brought.url);
        self.mark = self.mark.take().or(brought.mark);
        if length > 0 {
            if brought.whole {
                // A whole file begins at 0 and contains all other pieces.
                self.held.clear();
            }
            self.held.insert(brought.from, brought.bytes.into());
        }
    }
}

impl FetchedRange {
    /// Reads the answer to a request for `count` bytes at `from`. Of a whole file, at most `most`
    /// bytes are read.
    fn read(
        mut answer: WebAnswer<'_>,
        from: u64,
        count: u64,
        size: Option<u64>,
        most: u64,
    ) -> Result<Self, RemoteError> {
        let url = answer.url.clone();
        let lie = |reason: String| Err(RemoteError::lie(&without_query(&url), reason));
        let (start, wanted, size, whole) = match answer.status {
            206 => {
                let said = answer.header("content-range").unwrap_or_default();
                let Some((first, last, total)) = content_range(&said) else {
                    return lie(format!("requested a range, got the Content-Range `{said}`"));
                };
                if first != from
                    || last < first
                    || last - first >= count
                    || total.is_some_and(|total| last >= total)
                {
                    return lie(format!(
                        "requested the bytes {from} to {}, got {said}",
                        from + count - 1
                    ));
                }
                (first, last - first + 1, total.or(size), false)
            }
            200 => {
                let Some(size) = answer.length().or(size) else {
                    return Self::read_unknown_size(answer);
                };
                (0, size.min(most), Some(size), true)
            }
            // An empty file has no valid range.
            416 if answer.header("content-range").as_deref() == Some("bytes */0") => {
                (0, 0, Some(0), true)
            }
            416 => {
                return lie(
                    "a range inside the file was rejected, so the file is shorter than announced"
                        .to_owned(),
                );
            }
            _ => return Err(answer.refused()),
        };
        let mark = answer.version_marker();
        let bytes = take_bytes(&mut answer, wanted)?;
        if bytes.len() as u64 != wanted {
            return lie(format!(
                "expected {wanted} bytes as announced, got {}",
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

impl FetchedRange {
    /// Reads a whole file whose size the server does not state.
    fn read_unknown_size(mut answer: WebAnswer<'_>) -> Result<Self, RemoteError> {
        let (url, mark) = (answer.url.clone(), answer.version_marker());
        let bytes = take_bytes(&mut answer, MAX_UNKNOWN_SIZE_BYTES + 1)?;
        let size = bytes.len() as u64;
        if size > MAX_UNKNOWN_SIZE_BYTES {
            let reason = "the size of the file is missing from Content-Range and Content-Length";
            return Err(RemoteError::lie(&without_query(&url), reason));
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

/// Determines the size of a file whose ranges do not include it: by a HEAD request, otherwise by
/// requesting the whole file.
fn request_size(web: &HttpClient, url: &Url) -> Result<u64, RemoteError> {
    let head = RequestParams {
        head: true,
        ..RequestParams::default()
    };
    // Some servers do not support HEAD.
    let head = web.get(url, &head)?;
    if let Some(length) = head.length().filter(|_| head.status == 200) {
        return Ok(length);
    }
    let whole = web.get(url, &RequestParams::default())?;
    match (whole.status, whole.length()) {
        (200, Some(length)) => Ok(length),
        (200, None) => Ok(FetchedRange::read_unknown_size(whole)?.bytes.len() as u64),
        _ => Err(whole.refused()),
    }
}

/// Reads at most `most` bytes of a body and leaves the rest unread.
fn take_bytes(answer: &mut WebAnswer<'_>, most: u64) -> Result<Vec<u8>, RemoteError> {
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

/// Parses a Content-Range such as `bytes 0-9/100`: first byte, last byte, and size. The size may be
/// `*`, which means unknown.
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
            self.web.record_fault(error.clone());
            io::Error::other(error)
        })
    }
}
