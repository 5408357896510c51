//! Part of the build script: finds the commit that the binary is built from.
//!
//! The result is the environment variable `VERSION_AND_COMMIT` for rustc: the crate's version,
//! followed by the commit in parentheses if it is known. The sources of the commit, in this order:
//!
//! 1. the variable `PKGTOOL_COMMIT`, for builds from an archive; if it is empty, the commit is
//!    unknown
//! 2. in release builds, the files in `.git` beside `Cargo.toml`; the program `git` is not run
//!
//! Debug builds do not read `.git`, since each commit would cause a rebuild.
//!
//! `cargo run` and `cargo test` pass the variable on to the programs they start. Its name must
//! therefore not look like one of the gateway's settings, which begin with `PKGTOOL_`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::exit;

/// Environment variable with the commit.
const COMMIT_VARIABLE: &str = "PKGTOOL_COMMIT";
/// Number of hexadecimal digits of the commit that are shown.
const SHOWN_COMMIT_DIGITS: usize = 10;

/// Sets `VERSION_AND_COMMIT` for rustc, or reports an invalid `PKGTOOL_COMMIT` and ends the build.
pub(crate) fn set_version_variable() {
    println!("cargo::rerun-if-env-changed={COMMIT_VARIABLE}");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let text = match commit() {
        Ok(Some(commit)) => format!(
            "{version} ({})",
            &commit[..SHOWN_COMMIT_DIGITS.min(commit.len())]
        ),
        Ok(None) => version,
        Err(fault) => {
            println!("cargo::error={fault}");
            exit(1);
        }
    };
    println!("cargo::rustc-env=VERSION_AND_COMMIT={text}");
}

/// Returns the commit in hexadecimal digits, if it is known.
fn commit() -> Result<Option<String>, String> {
    if let Some(given) = env::var_os(COMMIT_VARIABLE) {
        let given = given.to_string_lossy().trim().to_owned();
        return match given.as_str() {
            "" => Ok(None),
            commit if is_hash(commit) => Ok(Some(given)),
            other => Err(format!(
                "invalid {COMMIT_VARIABLE} `{other}`: expected 7 to 64 hexadecimal digits or nothing"
            )),
        };
    }
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
        return Ok(checked_out_commit(&root.join(".git")));
    }
    Ok(None)
}

/// Returns the commit of `HEAD`. In a worktree, `.git` is a file that names the worktree's folder,
/// and branches are in the folder that its `commondir` names.
pub(crate) fn checked_out_commit(git: &Path) -> Option<String> {
    let own = match fs::read_to_string(git) {
        Ok(link) => git.parent()?.join(link.strip_prefix("gitdir:")?.trim()),
        Err(_) => git.to_owned(),
    };
    let common = match fs::read_to_string(own.join("commondir")) {
        Ok(path) => own.join(path.trim()),
        Err(_) => own.clone(),
    };
    let head = read_watched(&own.join("HEAD"))?;
    let Some(branch) = head.trim().strip_prefix("ref: ") else {
        return Some(head.trim().to_owned()).filter(|commit| is_hash(commit));
    };
    let loose = common.join(branch);
    if let Some(commit) = read_watched(&loose) {
        return Some(commit.trim().to_owned()).filter(|commit| is_hash(commit));
    }
    // The next commit may create the file of the branch, which changes its folder. Cargo must not
    // watch a missing path, since it would rerun the build script each time.
    if let Some(folder) = loose.ancestors().skip(1).find(|folder| folder.is_dir()) {
        println!("cargo::rerun-if-changed={}", folder.display());
    }
    let packed = read_watched(&common.join("packed-refs"))?;
    let mut lines = packed.lines().filter_map(|line| line.split_once(' '));
    let (commit, _) = lines.find(|(_, name)| *name == branch)?;
    is_hash(commit).then(|| commit.to_owned())
}

/// Returns the text of one of Git's files, and makes Cargo rerun the build script when it changes.
fn read_watched(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    println!("cargo::rerun-if-changed={}", file.display());
    Some(text)
}

fn is_hash(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
