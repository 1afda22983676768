//! README and guides are held to the program: commands and their options exist, exit codes and schemas are all
//! there, outputs are what the commands print, links lead somewhere.

use crate::common::guest;
use crate::common::{command, told};

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub(crate) fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// README and guides, by their paths.
pub(crate) fn documents() -> Vec<PathBuf> {
    let guides = fs::read_dir(root().join("docs")).unwrap();
    let names = guides.map(|entry| Path::new("docs").join(entry.unwrap().file_name()));
    let mut paths: Vec<PathBuf> = names
        .filter(|path| path.extension().is_some_and(|ending| ending == "md"))
        .collect();
    paths.push("README.md".into());
    assert!(paths.len() > 10, "{paths:?}");
    paths
}

/// Blocks of code of this language.
pub(crate) fn blocks(text: &str, language: &str) -> Vec<String> {
    let begin = format!("```{language}\n");
    let parts = text.split(&begin).skip(1);
    let block = |part: &str| part.split("\n```").next().unwrap_or_default().to_owned();
    parts.map(block).collect()
}

/// The words of each command of ours in a shell's text, without `firstlight` itself. `firstlight-pool` is the same as
/// `firstlight pool`.
pub(crate) fn commands(shell: &str) -> Vec<Vec<String>> {
    let lines = shell.replace("\\\n", " ");
    let parts = lines.lines().flat_map(|line| line.split(" | "));
    let after = parts.filter_map(|part| {
        let part = part.trim_start().trim_start_matches("sudo ");
        let pool = part
            .strip_prefix("firstlight-")
            .filter(|part| part.starts_with("pool "));
        pool.or_else(|| part.strip_prefix("firstlight "))
    });
    after
        .filter(|words| !words.starts_with('-'))
        .map(|words| shlex::split(words).unwrap_or_else(|| panic!("no words: {words}")))
        .collect()
}

/// The `--help` of a command.
pub(crate) fn help(cache: &mut BTreeMap<Vec<String>, String>, path: &[String]) -> String {
    let make = || {
        let mut arguments: Vec<&str> = path.iter().map(String::as_str).collect();
        arguments.push("--help");
        let (code, help, error) = told(&arguments);
        assert_eq!(code, 0, "firstlight {}: {error}", path.join(" "));
        help
    };
    cache.entry(path.to_vec()).or_insert_with(make).clone()
}

/// Those of `firstlight(1)`.
pub(crate) const EXAMPLES: &str = "cli/src/examples.txt";

#[test]
fn commands_of_the_documents_exist_with_their_options() {
    let (mut helps, mut seen) = (BTreeMap::new(), BTreeSet::new());
    let examples = PathBuf::from(EXAMPLES);
    for document in documents().into_iter().chain([examples]) {
        let text = read(&document);
        let shells = match document.ends_with(EXAMPLES) {
            true => vec![text],
            false => blocks(&text, "sh"),
        };
        for words in shells.iter().flat_map(|shell| commands(shell)) {
            let two: Vec<&str> = words.iter().take(2).map(String::as_str).collect();
            let deep = match two[..] {
                ["pool", "libvirt"] => 3,
                ["pool" | "bench", ..] => 2,
                _ => 1,
            };
            let path = &words[..deep.min(words.len())];
            let help = help(&mut helps, path);
            seen.insert(path[0].clone());
            let own = words[path.len()..].iter().take_while(|word| *word != "--");
            // With a space it is another command's words, in quotes.
            for option in own.filter(|word| word.starts_with("--") && !word.contains(' ')) {
                let name = option.split('=').next().unwrap_or_default();
                let has = help
                    .match_indices(name)
                    .any(|(at, _)| help[at + name.len()..].starts_with([' ', '\n', '[', ',']));
                assert!(
                    has,
                    "{}: firstlight {} has no {name}",
                    document.display(),
                    path.join(" ")
                );
            }
        }
    }
    let all = groups_of(&help(&mut helps, &[]));
    assert_eq!(seen, all, "a command without an example");
}

