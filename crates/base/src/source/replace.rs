//! Replaces files atomically: readers see the old content or the new one, even after a crash.
//!
//! The new content is written to a hidden file beside the old one, synced to disk, and renamed over
//! it.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Maximum number of names to try for the hidden file.
const MAX_NAME_ATTEMPTS: usize = 16;
/// Maximum duration of a replacement; older hidden files are abandoned.
const MAX_REPLACE_TIME: Duration = Duration::from_hours(1);

/// Replaces `target` with `bytes`. `target` must be resolved first if a symbolic link should
/// remain. Permissions and owner of the old file are kept. `check` runs just before the rename; if
/// it fails, the attempt leaves nothing behind.
pub fn replace<E: From<io::Error>>(
    target: &Path,
    bytes: &[u8],
    check: impl FnOnce() -> Result<(), E>,
) -> Result<(), E> {
    let (file, beside) = create_beside(target)?;
    let done = write(file, &beside, target, bytes)
        .map_err(E::from)
        .and_then(|()| check())
        .and_then(|()| Ok(fs::rename(&beside, target)?));
    if done.is_err() {
        // The first error is the one to report, not a failure to clean up.
        let _ = fs::remove_file(&beside);
    }
    done?;
    sync_directory(target);
    Ok(())
}

/// Syncs the names in a file's folder to disk, if the system supports it.
pub fn sync_directory(path: &Path) {
    if let Some(directory) = path.parent() {
        let directory = if directory.as_os_str().is_empty() {
            Path::new(".")
        } else {
            directory
        };
        // Systems without this call persist names in their own way.
        let _ = File::open(directory).and_then(|directory| directory.sync_all());
    }
}

/// Removes hidden files of killed attempts to replace `target`. Attempts of processes that may
/// still be running are kept.
pub fn remove_abandoned(target: &Path) {
    let (Some(name), Some(directory)) =
        (target.file_name().and_then(OsStr::to_str), target.parent())
    else {
        return;
    };
    // Failures are ignored: remaining files do no harm.
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let attempt = entry.file_name();
        let process = attempt
            .to_str()
            .and_then(|attempt| process_of(attempt, name));
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && process.is_some_and(|process| has_ended(process, &entry.path())) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Returns the id of the process that created a hidden file to replace `target`.
fn process_of(attempt: &str, target: &str) -> Option<u32> {
    let rest = attempt.strip_prefix('.')?.strip_prefix(target)?;
    let numbers = rest.strip_prefix('.')?.strip_suffix(".tmp")?;
    let (process, count) = numbers.split_once('-')?;
    count.parse::<u64>().ok()?;
    process.parse().ok()
}

/// Returns whether the process that created a file has ended. On systems without `/proc`, it counts
/// as ended after an hour.
fn has_ended(process: u32, file: &Path) -> bool {
    let processes = Path::new("/proc");
    if processes.join("self/stat").exists() {
        return !processes.join(process.to_string()).exists();
    }
    let modified = file.metadata().and_then(|metadata| metadata.modified());
    let age = modified.ok().and_then(|moment| moment.elapsed().ok());
    process != std::process::id() && age.is_some_and(|age| age > MAX_REPLACE_TIME)
}

fn write(mut file: File, beside: &Path, target: &Path, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    if let Ok(there) = fs::metadata(target) {
        keep_owner(beside, &there);
        file.set_permissions(there.permissions())?;
    }
    file.sync_all()
}

/// Creates a hidden file in the same folder; walks for packages ignore it.
fn create_beside(target: &Path) -> io::Result<(File, PathBuf)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..MAX_NAME_ATTEMPTS {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let beside = target.with_file_name(format!(".{name}.{}-{count}.tmp", std::process::id()));
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&beside)
        {
            Ok(file) => return Ok((file, beside)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

#[cfg(unix)]
fn keep_owner(path: &Path, metadata: &fs::Metadata) {
    use std::os::unix::fs::{MetadataExt, chown};

    // Only privileged users can give files away. For others the new file is their own, as with any
    // editor.
    let _ = chown(path, Some(metadata.uid()), Some(metadata.gid()));
}

#[cfg(not(unix))]
fn keep_owner(_: &Path, _: &fs::Metadata) {}

#[cfg(test)]
mod tests {
    use super::process_of;

    #[test]
    fn attempts_are_known_by_their_names() {
        let of = |name: &str| process_of(name, "config.json");
        assert_eq!(of(".config.json.12-0.tmp"), Some(12));
        for other in [
            "config.json.12-0.tmp",
            ".config.json.tmp",
            ".config.json.12.tmp",
            ".config.json.a-0.tmp",
            ".config.json.12-0.tmp~",
            ".other.json.12-0.tmp",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
