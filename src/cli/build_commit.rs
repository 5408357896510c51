//! Part of the build script: finds the commit that the binary is built from.
//!
//! The outcome is `VERSION_AND_COMMIT`: the crate's version, and behind it the commit in parentheses where
//! one is known. In this order: the variable `PKGTOOL_COMMIT`, for those who build from an archive (empty
//! means none); `.cargo_vcs_info.json`, which `cargo package` puts into a crate; in builds with
//! optimisation, git's own files beside `Cargo.toml`. Git itself is not run. A build for debugging asks
//! no git: it would be made anew after each commit.
//!
//! `cargo run` and `cargo test` hand the outcome on to what they start, so it must not look like one of
//! the gateway's settings.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::exit;

/// Names the commit.
const VARIABLE: &str = "PKGTOOL_COMMIT";
/// What `cargo package` writes about the checkout.
const VCS_INFO: &str = ".cargo_vcs_info.json";
/// Hexadecimal digits of a commit that are shown.
const SHOWN: usize = 10;

/// Tells rustc the version with the commit, or what is wrong with the variable, and ends.
pub(crate) fn tell() {
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let text = match commit() {
        Ok(Some(commit)) => format!("{version} ({})", &commit[..SHOWN.min(commit.len())]),
        Ok(None) => version,
        Err(fault) => {
            println!("cargo::error={fault}");
            exit(1);
        }
    };
    println!("cargo::rustc-env=VERSION_AND_COMMIT={text}");
}

/// The commit in hexadecimal digits, if anything tells it.
fn commit() -> Result<Option<String>, String> {
    if let Some(given) = env::var_os(VARIABLE) {
        let given = given.to_string_lossy().trim().to_owned();
        return match given.as_str() {
            "" => Ok(None),
            commit if is_hash(commit) => Ok(Some(given)),
            other => Err(format!(
                "{VARIABLE} is `{other}`, expected 7 to 64 hexadecimal digits or nothing"
            )),
        };
    }
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    if let Ok(text) = fs::read_to_string(root.join(VCS_INFO)) {
        println!("cargo::rerun-if-changed={VCS_INFO}");
        return Ok(packaged(&text));
    }
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        return Ok(checked_out(&root.join(".git")));
    }
    Ok(None)
}

/// The value of `sha1` in `cargo package`'s file.
pub(crate) fn packaged(text: &str) -> Option<String> {
    let (_, after) = text.split_once("\"sha1\"")?;
    let commit = after.split('"').nth(1)?;
    is_hash(commit).then(|| commit.to_owned())
}

/// What `HEAD` stands on. `.git` is a file in a worktree, which names the folder; branches are in the
/// folder that its `commondir` names then.
pub(crate) fn checked_out(git: &Path) -> Option<String> {
    let own = match fs::read_to_string(git) {
        Ok(link) => git.parent()?.join(link.strip_prefix("gitdir:")?.trim()),
        Err(_) => git.to_owned(),
    };
    let common = match fs::read_to_string(own.join("commondir")) {
        Ok(path) => own.join(path.trim()),
        Err(_) => own.clone(),
    };
    let head = watched(&own.join("HEAD"))?;
    let Some(branch) = head.trim().strip_prefix("ref: ") else {
        return Some(head.trim().to_owned()).filter(|commit| is_hash(commit));
    };
    let loose = common.join(branch);
    if let Some(commit) = watched(&loose) {
        return Some(commit.trim().to_owned()).filter(|commit| is_hash(commit));
    }
    // The next commit makes a file of the branch: its folder changes. Cargo must not be given a path that
    // does not exist, it would run this each time.
    if let Some(folder) = loose.ancestors().skip(1).find(|folder| folder.is_dir()) {
        println!("cargo::rerun-if-changed={}", folder.display());
    }
    let packed = watched(&common.join("packed-refs"))?;
    let mut lines = packed.lines().filter_map(|line| line.split_once(' '));
    let (commit, _) = lines.find(|(_, name)| *name == branch)?;
    is_hash(commit).then(|| commit.to_owned())
}

/// The text of a file of git's, which is looked at again when it changes.
fn watched(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    println!("cargo::rerun-if-changed={}", file.display());
    Some(text)
}

fn is_hash(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