/// The commands below one.
pub(crate) fn commands_of(help: &str) -> BTreeSet<String> {
    let list = help
        .split_once("\nCommands:\n")
        .map_or("", |(_, rest)| rest);
    let lines = list.lines().take_while(|line| !line.is_empty());
    lines
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !name.is_empty() && *name != "help")
        .map(String::from)
        .collect()
}

/// The commands that `firstlight --help` lists.
pub(crate) fn groups_of(help: &str) -> BTreeSet<String> {
    let (list, _) = help.split_once("Options:").unwrap();
    let lines = list.lines().filter_map(|line| line.strip_prefix("  "));
    lines
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| Some(line.split_once("  ")?.0.to_owned()))
        .collect()
}

#[test]
fn targets_of_the_documents_are_in_the_makefile() {
    let makefile = read("Makefile");
    let mut found = 0;
    for document in documents() {
        for shell in blocks(&read(&document), "sh") {
            for line in shell.lines().filter_map(|line| line.strip_prefix("make ")) {
                let target = line.split(' ').next().unwrap_or_default();
                let rule = format!("\n{target}:");
                assert!(makefile.contains(&rule), "{}: {line}", document.display());
                found += 1;
            }
        }
    }
    assert!(found > 3);
}

#[test]
fn the_manual_has_a_page_for_each_command_with_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().to_str().unwrap();
    assert_eq!(told(&["manual", "--into", into]).0, 0);
    let page = |name: &str| {
        let path = folder.path().join(format!("man1/{name}.1"));
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let mut helps = BTreeMap::new();
    let text = help(&mut helps, &[]);
    let whole = page("firstlight");
    for name in groups_of(&text) {
        let listed = format!("\n\\fBfirstlight\\-{name}\\fR(1)\n");
        assert!(whole.contains(&listed), "{name}: {whole}");
        assert!(page(&format!("firstlight-{name}")).contains(".SH \"EXIT STATUS\""));
    }
    let (_, list) = text.split_once("Exit codes:\n").unwrap();
    let codes = list
        .lines()
        .filter_map(|line| line.trim_start().split_once("  "))
        .filter(|(code, _)| code.parse::<u8>().is_ok());
    let mut seen = 0;
    for (code, meaning) in codes {
        let meaning = meaning.replace('-', "\\-");
        let listed = format!(".TP\n\\fB{code}\\fR\n{meaning}");
        assert!(whole.contains(&listed), "{listed}: {whole}");
        seen += 1;
    }
    assert!(seen > 10, "{text}");
}

/// Names like `firstlight.run/1` in a text.
fn schemas(text: &str) -> BTreeSet<String> {
    let parts = text.split("firstlight.").skip(1);
    let name = |part: &str| {
        let (name, rest) = part.split_once('/')?;
        let version: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let is_name = name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        (is_name && !name.is_empty() && !version.is_empty()).then(|| format!("{name}/{version}"))
    };
    parts.filter_map(name).collect()
}

fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            text.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn schemas_are_those_of_the_sources() {
    let mut text = String::new();
    for part in ["bench", "cli", "lab", "pool", "pool-cli", "wire"] {
        sources(&root().join(part).join("src"), &mut text);
    }
    assert_eq!(schemas(&read("docs/schemas.md")), schemas(&text));
}

/// The lines of a document's block that begins with `first`, those of "..." left out.
fn shown(document: &str, first: &str) -> Vec<String> {
    let all = blocks(&read(document), "text");
    let block = all.iter().find(|block| block.starts_with(first));
    let block =
        block.unwrap_or_else(|| panic!("{document} has no block that begins with {first:?}"));
    let lines = block.lines().filter(|line| line.trim() != "...");
    lines.map(String::from).collect()
}

