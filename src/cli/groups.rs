//! The list of commands in `pkgtool --help`, under a heading for each of the tool's jobs.

use std::fmt::Write as _;

use clap::Command;

/// Each command's group, in the order of the list.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Author", &["init", "fix", "diff", "lsp"]),
    (
        "Check",
        &["validate", "inspect", "pull", "explain", "rules", "schema"],
    ),
    ("Run", &["run", "chat", "bench", "compare", "backends"]),
    ("Serve", &["serve", "train", "services", "predict", "task"]),
    ("Operate", &["accounts", "keys", "admin"]),
    ("Other", &["completions", "man", "help"]),
];

/// Replaces the list of commands in the help by one with groups.
pub(super) fn grouped(mut command: Command) -> Command {
    // Adds the command `help`.
    command.build();
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
            .filter_map(|name| Some((name, command.find_subcommand(name)?)))
            .collect();
        if commands.is_empty() {
            continue;
        }
        let _ = writeln!(list, "{heading}{group}:{heading:#}");
        for (name, command) in commands {
            let about = command.get_about().map(ToString::to_string);
            let about = about.unwrap_or_default();
            let _ = writeln!(list, "  {name_style}{name:<11}{name_style:#}  {about}");
        }
        list.push('\n');
    }
    list
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{GROUPS, list};
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
        let plain = clap::builder::StyledStr::from(list(&command)).to_string();
        let long = plain.lines().find(|line| line.chars().count() > 80);
        assert_eq!(long, None, "the list fits a terminal of 80 columns");
    }
}
