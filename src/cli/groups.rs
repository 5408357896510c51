//! The list of commands in `pkgtool --help`, under a heading for each of the tool's jobs.

use std::fmt::Write as _;

use clap::Command;

/// The command that the library adds when it parses, and its description.
const HELP: &str = "help";
const HELP_ABOUT: &str = "Print this message or the help of the given subcommand(s)";

/// Each command's group, in the order of the list.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Author", &["init", "fix", "diff", "lsp"]),
    (
        "Check",
        &["validate", "inspect", "pull", "explain", "rules", "schema"],
    ),
    (
        "Run",
        &[
            "run", "chat", "bench", "compare", "eval", "backends", "devices",
        ],
    ),
    (
        "Serve",
        &[
            "serve", "attach", "worker", "train", "services", "predict", "task",
        ],
    ),
    ("Operate", &["accounts", "keys", "workers", "admin"]),
    ("Other", &["completions", "man", HELP]),
];

/// Replaces the list of commands in the help by one with groups.
pub(super) fn grouped(command: Command) -> Command {
    let list = list(&command);
    let heading = *command.get_styles().get_header();
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{heading}Options:{heading:#}\n{{options}}{{after-help}}"
    ))
}

fn list(command: &Command) -> String {
    let heading = command.get_styles().get_header();
    let name_style = command.get_styles().get_literal();
    let mut list = String::new();
    for (group, names) in GROUPS {
        // A build without a feature lacks its commands.
        let commands: Vec<_> = names
            .iter()
            .filter_map(|name| Some((name, about(command, name)?)))
            .collect();
        if commands.is_empty() {
            continue;
        }
        let _ = writeln!(list, "{heading}{group}:{heading:#}");
        for (name, about) in commands {
            let _ = writeln!(list, "  {name_style}{name:<11}{name_style:#}  {about}");
        }
        list.push('\n');
    }
    list
}

/// Returns the description of a subcommand, if this build has it.
fn about(command: &Command, name: &str) -> Option<String> {
    if name == HELP {
        return Some(HELP_ABOUT.to_owned());
    }
    let subcommand = command.find_subcommand(name)?;
    Some(
        subcommand
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{GROUPS, HELP, HELP_ABOUT, list};
    use crate::cli::Cli;

    #[test]
    fn every_command_is_in_one_group() {
        let mut command = Cli::command();
        command.build();
        let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
        for subcommand in shown {
            let groups = GROUPS
                .iter()
                .filter(|(_, names)| names.contains(&subcommand.get_name()));
            assert_eq!(groups.count(), 1, "{}", subcommand.get_name());
        }
        let help = command.find_subcommand(HELP).and_then(|it| it.get_about());
        assert_eq!(help.map(ToString::to_string).as_deref(), Some(HELP_ABOUT));
        let plain = clap::builder::StyledStr::from(list(&command)).to_string();
        let long = plain.lines().find(|line| line.chars().count() > 80);
        assert_eq!(long, None, "the list fits a terminal of 80 columns");
    }
}
