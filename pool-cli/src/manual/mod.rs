//! Manual pages and completions for shells, from the definition of the command line itself.

mod configuration;
mod page;

use crate::failure::Failure;
use clap::{Args, Command};
use clap_complete::Shell;
pub use page::Contents;
use std::fs;
use std::path::{Path, PathBuf};

/// Write manual pages and completions for shells
#[derive(Args)]
pub struct Options {
    /// The folder that gets man1/, man5/, bash/, zsh/ and fish/
    #[arg(long, value_name = "FOLDER")]
    into: PathBuf,
}

/// Writes those of `command`.
///
/// # Errors
/// Files that cannot be written.
pub fn write(options: &Options, command: Command, contents: &Contents<'_>) -> Result<(), Failure> {
    write_all(&options.into, command, contents).map_err(|error| unwritable(options, &error))
}

/// Writes that of the configuration, `pool.toml(5)`.
///
/// # Errors
/// A file that cannot be written.
pub fn write_configuration(options: &Options) -> Result<(), Failure> {
    let folder = options.into.join("man5");
    let written = fs::create_dir_all(&folder)
        .and_then(|()| fs::write(folder.join("pool.toml.5"), configuration::page()));
    written.map_err(|error| unwritable(options, &error))
}

fn unwritable(options: &Options, error: &std::io::Error) -> Failure {
    let folder = options.into.display();
    Failure::Io(format!("cannot write into {folder}: {error}"))
}

fn write_all(folder: &Path, mut command: Command, contents: &Contents<'_>) -> std::io::Result<()> {
    let mut for_pages = without_help(command.clone());
    for_pages.build();
    let name = command.get_name().to_owned();
    for (shell, part) in [
        (Shell::Bash, "bash"),
        (Shell::Zsh, "zsh"),
        (Shell::Fish, "fish"),
    ] {
        let folder = folder.join(part);
        fs::create_dir_all(&folder)?;
        clap_complete::generate_to(shell, &mut command, &name, &folder)?;
    }
    let pages = folder.join("man1");
    fs::create_dir_all(&pages)?;
    write_pages(&pages, &for_pages, &name, contents)
}

/// A page for `command` and each one below it.
fn write_pages(
    folder: &Path,
    command: &Command,
    program: &str,
    contents: &Contents<'_>,
) -> std::io::Result<()> {
    for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        write_pages(folder, one, program, contents)?;
    }
    let name = command.get_display_name().unwrap_or(program);
    let page = page::page(command, program, contents)?;
    fs::write(folder.join(format!("{name}.1")), page)
}

/// Without `help` among the subcommands: a page for it would say nothing.
fn without_help(command: Command) -> Command {
    let command = command.disable_help_subcommand(true);
    command.mut_subcommands(without_help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Subcommand;

    #[test]
    fn each_subcommand_has_a_page_and_each_shell_its_completions() {
        let command = crate::Subcommands::augment_subcommands(Command::new("firstlight-pool"));
        let folder = tempfile::tempdir().unwrap();
        let command = command.after_help("Exit codes:\n  0  done\n  2  wrong\n     usage");
        let contents = Contents {
            groups: &[("Ways in", &["run", "fill"])],
            examples: "firstlight-pool status   # what it has\n",
            see_also: &[("pool.toml", "5")],
        };
        write_all(folder.path(), command, &contents).unwrap();
        for page in ["", "-serve", "-run", "-resize", "-fill"] {
            let path = folder.path().join(format!("man1/firstlight-pool{page}.1"));
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains(".SH NAME"), "{}", path.display());
            assert!(text.contains(".SH \"EXIT STATUS\""), "{text}");
            assert!(!text.contains("EXTRA"), "{text}");
        }
        let page = |name: &str| {
            let path = folder.path().join(format!("man1/firstlight-pool{name}.1"));
            fs::read_to_string(path).unwrap()
        };
        for expected in [
            ".SS \"Ways in\"\n.TP\n\\fBfirstlight\\-pool\\-run\\fR(1)\n",
            ".SH EXAMPLES\n.nf\nfirstlight\\-pool status   # what it has\n.fi\n",
            ".TP\n\\fB2\\fR\nwrong usage\n",
            "\\fBpool.toml\\fR(5)\n",
        ] {
            assert!(page("").contains(expected), "{expected}: {}", page(""));
        }
        let run = page("-run");
        assert!(run.contains(".SH EXAMPLES\n.nf\n"), "{run}");
        let status = "once it runs; before that see firstlight \\-\\-help\n";
        assert!(run.contains(status), "{run}");
        for none in ["injector", "help", "help-run"] {
            let page = format!("man1/firstlight-pool-{none}.1");
            assert!(!folder.path().join(page).exists(), "{none}");
        }
        for file in [
            "bash/firstlight-pool.bash",
            "zsh/_firstlight-pool",
            "fish/firstlight-pool.fish",
        ] {
            let text = fs::read_to_string(folder.path().join(file)).unwrap();
            assert!(text.contains("resize"), "{file}");
        }
    }
}