/// Every shown line is printed, in order.
fn is_printed(shown: &[String], printed: &str, alike: impl Fn(&str, &str) -> bool) {
    let mut lines = printed.lines();
    for line in shown {
        assert!(
            lines.any(|printed| alike(line, printed)),
            "{line:?} is not, or not there, in\n{printed}"
        );
    }
}

#[test]
fn two_logs_are_shown_as_the_doctor_prints_them() {
    let logs = ["4G", "256G"].map(|size| format!("testdata/golden/logs/A_6.1_{size}_n1_c4.log"));
    let printed = command(&["doctor", &logs[0], &logs[1]])
        .current_dir(root())
        .output()
        .unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    for document in ["README.md", "docs/doctor.md"] {
        let shown = shown(document, "  B is slower");
        assert!(shown.len() >= 5, "{shown:?}");
        is_printed(&shown, &printed, |shown, printed| shown == printed);
    }
}

#[test]
fn the_engine_on_the_bare_machine_takes_as_long_as_shown() {
    if !guest::qemu_is_here() {
        return;
    }
    let Some(image) = guest::image() else { return };
    let printed = command(&["boot", "--memory", "16G", "--clock", "instructions"])
        .env("FIRSTLIGHT_IMAGE", image)
        .output()
        .unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    let shown = shown("README.md", "Time line");
    assert!(shown.len() >= 5, "{shown:?}");
    // Before the kernel begins it is QEMU's firmware, which has versions.
    let ours = |line: &str| {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        let firmware = words
            .first()
            .is_some_and(|word| word.parse::<f64>().is_ok());
        words[usize::from(firmware)..].to_vec()
    };
    is_printed(&shown, &printed, |shown, printed| {
        ours(shown) == ours(printed)
    });
}

#[test]
fn the_readme_is_short_and_a_beginning() {
    let text = read("README.md");
    assert!(text.len() <= 5 * 1024, "{} bytes", text.len());
    for guide in ["docs/pool.md", "docs/lab.md", "docs/kernel.md"] {
        assert!(text.contains(&format!("]({guide})")), "{guide}");
    }
}

/// A list that a test writes.
const LONG: &str = "unsafe.md";

#[test]
fn every_page_is_in_the_index_and_short() {
    let index = read("docs/README.md");
    for document in documents() {
        let name = document.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(
            index.contains(&format!("]({name})")) || name == "README.md",
            "docs/README.md does not name {name}"
        );
        let bytes = read(&document).len();
        assert!(
            bytes <= 12 * 1024 || name == LONG,
            "{name} has {bytes} bytes"
        );
    }
}

#[test]
fn the_guide_for_kernels_is_in_pages_that_are_read_in_one_go() {
    let pages: Vec<PathBuf> = documents()
        .into_iter()
        .filter(|path| path.to_string_lossy().starts_with("docs/kernel"))
        .collect();
    assert!(pages.len() >= 4, "{pages:?}");
    for page in pages {
        let bytes = read(&page).len();
        assert!(bytes < 12 * 1024, "{}: {bytes} bytes", page.display());
    }
    // What may be called from where comes right after the first code.
    let text = read("docs/kernel.md");
    let (_, after) = text.split_once("```rust").unwrap();
    let heading = after.split("\n## ").nth(1).unwrap();
    assert!(heading.starts_with("What may be called from where"));
}

/// Where GitHub lets a heading be linked to.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let kept = line.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.replace(' ', "-");
        kept.chars()
            .filter(|c| c.is_alphanumeric() || "-_".contains(*c))
            .collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut found = 0;
    for document in documents() {
        let text = read(&document);
        let targets = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://") && !target.contains(' ')) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = match file {
                "" => document.clone(),
                file => document.parent().unwrap().join(file),
            };
            let name = document.display();
            assert!(root().join(&path).exists(), "{name}: no {target}");
            if !anchor.is_empty() {
                assert!(
                    anchors(&read(&path)).contains(anchor),
                    "{name}: no {target}"
                );
            }
            found += 1;
        }
    }
    assert!(found > 50, "{found}");
}
