//! Downloads one file: starts or resumes it, verifies it, and moves it to its place.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use super::journal::{Journal, PartialFileNote};
use super::plan::WantedFile;
use super::{ProgressStep, PullProgress};
use crate::RemoteError;
use crate::ranged::content_range;
use crate::web::{HttpClient, RequestParams, WebAnswer, without_query};

/// Number of bytes after which an attempt counts as progress, which resets the number of failures.
const PROGRESS_BYTES: u64 = 64 << 10;
/// Maximum number of consecutive retries without progress.
const MAX_RETRIES: u32 = 4;
/// Pause before the first retry. It doubles before each further one.
const RETRY_PAUSE: Duration = Duration::from_millis(300);

/// Downloads a file, unless the same file already exists.
pub(super) fn fetch(
    web: &HttpClient,
    journal: &Journal,
    wanted: &WantedFile,
    force: bool,
    progress: PullProgress<'_>,
) -> Result<(), RemoteError> {
    let (part, note) = journal.part_paths(wanted)?;
    let place = journal.place(wanted)?;
    let (mut failures, mut pause) = (0, RETRY_PAUSE);
    loop {
        let before = journal.part_size(wanted);
        match transfer(web, wanted, &part, &note, progress) {
            Ok(()) => break,
            Err(error) if error.is_transient() && failures < MAX_RETRIES => {
                // Without a minimum, a server that sends a few bytes and disconnects would be
                // retried forever.
                let came = journal.part_size(wanted).saturating_sub(before) >= PROGRESS_BYTES;
                failures = if came { 0 } else { failures + 1 };
                std::thread::sleep(pause);
                pause = if came { RETRY_PAUSE } else { pause * 2 };
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
                "`{}` differs from the source; overwrite it with --force",
                place.display()
            )));
        }
    }
    let fail = |error| RemoteError::disk(&place, &error);
    fs::rename(&part, &place).map_err(fail)?;
    // The note is not needed any more.
    let _ = fs::remove_file(&note);
    journal.finish(wanted, &place, sum)
}

/// Downloads the missing rest of a partial file.
fn transfer(
    web: &HttpClient,
    wanted: &WantedFile,
    part: &Path,
    note: &Path,
    progress: PullProgress<'_>,
) -> Result<(), RemoteError> {
    let fail = |error| RemoteError::disk(part, &error);
    let has = fs::symlink_metadata(part).map_or(0, |metadata| metadata.len());
    let begun = PartialFileNote::read(note).filter(|begun| {
        begun.size == wanted.size
            && begun.sha256 == wanted.sha256
            && (begun.tag.is_some() || begun.sha256.is_some())
    });
    let goes_on = begun.filter(|_| has > 0 && has <= wanted.size);
    if goes_on.is_some() && has == wanted.size {
        return Ok(());
    }
    let ask = RequestParams {
        range: goes_on.as_ref().map(|_| (has, None)),
        if_range: goes_on
            .as_ref()
            .and_then(|begun| strong_tag(begun.tag.as_deref())),
        head: false,
    };
    let mut answer = web.get(&wanted.url, &ask)?;
    let from = answer_offset(&answer, wanted, goes_on.as_ref(), has)?;
    let mut file = if from > 0 {
        OpenOptions::new().append(true).open(part).map_err(fail)?
    } else {
        let begun = PartialFileNote {
            url: without_query(&wanted.url),
            size: wanted.size,
            tag: answer.version_marker(),
            sha256: wanted.sha256.clone(),
        };
        progress(ProgressStep::Lost(has));
        // Truncate the file before changing the note, so that the note never describes bytes of
        // another file.
        let file = File::create(part).map_err(fail)?;
        begun.write(note)?;
        file
    };
    let mut size = from;
    while let Some(chunk) = answer.chunk()? {
        size += chunk.len() as u64;
        if size > wanted.size {
            let reason = format!("expected {} bytes, got more", wanted.size);
            return Err(RemoteError::lie(&without_query(&wanted.url), reason));
        }
        file.write_all(&chunk).map_err(fail)?;
        progress(ProgressStep::Came(chunk.len() as u64));
    }
    if size < wanted.size {
        return Err(RemoteError::Unreachable {
            url: without_query(&wanted.url),
            reason: format!("the answer ended after {size} of {} bytes", wanted.size),
        });
    }
    file.sync_all().map_err(fail)
}

/// Returns the offset at which an answer begins: the end of the partial file, or 0 for the whole
/// file.
fn answer_offset(
    answer: &WebAnswer<'_>,
    wanted: &WantedFile,
    begun: Option<&PartialFileNote>,
    has: u64,
) -> Result<u64, RemoteError> {
    let lie = |reason: String| Err(RemoteError::lie(&without_query(&wanted.url), reason));
    match answer.status {
        206 => {
            let said = answer.header("content-range").unwrap_or_default();
            // The server may omit the size, which is already known then.
            let is_rest = content_range(&said).is_some_and(|(first, last, total)| {
                (first, last) == (has, wanted.size - 1)
                    && total.is_none_or(|total| total == wanted.size)
            });
            if begun.is_none() || !is_rest {
                return lie(format!(
                    "requested the bytes from {has} of {}, got the Content-Range `{said}`",
                    wanted.size
                ));
            }
            // The server may not support If-Range.
            let tag = begun.and_then(|begun| begun.tag.as_ref());
            if tag.is_some()
                && answer.version_marker().is_some()
                && answer.version_marker().as_ref() != tag
            {
                return Err(RemoteError::Changed {
                    url: without_query(&wanted.url),
                });
            }
            Ok(has)
        }
        200 => match answer.length() {
            Some(length) if length != wanted.size => lie(format!(
                "the size of the file changed from {} to {length} bytes",
                wanted.size
            )),
            _ => Ok(0),
        },
        _ => Err(answer.refused()),
    }
}

/// Returns the tag if it is suitable for `If-Range`. A weak tag does not identify exact bytes.
fn strong_tag(tag: Option<&str>) -> Option<String> {
    tag.filter(|tag| !tag.starts_with("W/")).map(str::to_owned)
}

/// Returns the SHA-256 of the downloaded file. If it differs from the expected one, deletes the
/// file and fails.
fn verify(
    journal: &Journal,
    wanted: &WantedFile,
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
                "SHA-256 of `{}`: expected {expected}, got {sum}; the downloaded file was deleted",
                wanted.path
            );
            Err(RemoteError::lie(&without_query(&wanted.url), reason))
        }
        _ => Ok(sum),
    }
}
