//! Limits where symbolic links in a package may lead.
//!
//! A link in a package may lead to another file of its repository, and to the blobs of a hub's
//! cache, whose folders consist of such links. Any other target belongs to the machine, not to the
//! package, and is rejected. Links in a path that the user typed are the user's own choice, and
//! always followed.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use super::normal::normalize;

/// Number of folders above a config's own folder that belong to a package without a repository
/// root.
const MAX_LEVELS_ABOVE: usize = 2;

/// Paths that the user chose, as typed.
static CHOSEN_PATHS: RwLock<Vec<PathBuf>> = RwLock::new(Vec::new());

/// A symbolic link leads out of the package.
#[derive(Debug, thiserror::Error)]
#[error("it is behind a symbolic link that leads out of the package, to `{}`", target.display())]
pub struct OutsideLink {
    target: PathBuf,
}

/// Marks a path as the user's own choice: links on the way to it are always followed.
pub fn choose(path: &Path) {
    let mut chosen = CHOSEN_PATHS.write().unwrap_or_else(PoisonError::into_inner);
    if !chosen.iter().any(|one| one == path) {
        chosen.push(path.to_owned());
    }
}

/// Marks everything that a command line names as the user's own choice, including the part after an
/// option's `=`.
pub fn choose_arguments(arguments: impl Iterator<Item = OsString>) {
    let mut chosen = CHOSEN_PATHS.write().unwrap_or_else(PoisonError::into_inner);
    for argument in arguments {
        let value = argument.to_str().and_then(|text| text.split_once('='));
        chosen.extend(value.map(|(_, value)| PathBuf::from(value)));
        chosen.push(argument.into());
    }
}

/// Resolves `path`. Returns an [`OutsideLink`] error if a link that the user did not type leads out of
/// the package.
pub fn real(path: &Path) -> io::Result<PathBuf> {
    let target = path.canonicalize()?;
    let here = std::env::current_dir()?;
    let path = normalize(&here.join(path));
    if target == path {
        return Ok(target);
    }
    let chosen = chosen_part(&path, &here);
    let typed = chosen.path.canonicalize()?;
    let place = typed.join(chosen.rest);
    let typed = if chosen.is_whole {
        &*typed
    } else {
        Path::new("")
    };
    let is_inside = chosen.rest.as_os_str().is_empty()
        || target == place
        || target.starts_with(border(&place, typed).canonicalize()?)
        || is_cached(&place, &target);
    if is_inside {
        return Ok(target);
    }
    let target = fs::read_link(&path).unwrap_or(target);
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        OutsideLink { target },
    ))
}

/// Returns whether the file at `path` resolves to a place in or below `directory`, or in the hub
/// cache that contains the directory.
pub fn is_within(path: &Path, directory: &Path) -> io::Result<bool> {
    let target = real(path)?;
    let is_here = directory.as_os_str().is_empty();
    let directory = if is_here { Path::new(".") } else { directory };
    let home = directory.canonicalize()?;
    Ok(target.starts_with(&home) || is_cached(&home.join("file"), &target))
}

/// Returns whether an error is an [`OutsideLink`].
pub fn is_outside(error: &io::Error) -> bool {
    let inner = error.get_ref();
    inner.is_some_and(|inner| inner.downcast_ref::<OutsideLink>().is_some())
}

/// Returns whether the absolute `directory` is the root of a download from a hub, which has no
/// `.git`. `has` returns whether the directory contains an entry.
pub fn is_download(directory: &Path, has: impl Fn(&str) -> bool) -> bool {
    let parent = directory.parent().and_then(Path::file_name);
    let has_downloads = || directory.join(".cache/huggingface/download");
    has(".gitattributes")
        || has(".cache") && has_downloads().symlink_metadata().is_ok()
        || parent.is_some_and(|name| name == SNAPSHOTS)
}

/// Returns the folder that a package without a repository root may fill, given the absolute folder
/// of a config.
pub fn max_package_root(directory: &Path) -> &Path {
    directory
        .ancestors()
        .nth(MAX_LEVELS_ABOVE)
        .unwrap_or(directory)
}

/// Folder of a hub cache with a folder of links for each revision.
const SNAPSHOTS: &str = "snapshots";
/// Folder of a hub cache with the files themselves.
const BLOBS: &str = "blobs";
/// Name prefixes of a repository's folder in a hub cache.
const REPOSITORIES: [&str; 3] = ["models--", "datasets--", "spaces--"];

/// The part of a path that the user typed, and the rest, which belongs to the package.
struct ChosenPart<'p> {
    path: PathBuf,
    rest: &'p Path,
    /// True if it contains everything that the user typed.
    is_whole: bool,
}

fn chosen_part<'p>(path: &'p Path, here: &Path) -> ChosenPart<'p> {
    let chosen = CHOSEN_PATHS.read().unwrap_or_else(PoisonError::into_inner);
    let count = |one: &PathBuf| {
        let both = one.components().zip(path.components());
        both.take_while(|(typed, here)| typed == here).count()
    };
    // Of paths with equally long common parts, prefer the one that ends there.
    let best = chosen
        .iter()
        .map(|one| normalize(&here.join(one)))
        .map(|one| (count(&one), count(&one) == one.components().count()))
        .max();
    let (common, is_whole) = best.unwrap_or_default();
    let mut components = path.components();
    let typed = components.by_ref().take(common.max(1)).collect();
    ChosenPart {
        path: typed,
        rest: components.as_path(),
        is_whole,
    }
}

/// Returns the folder that a link at `place` may not leave: the repository root, or else a fixed
/// number of levels above the link. The latter never covers the whole machine, nor more than the
/// folder that the user typed.
fn border(place: &Path, typed: &Path) -> PathBuf {
    let own = place.parent().unwrap_or(place);
    if let Some(root) = repository(own) {
        return root;
    }
    let is_allowed =
        |one: &&Path| one.parent().is_some() && (own == typed || one.starts_with(typed));
    let widest = own
        .ancestors()
        .take(MAX_LEVELS_ABOVE + 1)
        .filter(is_allowed)
        .last();
    widest.unwrap_or(own).to_owned()
}

/// Returns the checkout or download that contains an absolute folder.
fn repository(directory: &Path) -> Option<PathBuf> {
    let has = |directory: &Path, name: &str| directory.join(name).symlink_metadata().is_ok();
    let mut above = directory.ancestors();
    if let Some(checkout) = above.find(|one| has(one, ".git")) {
        return Some(checkout.to_owned());
    }
    // A backend's folder is not a root, whatever it contains.
    let is_root = |one: &&Path| is_download(one, |name| has(one, name));
    let mut above = directory.ancestors().skip(1).chain([directory]);
    above.find(is_root).map(Path::to_owned)
}

/// Returns whether a link at `place` leads to a blob of a hub cache: the cache that contains it, or
/// one of a known form.
fn is_cached(place: &Path, target: &Path) -> bool {
    let Some(blobs) = target.parent().filter(|folder| folder.ends_with(BLOBS)) else {
        return false;
    };
    let home = blobs.parent().unwrap_or(blobs);
    let name = home.file_name().unwrap_or_default().to_string_lossy();
    let is_sum = |name: &str| name.len() >= 40 && name.bytes().all(|one| one.is_ascii_hexdigit());
    let blob = target.file_name().unwrap_or_default().to_string_lossy();
    place.starts_with(home.join(SNAPSHOTS))
        || REPOSITORIES.iter().any(|begin| name.starts_with(begin)) && is_sum(&blob)
}
