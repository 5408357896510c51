//! One file from a server to its place: begun or gone on with, verified, put in place.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use super::journal::{Begun, Journal};
use super::plan::Wanted;
use super::{Progress, Step};
use crate::remote::RemoteError;
use crate::remote::ranged::content_range;
use crate::remote::web::{Answer, Ask, Web, plain};

/// Bytes of a try that count as progress: then the transfer is resumed as if it had never failed.
const PROGRESS: u64 = 64 << 10;
/// How often a transfer is resumed that broke off without progress.
const TRIES: u32 = 4;
/// The pause before that; before each further one twice as long.
const PAUSE: Duration = Duration::from_millis(300);

/// Fetches a file, unless the same is there under its name.
pub(super) fn fetch(
    web: &Web,
    journal: &Journal,
    wanted: &Wanted,
    force: bool,
    progress: Progress<'_>,
) -> Result<(), RemoteError> {
    let (part, note) = journal.part(wanted)?;
    let place = journal.place(wanted)?;
    let (mut failures, mut pause) = (0, PAUSE);
    loop {
        let before = journal.part_size(wanted);
        match transfer(web, wanted, &part, &note, progress) {
            Ok(()) => break,
            Err(error) if error.is_passing() && failures < TRIES => {
                // A server that sends a little and breaks off, again and again, would never be done.
                let came = journal.part_size(wanted).saturating_sub(before) >= PROGRESS;
                failures = if came { 0 } else { failures + 1 };
                std::thread::sleep(pause);
                pause = if came { PAUSE } else { pause * 2 };
            }
            Err(error) => return Err(error),
        }
    }
    let sum = verify(journal, wanted, &part, &note)?;
    if place.symlink_metadata().is_ok() && !force {
        let is_same = fs::symlink_metadata(&place).is_ok_and(|found| found.is_file())
            && journal.hash(&place)? == sum;
        if !is_same {
            return Err(RemoteError::Differs(format!(
                "`{}` differs from the source; to overwrite it, use --force",
                place.display()
            )));
        }
    }
    let fail = |error| RemoteError::disk(&place, &error);
    fs::rename(&part, &place).map_err(fail)?;
    // The note is of no use to anybody now.
    let _ = fs::remove_file(&note);
    journal.finish(wanted, &place, sum)
}

/// Fetches what is missing of the begun file.
fn transfer(
    web: &Web,
    wanted: &Wanted,
    part: &Path,
    note: &Path,
    progress: Progress<'_>,
) -> Result<(), RemoteError> {
    let fail = |error| RemoteError::disk(part, &error);
    let has = fs::symlink_metadata(part).map_or(0, |metadata| metadata.len());
    let begun = Begun::read(note).filter(|begun| {
        begun.size == wanted.size
            && begun.sha256 == wanted.sha256
            && (begun.tag.is_some() || begun.sha256.is_some())
    });
    let goes_on = begun.filter(|_| has > 0 && has <= wanted.size);
    if goes_on.is_some() && has == wanted.size {
        return Ok(());
    }
    let ask = Ask {
        range: goes_on.as_ref().map(|_| (has, None)),
        if_range: goes_on
            .as_ref()
            .and_then(|begun| strong(begun.tag.as_deref())),
        head: false,
    };
    let mut answer = web.get(&wanted.url, &ask)?;
    let from = begins_at(&answer, wanted, goes_on.as_ref(), has)?;
    let mut file = if from > 0 {
        OpenOptions::new().append(true).open(part).map_err(fail)?
    } else {
        let begun = Begun {
            url: plain(&wanted.url),
            size: wanted.size,
            tag: answer.mark(),
            sha256: wanted.sha256.clone(),
        };
        progress(Step::Lost(has));
        // First the old bytes go, then the note changes: it never speaks of bytes of another file.
        let file = File::create(part).map_err(fail)?;
        begun.write(note)?;
        file
    };
    let mut size = from;
    while let Some(chunk) = answer.chunk()? {
        size += chunk.len() as u64;
        if size > wanted.size {
            let reason = format!("the file has {} bytes, and it sends more", wanted.size);
            return Err(RemoteError::lie(&plain(&wanted.url), reason));
        }
        file.write_all(&chunk).map_err(fail)?;
        progress(Step::Came(chunk.len() as u64));
    }
    if size < wanted.size {
        return Err(RemoteError::Unreachable {
            url: plain(&wanted.url),
            reason: format!("the answer ended after {size} of {} bytes", wanted.size),
        });
    }
    file.sync_all().map_err(fail)
}

/// The offset at which an answer goes on: that of the begun file, or 0 for the whole file.
fn begins_at(
    answer: &Answer<'_>,
    wanted: &Wanted,
    begun: Option<&Begun>,
    has: u64,
) -> Result<u64, RemoteError> {
    let lie = |reason: String| Err(RemoteError::lie(&plain(&wanted.url), reason));
    match answer.status {
        206 => {
            let said = answer.header("content-range").unwrap_or_default();
            // The size may be left out; then it is the one that was told before.
            let is_rest = content_range(&said).is_some_and(|(first, last, total)| {
                (first, last) == (has, wanted.size - 1)
                    && total.is_none_or(|total| total == wanted.size)
            });
            if begun.is_none() || !is_rest {
                return lie(format!(
                    "asked for bytes from {has} on of {}, its Content-Range is `{said}`",
                    wanted.size
                ));
            }
            // A server may not know If-Range.
            let tag = begun.and_then(|begun| begun.tag.as_ref());
            if tag.is_some() && answer.mark().is_some() && answer.mark().as_ref() != tag {
                return Err(RemoteError::Changed {
                    url: plain(&wanted.url),
                });
            }
            Ok(has)
        }
        200 => match answer.length() {
            Some(length) if length != wanted.size => lie(format!(
                "the file was said to have {} bytes, now it has {length}",
                wanted.size
            )),
            _ => Ok(0),
        },
        _ => Err(answer.refused()),
    }
}

/// A tag that `If-Range` takes: a weak one says nothing of bytes.
fn strong(tag: Option<&str>) -> Option<String> {
    tag.filter(|tag| !tag.starts_with("W/")).map(str::to_owned)
}

/// SHA-256 of the fetched file, which is the one that was told; else it is thrown away.
fn verify(
    journal: &Journal,
    wanted: &Wanted,
    part: &Path,
    note: &Path,
) -> Result<String, RemoteError> {
    let sum = journal.hash(part)?;
    match &wanted.sha256 {
        Some(expected) if *expected != sum => {
            let fail = |error| RemoteError::disk(part, &error);
            fs::remove_file(part).map_err(fail)?;
            let _ = fs::remove_file(note);
            let reason = format!(
                "SHA-256 of `{}`: expected {expected}, fetched {sum}; the file was thrown away",
                wanted.path
            );
            Err(RemoteError::lie(&plain(&wanted.url), reason))
        }
        _ => Ok(sum),
    }
}
