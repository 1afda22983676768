//! A manual page of a command: [`page`].

use clap::Command;
use clap_mangen::Man;
use roff::{Roff, bold, roman};
use std::io::{self, Write as _};

/// What the page of a program has besides its own definition.
pub struct Contents<'c> {
    /// Its commands by group; without any they are one list.
    pub groups: &'c [(&'c str, &'c [&'c str])],
    /// Lines for a shell, with what they do behind `#`.
    pub examples: &'c str,
    /// Other pages, and their sections.
    pub see_also: &'c [(&'c str, &'c str)],
}

/// The page of `command`, which is built; `program` is the whole one, its own page has all of `contents`.
pub(super) fn page(
    command: &Command,
    program: &str,
    contents: &Contents<'_>,
) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone());
    let is_program = command.get_name() == program;
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().any(|option| !option.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    let has_commands = command.get_subcommands().any(|one| !one.is_hide_set());
    if is_program && !contents.groups.is_empty() {
        page.write_all(commands(command, contents.groups).as_bytes())?;
    } else if has_commands {
        man.render_subcommands_section(&mut page)?;
    }
    let mut sections = Sections {
        exit_status: exit_status(&format!("see {program} --help"), program),
        ..Sections::default()
    };
    if is_program && !contents.examples.is_empty() {
        sections.examples = verbatim(contents.examples);
    }
    let help = command.get_after_long_help();
    let help = help
        .or_else(|| command.get_after_help())
        .map(ToString::to_string);
    sections.add(&help.unwrap_or_default(), program);
    let mut also: Vec<(&str, &str)> = Vec::new();
    if is_program {
        also.extend(contents.see_also);
    } else {
        also.push((program, "1"));
    }
    page.write_all(sections.rendered(&also).as_bytes())?;
    if command.get_version().is_some() {
        man.render_version_section(&mut page)?;
    }
    Ok(page)
}

/// The commands, a list for each group.
fn commands(command: &Command, groups: &[(&str, &[&str])]) -> String {
    let mut roff = Roff::new();
    roff.control("SH", ["COMMANDS"]);
    for (group, names) in groups {
        roff.control("SS", [*group]);
        for one in names
            .iter()
            .filter_map(|name| command.find_subcommand(name))
        {
            let name = one.get_display_name().unwrap_or_else(|| one.get_name());
            let about = one.get_about().map(ToString::to_string);
            roff.control("TP", []);
            roff.text([bold(name), roman("(1)")]);
            roff.text([roman(about.unwrap_or_default())]);
        }
    }
    roff.render()
}

/// Lines as they stand.
fn verbatim(lines: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("nf", []);
    for line in lines.trim_end().lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
    roff
}

/// What the help of a command ends with, by section.
#[derive(Default)]
struct Sections {
    examples: Roff,
    exit_status: Roff,
}

impl Sections {
    /// Reads a help's end: paragraphs, each a heading and lines below it.
    fn add(&mut self, help: &str, program: &str) {
        for part in help.split("\n\n").filter(|part| !part.is_empty()) {
            if let Some(codes) = part.strip_prefix("Exit codes:") {
                self.exit_status = exit_status(codes, program);
                continue;
            }
            match part.split_once('\n') {
                Some((heading, lines)) if heading.ends_with(':') => {
                    if heading != "Examples:" {
                        self.examples.control("PP", []);
                        self.examples.text([roman(heading)]);
                    }
                    self.examples.extend([verbatim(lines)]);
                }
                _ => {
                    self.examples.control("PP", []);
                    self.examples.text([roman(part.replace('\n', " "))]);
                }
            }
        }
    }

    fn rendered(self, see_also: &[(&str, &str)]) -> String {
        let mut roff = Roff::new();
        let none = Roff::new();
        for (name, section) in [
            ("EXAMPLES", self.examples),
            ("EXIT STATUS", self.exit_status),
        ] {
            if section != none {
                roff.control("SH", [name]);
                roff.extend([section]);
            }
        }
        roff.control("SH", ["SEE ALSO"]);
        for (at, (name, section)) in see_also.iter().enumerate() {
            let comma = if at + 1 < see_also.len() { "," } else { "" };
            roff.text([bold(*name), roman(format!("({section}){comma}"))]);
        }
        roff.render()
    }
}

/// Codes with their meanings, or a sentence.
fn exit_status(codes: &str, program: &str) -> Roff {
    let mut roff = Roff::new();
    let mut meanings: Vec<(&str, String)> = Vec::new();
    for line in codes.lines().map(str::trim) {
        match (line.split_once("  "), meanings.last_mut()) {
            (Some((code, meaning)), _) if code.parse::<u8>().is_ok() => {
                meanings.push((code, meaning.to_owned()));
            }
            (_, Some((_, meaning))) => {
                meaning.push(' ');
                meaning.push_str(line);
            }
            _ => {
                let (before, after) = line
                    .split_once(&format!("{program} --help"))
                    .unwrap_or((line, ""));
                let mut words = vec![roman(before)];
                if before != line {
                    words.extend([bold(program), roman("(1)"), roman(after)]);
                }
                if !line.is_empty() {
                    roff.text(words);
                }
            }
        }
    }
    for (code, meaning) in meanings {
        roff.control("TP", []);
        roff.text([bold(code)]);
        roff.text([roman(meaning)]);
    }
    roff
}
