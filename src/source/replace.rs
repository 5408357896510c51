//! Files replaced as a whole: whoever reads sees the old content or the new one, whatever happens.
//!
//! The new content goes into a hidden file beside the old one, to the disk, and then takes its name.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Names that are tried before it is given up to find one that is free.
const MAX_NAMES: usize = 16;
/// How long replacing a file takes at the very most.
const LONGEST: Duration = Duration::from_hours(1);

/// Puts `bytes` at `target`, which is no symbolic link if one shall stay. Permissions and owner of what is there
/// are kept. `check` has the last word before the name is taken; if it fails, nothing is left of the attempt.
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
        // It is the error that counts, not what is left of the attempt.
        let _ = fs::remove_file(&beside);
    }
    done?;
    sync_directory(target);
    Ok(())
}

/// Makes the names in a file's directory lasting, where the system can.
pub fn sync_directory(path: &Path) {
    if let Some(directory) = path.parent() {
        let directory = if directory.as_os_str().is_empty() {
            Path::new(".")
        } else {
            directory
        };
        // A system that cannot has kept the names in its own way.
        let _ = File::open(directory).and_then(|directory| directory.sync_all());
    }
}

/// Removes what attempts to replace `target` left beside it that were killed. Attempts of processes that may still
/// be there are left alone.
pub fn remove_abandoned(target: &Path) {
    let (Some(name), Some(directory)) =
        (target.file_name().and_then(OsStr::to_str), target.parent())
    else {
        return;
    };
    // What cannot be listed or removed is in nobody's way.
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let attempt = entry.file_name();
        let process = attempt
            .to_str()
            .and_then(|attempt| process_of(attempt, name));
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && process.is_some_and(|process| is_gone(process, &entry.path())) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The process that made a hidden file to replace the one named `target`.
fn process_of(attempt: &str, target: &str) -> Option<u32> {
    let rest = attempt.strip_prefix('.')?.strip_prefix(target)?;
    let numbers = rest.strip_prefix('.')?.strip_suffix(".tmp")?;
    let (process, count) = numbers.split_once('-')?;
    count.parse::<u64>().ok()?;
    process.parse().ok()
}

/// Whether a process that made a file has ended. Where the system does not tell, it has after an hour.
fn is_gone(process: u32, file: &Path) -> bool {
    let processes = Path::new("/proc");
    if processes.join("self/stat").exists() {
        return !processes.join(process.to_string()).exists();
    }
    let modified = file.metadata().and_then(|metadata| metadata.modified());
    let age = modified.ok().and_then(|moment| moment.elapsed().ok());
    process != std::process::id() && age.is_some_and(|age| age > LONGEST)
}

fn write(mut file: File, beside: &Path, target: &Path, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    if let Ok(there) = fs::metadata(target) {
        keep_owner(beside, &there);
        file.set_permissions(there.permissions())?;
    }
    file.sync_all()
}

/// A new file in the same directory, hidden: a walk for packages does not look at it.
fn create_beside(target: &Path) -> io::Result<(File, PathBuf)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..MAX_NAMES {
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

    // Only who may give files away can; for others the file is theirs, as with any editor.
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
