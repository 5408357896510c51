//! Accepts `--json` and `--format json` as synonyms, whichever of the two a command defines, and the earlier name of
//! `compare --data`, which was `--on`.
//!
//! Invariant: an argument is only replaced if the command lacks it and has the other one.

use std::ffi::OsString;
use std::path::Path;

use clap::Command;

/// Returns the arguments in the spelling that the command defines.
pub(super) fn normalize_json_options(
    arguments: impl IntoIterator<Item = OsString>,
    root: &Command,
) -> Vec<OsString> {
    let mut arguments = arguments.into_iter().peekable();
    let mut understood: Vec<OsString> = arguments.next().into_iter().collect();
    let mut command = root;
    while let Some(argument) = arguments.next() {
        let Some(text) = argument.to_str() else {
            understood.push(argument);
            continue;
        };
        match text {
            "--" => {
                understood.push(argument);
                break;
            }
            "--json" if !has(command, "json") && has(command, "format") => {
                understood.push("--format=json".into());
            }
            "--on" if has(command, "data") && arguments.peek().is_some_and(is_path) => {
                understood.push("--data".into());
            }
            "--format=json" if is_flag_only(command) => understood.push("--json".into()),
            "--format"
                if is_flag_only(command) && arguments.peek().is_some_and(|next| next == "json") =>
            {
                arguments.next();
                understood.push("--json".into());
            }
            word => {
                command = command.find_subcommand(word).unwrap_or(command);
                understood.push(argument);
            }
        }
    }
    understood.extend(arguments);
    understood
}

/// Returns whether a value of `--on` is a file or a directory, and not a device.
fn is_path(value: &OsString) -> bool {
    value != "local" && value != "adb" && Path::new(value).exists()
}

fn is_flag_only(command: &Command) -> bool {
    has(command, "json") && !has(command, "format")
}

fn has(command: &Command, option: &str) -> bool {
    command
        .get_arguments()
        .any(|argument| argument.get_long() == Some(option))
}
