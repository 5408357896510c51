//! Sandbox on Linux: Landlock for files, networks and signals, and a filter of system calls
//! (seccomp) for everything else.

use std::io;
use std::path::Path;
use std::sync::OnceLock;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};

#[cfg(target_pointer_width = "64")]
use super::syscalls::restrict as restrict_syscalls;
use super::{Sandbox, SandboxPermissions};

/// Paths that every process may read: system libraries, its own state, information about the
/// processor, the local time.
const READABLE_PATHS: &[&str] = &[
    "/dev/null",
    "/dev/urandom",
    "/dev/zero",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/gnu/store",
    "/lib",
    "/lib64",
    "/nix/store",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/self",
    "/proc/stat",
    "/proc/sys/vm",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/sys/kernel/mm",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/share/zoneinfo",
];

/// Paths that drivers of graphics and neural processors read.
const READABLE_DEVICE_PATHS: &[&str] = &[
    "/etc/OpenCL",
    "/etc/drirc",
    "/etc/vulkan",
    "/proc/driver",
    "/sys",
    "/usr/local/share",
    "/usr/share",
];

/// Device files of graphics and neural processors. An asterisk matches the rest of a name.
const DEVICES: &[&str] = &[
    "/dev/adsprpc*",
    "/dev/dma_heap",
    "/dev/dri",
    "/dev/fastrpc*",
    "/dev/ion",
    "/dev/kfd",
    "/dev/kgsl*",
    "/dev/mali*",
    "/dev/nvidia*",
];

/// The Landlock version of Linux 6.2, the first that prevents files from being truncated.
const REQUIRED_ABI: ABI = ABI::V3;
/// The newest Landlock version that is used if the system supports it.
const NEWEST_ABI: ABI = ABI::V6;

pub(super) fn confine(allowed: &SandboxPermissions) -> Sandbox {
    let mut missing = Vec::new();
    let mut attempt = |done: Result<(), String>| missing.extend(done.err());
    attempt(close_inherited());
    attempt(set_no_new_privs(true).map_err(|error| format!("it may gain privileges ({error})")));
    attempt(drop_capabilities());
    attempt(restrict_files(allowed));
    attempt(restrict_syscalls());
    Sandbox::without(missing, allowed.devices.clone())
}

/// Closes file descriptors that the parent itself inherited unknowingly.
fn close_inherited() -> Result<(), String> {
    let unknown = |error: io::Error| format!("it may have inherited open files ({error})");
    let names = std::fs::read_dir("/proc/self/fd").map_err(unknown)?;
    let open: Vec<i32> = names
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|descriptor| *descriptor > 2)
        .collect();
    for descriptor in open {
        // The descriptor of the listing is closed already.
        let _ = nix::unistd::close(descriptor);
    }
    Ok(())
}

fn drop_capabilities() -> Result<(), String> {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none).map_err(|error| format!("it keeps its capabilities ({error})"))
}

#[cfg(not(target_pointer_width = "64"))]
fn restrict_syscalls() -> Result<(), String> {
    Err("it can make every system call (the filter needs a 64-bit processor)".to_owned())
}

fn restrict_files(allowed: &SandboxPermissions) -> Result<(), String> {
    let failed = |error: RulesetError| format!("it can read and write all files ({error})");
    let rules = rules(allowed).map_err(failed)?;
    let status = rules.restrict_self().map_err(failed)?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        RulesetStatus::PartiallyEnforced if can_restrict_files() => Ok(()),
        RulesetStatus::PartiallyEnforced => Err(
            "it can truncate and move files of the user (Linux before 6.2 has no protection)"
                .to_owned(),
        ),
        RulesetStatus::NotEnforced => Err(
            "it can read and write all files (this Linux has no Landlock, or it is not enabled)"
                .to_owned(),
        ),
    }
}

/// Returns `true` if the system can restrict all relevant accesses to files. The filter of system
/// calls covers the accesses that only newer systems restrict.
fn can_restrict_files() -> bool {
    let required = Ruleset::default()
        .set_compatibility(landlock::CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(REQUIRED_ABI));
    required.is_ok()
}

fn rules(allowed: &SandboxPermissions) -> Result<RulesetCreated, RulesetError> {
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST_ABI))?
        .handle_access(AccessNet::from_all(NEWEST_ABI))?
        .scope(Scope::from_all(NEWEST_ABI))?
        .create()?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = AccessFs::ReadFile | AccessFs::WriteFile;
    for path in READABLE_PATHS {
        rules = allow(rules, Path::new(path), read)?;
    }
    for path in &allowed.read {
        rules = allow(rules, path, read)?;
    }
    for path in &allowed.list {
        rules = allow(rules, path, AccessFs::ReadDir.into())?;
    }
    rules = allow(rules, Path::new("/dev/null"), write)?;
    if let Some(scratch) = &allowed.scratch {
        let all = AccessFs::from_all(REQUIRED_ABI) & !AccessFs::Execute;
        rules = allow(rules, scratch, all)?;
    }
    if allowed.devices.is_some() {
        for path in READABLE_DEVICE_PATHS {
            rules = allow(rules, Path::new(path), read)?;
        }
        for path in DEVICES.iter().flat_map(|pattern| matching(pattern)) {
            rules = allow(rules, &path, write | AccessFs::ReadDir | AccessFs::IoctlDev)?;
        }
    }
    Ok(rules)
}

/// Adds a rule for a path, if it exists.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let Ok(file) = PathFd::new(path) else {
        return Ok(rules);
    };
    let access = if path.is_dir() {
        access
    } else {
        access & AccessFs::from_file(NEWEST_ABI)
    };
    let rules = rules.add_rule(PathBeneath::new(&file, access))?;
    if path == Path::new("/proc/self") {
        hold(file);
    }
    Ok(rules)
}

/// Keeps a file open: a rule for a file of `/proc` is lost when the system drops the file.
fn hold(file: PathFd) {
    static HELD: OnceLock<PathFd> = OnceLock::new();
    let _ = HELD.set(file);
}

/// Returns the paths that match a pattern of [`DEVICES`].
fn matching(pattern: &str) -> Vec<std::path::PathBuf> {
    let Some(start) = pattern.strip_suffix('*') else {
        return vec![pattern.into()];
    };
    let (folder, start) = start.rsplit_once('/').unwrap_or(("", start));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(start))
        .map(|entry| entry.path())
        .collect()
}
