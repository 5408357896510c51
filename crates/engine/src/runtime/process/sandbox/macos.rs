//! Sandbox on macOS: `sandbox-exec` starts the process with a profile.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use super::SandboxPermissions;

/// Path of the system's sandbox program.
const PROGRAM: &str = "/usr/bin/sandbox-exec";

/// Rules for every process. They close users' folders; later rules open the allowed paths, since
/// the last matching rule counts.
const PROFILE: &str = r#"(version 1)
(allow default)
(deny network*)
(deny process-exec*)
(deny process-fork)
(deny signal (target others))
(deny process-info* (target others))
(deny file-write*)
(deny file-read-data (subpath "/Users") (subpath "/Volumes") (subpath "/private/tmp") (subpath "/private/var/folders") (subpath "/private/var/root") (subpath "/private/etc"))
(allow file-write-data file-read-data (literal "/dev/null"))
"#;

/// Wraps a command so that the system's sandbox program starts it.
pub(super) fn wrapped(command: &Command, allowed: &SandboxPermissions) -> Command {
    let program = Path::new(command.get_program());
    let mut outer = Command::new(PROGRAM);
    outer.arg("-p").arg(profile(program, allowed));
    outer.arg(program).args(command.get_args());
    outer.env_clear();
    let set = command.get_envs();
    outer.envs(set.filter_map(|(name, value)| Some((name, value?))));
    outer
}

fn profile(program: &Path, allowed: &SandboxPermissions) -> String {
    let mut profile = PROFILE.to_owned();
    let mut add = |what: &str, within: &str, path: &Path| {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        // Writing to a string does not fail.
        let _ = writeln!(profile, "(allow {what} ({within} {}))", quoted(&path));
    };
    add("process-exec* file-read*", "subpath", program);
    for path in &allowed.read {
        add("file-read*", "subpath", path);
    }
    for path in &allowed.list {
        add("file-read-data", "literal", path);
    }
    if let Some(scratch) = &allowed.scratch {
        add("file-read* file-write*", "subpath", scratch);
    }
    profile
}

/// Quotes a path as a string of the profile's language.
fn quoted(path: &Path) -> String {
    let text: OsString = path.into();
    let text = text.to_string_lossy();
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{text}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_closes_first_and_opens_what_is_allowed() {
        let allowed = SandboxPermissions {
            read: vec!["/Users/me/a \"model\"".into()],
            list: vec!["/Users/me/lib".into()],
            scratch: Some("/private/tmp/scratch".into()),
            devices: None,
        };
        let text = profile(Path::new("/Applications/pkgtool"), &allowed);
        let opened: Vec<&str> = text.lines().skip(PROFILE.lines().count()).collect();
        assert_eq!(
            opened,
            [
                r#"(allow process-exec* file-read* (subpath "/Applications/pkgtool"))"#,
                r#"(allow file-read* (subpath "/Users/me/a \"model\""))"#,
                r#"(allow file-read-data (literal "/Users/me/lib"))"#,
                r#"(allow file-read* file-write* (subpath "/private/tmp/scratch"))"#,
            ]
        );
        assert!(text.starts_with(PROFILE));
    }

    #[test]
    fn the_command_keeps_its_arguments_and_loses_the_rest_of_the_environment() {
        let mut command = Command::new("/bin/pkgtool");
        command.arg("engine-process").env_clear().env("TZ", "UTC");
        let outer = wrapped(&command, &SandboxPermissions::default());
        let arguments: Vec<_> = outer.get_args().skip(2).collect();
        assert_eq!(arguments, ["/bin/pkgtool", "engine-process"]);
        let set: Vec<_> = outer.get_envs().collect();
        assert_eq!(set, [("TZ".as_ref(), Some("UTC".as_ref()))]);
    }
}
