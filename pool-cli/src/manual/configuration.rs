//! `pool.toml(5)`: the shipped example of a configuration, whose comments say what each key is, as a manual page.

use firstlight_pool::config::EXAMPLE;
use roff::{Roff, bold, italic, roman};
use std::collections::BTreeSet;

/// A line of the example.
#[derive(Debug, PartialEq, Eq)]
enum Line<'e> {
    /// A comment of its own.
    Words(&'e str),
    /// `[table]`, or `[[table]]` of which there may be several.
    Table(&'e str),
    /// A key, its value there, and what is said beside it.
    Key(&'e str, &'e str, Option<&'e str>),
    Empty,
}

/// What a line is; a key or table behind `# ` is one that the example leaves out.
fn line_of(line: &str) -> Line<'_> {
    let text = line.trim();
    let text = text.strip_prefix('#').map_or(text, str::trim_start);
    let is_key = |key: &str| {
        let mut bytes = key.bytes();
        !key.is_empty() && bytes.all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    match text.split_once(" = ") {
        Some((key, rest)) if is_key(key) => {
            let (value, beside) = match rest.split_once(" #") {
                Some((value, beside)) => (value, Some(beside.trim())),
                None => (rest, None),
            };
            Line::Key(key, value.trim(), beside)
        }
        _ if text.starts_with('[') && text.ends_with(']') => Line::Table(text),
        _ if text.is_empty() => Line::Empty,
        _ => Line::Words(text),
    }
}

/// The page, in the language of manual pages.
pub(super) fn page() -> String {
    let version = concat!("firstlight-pool ", env!("CARGO_PKG_VERSION"));
    let mut page = Roff::new();
    page.control("TH", ["pool.toml", "5", "", version])
        .control("SH", ["NAME"])
        .text([roman("pool.toml - configuration of firstlight-pool")])
        .control("SH", ["DESCRIPTION"])
        .text([
            italic("/etc/firstlight/pool.toml"),
            roman(" says what memory is kept ready and for which users. It is TOML; beside each key is the value of the shipped example. "),
            bold("firstlight-pool check --config"),
            italic(" FILE"),
            roman(" looks at a file without a daemon, "),
            bold("systemctl reload firstlight-pool"),
            roman(" has a daemon read it again."),
        ])
        .control("SH", ["KEYS"]);
    // What a comment says is of the keys below it.
    let mut words: Vec<&str> = Vec::new();
    // A table that comes again says nothing new.
    let (mut table, mut seen) = ("", BTreeSet::new());
    // What the file begins with is how to try it.
    let lines = EXAMPLE.lines().skip_while(|line| line.starts_with('#'));
    for line in lines.map(line_of) {
        match line {
            Line::Words(text) => words.push(text),
            Line::Empty => {
                flush(&mut page, &mut words);
            }
            Line::Table(name) => {
                if name != table {
                    table = name;
                    page.control("SS", [name]);
                }
                flush(&mut page, &mut words);
            }
            Line::Key(key, value, beside) => {
                words.extend(beside);
                let said = said(&mut words);
                if seen.insert((table, key)) {
                    page.control("TP", []);
                    page.text([bold(key), roman(" = "), italic(value)]);
                    page.text([roman(said)]);
                }
            }
        }
    }
    flush(&mut page, &mut words);
    page.control("SH", ["SEE ALSO"])
        .text([bold("firstlight-pool"), roman("(1)")])
        .render()
}

/// A paragraph of the words there are.
fn flush(page: &mut Roff, words: &mut Vec<&str>) {
    if !words.is_empty() {
        page.control("PP", []);
        page.text([roman(said(words))]);
    }
}

/// The words there are, with the name of the program whose page this is.
fn said(words: &mut Vec<&str>) -> String {
    let text = std::mem::take(words).join(" ");
    text.replace("firstlight pool ", "firstlight-pool ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstlight_pool::config::Config;
    use std::path::Path;

    #[test]
    fn lines_are_told_apart() {
        for (line, expected) in [
            ("# Two words", Line::Words("Two words")),
            ("[fill]", Line::Table("[fill]")),
            ("# [[quota]]", Line::Table("[[quota]]")),
            (
                "rate = \"2G\"  # a second",
                Line::Key("rate", "\"2G\"", Some("a second")),
            ),
            ("# nice = 19", Line::Key("nice", "19", None)),
            ("", Line::Empty),
            ("#", Line::Empty),
        ] {
            assert_eq!(line_of(line), expected, "{line}");
        }
    }

    #[test]
    fn every_key_of_the_example_has_its_place() {
        let page = page();
        let lines: Vec<&str> = page.lines().collect();
        let mut keys = 0;
        for line in EXAMPLE.lines() {
            if let Line::Key(key, ..) = line_of(line) {
                let shown = format!("\\fB{key}\\fR = ");
                let at = lines.iter().position(|line| line.starts_with(&shown));
                let at = at.unwrap_or_else(|| panic!("{key}: {page}"));
                let words = lines[at + 1];
                assert!(
                    !words.is_empty() && !words.starts_with('.'),
                    "{key}: {words:?}"
                );
                keys += 1;
            }
        }
        assert!(keys > 25, "{keys}");
        assert!(page.contains("`firstlight\\-pool export`"), "{page}");
        assert!(!page.contains("firstlight pool "), "{page}");
    }

    /// The keys that may stand below `table`: a refusal lists them.
    fn known(table: &str) -> Vec<String> {
        let text = format!("{table}\nunheard = 1\n");
        let refused = Config::parse(Path::new("test"), &text).unwrap_err();
        let refused = refused.to_string();
        let (_, list) = refused
            .split_once("expected one of ")
            .unwrap_or_else(|| panic!("{table}: {refused}"));
        let list = list.lines().next().unwrap();
        list.split(", ")
            .map(|key| key.trim_matches('`').to_owned())
            .collect()
    }

    #[test]
    fn every_key_that_a_configuration_may_have_is_there() {
        let page = page();
        let tables = known("");
        let mut seen = 0;
        for key in &tables {
            let single = format!("\\fB{key}\\fR = ");
            let headings = [format!("[{key}]"), format!("[[{key}]]")];
            let heading = headings.iter().find(|heading| {
                let line = format!(".SS {heading}");
                page.lines().any(|seen| seen == line)
            });
            let Some(heading) = heading else {
                assert!(page.contains(&single), "{key}: {page}");
                continue;
            };
            let line = format!(".SS {heading}\n");
            let (_, part) = page.split_once(&line).unwrap();
            let part = part.split("\n.S").next().unwrap();
            for key in known(heading) {
                let shown = format!("\\fB{key}\\fR = ");
                let beside = format!("or {key} = ");
                assert!(
                    part.contains(&shown) || part.contains(&beside),
                    "{heading} {key}: {part}"
                );
                seen += 1;
            }
        }
        assert!(tables.len() >= 8 && seen >= 25, "{tables:?}, {seen}");
    }
}
