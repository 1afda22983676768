//! Subcommands in groups, as `--help` lists them: [`listed`].

use clap::Command;
use std::fmt::Write as _;

/// Every subcommand in one group.
pub(crate) const GROUPS: [(&str, &[&str]); 6] = [
    ("Begin", &["demo"]),
    ("Machine", &["up", "layout", "blocks", "predict"]),
    (
        "Boot",
        &["boot", "watch", "matrix", "compare", "bisect", "stick"],
    ),
    ("Logs and records", &["doctor", "report", "gate", "history"]),
    ("Pool", &["pool"]),
    ("Bench", &["bench"]),
];

/// `command` with its subcommands listed by group.
pub(crate) fn listed(command: Command) -> Command {
    let styles = command.get_styles();
    let (header, literal) = (*styles.get_header(), *styles.get_literal());
    let names = GROUPS.iter().flat_map(|(_, names)| *names);
    let width = names.map(|name| name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for (group, names) in GROUPS {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{header}{group}:{header:#}");
        for name in names {
            let found = command.find_subcommand(name);
            let about = found.and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {literal}{name:width$}{literal:#}  {about}");
        }
        text.push('\n');
    }
    command.help_template(format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{text}\
         {header}Options:{header:#}\n{{options}}{{after-help}}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn every_subcommand_is_in_one_group_and_in_the_help() {
        let command = crate::Arguments::command();
        let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
        let mut shown: Vec<_> = shown.map(Command::get_name).collect();
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped.into_iter().copied().collect::<Vec<_>>(), shown);
        let help = listed(command.clone()).render_help().to_string();
        for name in shown {
            let about = command.find_subcommand(name).unwrap().get_about().unwrap();
            let lines = help.lines().filter(|line| {
                line.trim_start().starts_with(&format!("{name} "))
                    && line.ends_with(&about.to_string())
            });
            assert_eq!(lines.count(), 1, "{name} in {help}");
        }
        assert!(
            help.contains("Machine:\n  up ") && help.contains("--json"),
            "{help}"
        );
    }
}
