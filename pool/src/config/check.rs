//! What no single value shows: sizes that are no multiple of their pages, two
//! classes that are one, quotas that name no account or several.

use super::{Class, Config, Quota, Size};
use crate::machine::Spec;
use crate::protocol::MOST_NUMBER;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use toml::Spanned;

/// What is wrong, and at which bytes of the file.
pub(super) struct Wrong {
    pub(super) span: Option<Range<usize>>,
    pub(super) text: String,
}

fn wrong<T>(at: &Spanned<T>, text: impl Into<String>) -> Wrong {
    Wrong {
        span: Some(at.span()),
        text: text.into(),
    }
}

pub(super) fn check(config: &Config) -> Result<(), Wrong> {
    for (index, class) in config.class.iter().enumerate() {
        size(class)?;
        refill(class)?;
        let twin = |other: &Class| Spec::from(other).key == Spec::from(class).key;
        if config.class.iter().take(index).any(twin) {
            let text = "a class with this page, node and size is already there";
            return Err(wrong(&class.size, text));
        }
    }
    for (index, quota) in config.quota.iter().enumerate() {
        one_subject(quota)?;
        let twin = |other: &Quota| {
            let text = |name: &Option<Spanned<String>>| name.as_ref().map(|n| n.as_ref().clone());
            other.uid == quota.uid
                && text(&other.group) == text(&quota.group)
                && text(&other.cgroup) == text(&quota.cgroup)
        };
        if config.quota.iter().take(index).any(twin) {
            let text = "a quota for the same user, group or cgroup is already there";
            return Err(wrong(&quota.bytes, text));
        }
    }
    path("socket", &config.socket, MOST_SOCKET_BYTES)?;
    path("directory", &config.directory, MOST_PATH_BYTES)?;
    apart(config)?;
    batch(&config.fill.batch)?;
    percent("pause_at_pressure", &config.fill.pause_at_pressure)?;
    nice(config.fill.nice.as_ref())?;
    Ok(())
}

/// What fits into the address of a socket, and into a path, each with the zero at its end.
const MOST_SOCKET_BYTES: usize = 107;
const MOST_PATH_BYTES: usize = 4000;

fn path(name: &str, path: &Spanned<PathBuf>, most_bytes: usize) -> Result<(), Wrong> {
    let bytes = path.as_ref().as_os_str().as_bytes();
    if path.as_ref().is_absolute() && bytes.len() <= most_bytes && !bytes.contains(&0) {
        return Ok(());
    }
    let text = format!("`{name}` is no absolute path of at most {most_bytes} bytes");
    Err(wrong(path, text))
}

/// The daemon closes its folder to all others, and clients pass that of the socket.
fn apart(config: &Config) -> Result<(), Wrong> {
    let above = config.socket.as_ref().parent();
    if above.is_some_and(|above| above.starts_with(config.directory.as_ref())) {
        let text = "`socket` lies in `directory`, which the daemon closes to all others: set another, beside it or below";
        return Err(wrong(&config.directory, text));
    }
    Ok(())
}

fn size(class: &Class) -> Result<(), Wrong> {
    let (bytes, page) = (class.size.as_ref().bytes(), class.page.0);
    if bytes == 0 || bytes > MOST_NUMBER || !bytes.is_multiple_of(page.bytes()) {
        let text = format!(
            "`size` is {}, expected a multiple of the page size {page}",
            class.size.as_ref()
        );
        return Err(wrong(&class.size, text));
    }
    Ok(())
}

fn refill(class: &Class) -> Result<(), Wrong> {
    let page = class.page.0;
    let Some(refill) = &class.refill else {
        return Ok(());
    };
    let (bytes, most) = (refill.as_ref().bytes(), class.size.as_ref());
    if bytes == 0 || (page.bytes()..=most.bytes()).contains(&bytes) {
        return Ok(());
    }
    let text = format!(
        "`refill` is {}, expected 0, or {page} (a page) to {most} (a slab)",
        refill.as_ref()
    );
    Err(wrong(refill, text))
}

fn batch(batch: &Spanned<Size>) -> Result<(), Wrong> {
    let most = Size::new(1 << 30);
    if (1..=most.bytes()).contains(&batch.as_ref().bytes()) {
        return Ok(());
    }
    let text = format!("`batch` is {}, expected 1 to {most}", batch.as_ref());
    Err(wrong(batch, text))
}

fn percent(name: &str, value: &Spanned<u8>) -> Result<(), Wrong> {
    let percent = *value.as_ref();
    if percent <= 100 {
        return Ok(());
    }
    let text = format!("`{name}` is {percent}, expected a percentage, 0 to 100");
    Err(wrong(value, text))
}

fn nice(value: Option<&Spanned<u8>>) -> Result<(), Wrong> {
    match value {
        Some(value) if *value.as_ref() > 19 => {
            let text = format!("`nice` is {}, expected 0 to 19", value.as_ref());
            Err(wrong(value, text))
        }
        _ => Ok(()),
    }
}

fn one_subject(quota: &Quota) -> Result<(), Wrong> {
    let named = [
        quota.uid.is_some(),
        quota.group.is_some(),
        quota.cgroup.is_some(),
    ];
    if named.iter().filter(|named| **named).count() != 1 {
        let text = "a quota names one of `uid`, `group` and `cgroup`";
        return Err(wrong(&quota.bytes, text));
    }
    match &quota.cgroup {
        Some(path) if !path.as_ref().starts_with('/') || path.as_ref() == "/" => {
            let text = "`cgroup` is a path such as \"/machine.slice\"";
            Err(wrong(path, text))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use std::path::Path;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(Path::new("pool.toml"), text)
    }

    #[test]
    fn the_shipped_example_is_valid() {
        let config = parse(crate::config::EXAMPLE).unwrap();
        assert!(!config.class.is_empty());
    }

    #[test]
    fn an_empty_file_is_a_daemon_without_slabs() {
        assert_eq!(parse("").unwrap(), Config::default());
    }

    #[test]
    fn what_is_wrong_is_shown_with_its_line() {
        let class = "[[class]]\nslabs = 1\n";
        for (text, message, line) in [
            ("sockt = \"a\"", "unknown field `sockt`", 1),
            ("\n\nsocket = 7", "invalid type: integer `7`", 3),
            ("socket = ", "", 1),
            ("[fill]\nrate = \"fast\"", "\"fast\" is no size", 2),
            ("[fill]\nbatch = 0", "`batch` is 0", 2),
            (
                "[fill]\npause_at_pressure = 300",
                "invalid value: integer `300`",
                2,
            ),
            (
                "[fill]\npause_at_pressure = 200",
                "`pause_at_pressure` is 200, expected a percentage, 0 to 100",
                2,
            ),
            ("[fill]\nnice = 20", "`nice` is 20, expected 0 to 19", 2),
            ("[fill]\ncpus = \"3-1\"", "\"3-1\" is no list of CPUs", 2),
            ("[fill]\ncpus = \"\"", "\"\" is no list of CPUs", 2),
            (
                "[limits]\nconnections = -1",
                "invalid value: integer `-1`",
                2,
            ),
            ("metrics = \"127.0.0.1:80\"", "unknown field `metrics`", 1),
            ("[[class]]\nsize = \"1G\"", "missing field `slabs`", 1),
            (
                "[[class]]\nslabs = 1\nsize = \"3M\"",
                "expected a multiple of the page size 2M",
                3,
            ),
            (
                "[[class]]\nslabs = 1\nsize = \"0\"",
                "expected a multiple",
                3,
            ),
            (
                "[[class]]\nslabs=1\nsize=\"512M\"\npage=\"1G\"",
                "page size 1G",
                3,
            ),
            (
                "[[class]]\nslabs=1\nsize=\"2M\"\npage=\"4K\"",
                "unknown variant `4K`",
                4,
            ),
            (
                "[[class]]\nslabs=1\nsize=\"2M\"\nsource=\"disk\"",
                "unknown variant `disk`",
                4,
            ),
            (
                "[[class]]\nslabs=1\nsize=\"4M\"\nrefill=\"1M\"",
                "`refill` is 1M, expected 0, or 2M (a page) to 4M (a slab)",
                4,
            ),
            (
                "[[class]]\nslabs=1\nsize=\"4M\"\nrefill=\"6M\"",
                "`refill` is 6M",
                4,
            ),
            (
                "[fill]\nrefill_after_s = -1",
                "invalid value: integer `-1`",
                2,
            ),
            ("[[quota]]\nbytes = \"1G\"", "names one of", 2),
            (
                "[[quota]]\nuid = 1\nbytes = \"1G\"\n[[quota]]\nuid = 1\nbytes = \"2G\"",
                "already there",
                6,
            ),
            ("socket = \"\"", "`socket` is no absolute path", 1),
            (
                "\nsocket = \"pool.sock\"",
                "`socket` is no absolute path",
                2,
            ),
            ("directory = \"own\"", "`directory` is no absolute path", 1),
            (
                "socket = \"/a/b/c.sock\"\ndirectory = \"/a/./b/\"",
                "`socket` lies in `directory`",
                2,
            ),
            ("directory = \"/run\"", "`socket` lies in `directory`", 1),
            ("[limits]\nconnections = 0", "expected 1 or more", 2),
            (
                "[limits]\nconnections_per_user = 0",
                "expected 1 or more",
                2,
            ),
            ("[limits]\nidle_s = 0", "expected 1 or more", 2),
            ("[limits]\nunread_s = 0", "expected 1 or more", 2),
            (
                "[[quota]]\nbytes = \"1G\"\nuid = 1\ngroup = \"kvm\"",
                "names one of",
                2,
            ),
            (
                "[[quota]]\nbytes = \"1G\"\ncgroup = \"machine\"",
                "is a path",
                3,
            ),
        ] {
            let shown = parse(text).unwrap_err().to_string();
            assert!(shown.contains(message), "{text}: {shown}");
            let place = format!("pool.toml, line {line}: ");
            assert!(shown.starts_with(&place), "{text}: {shown}");
        }
        let twice = format!("{class}size = \"2M\"\n{class}size = \"2M\"\n");
        let shown = parse(&twice).unwrap_err().to_string();
        assert!(shown.contains("already there"), "{shown}");
        assert!(shown.contains("\n  6 | size = \"2M\""), "{shown}");
    }

    /// Every key, with a value that is none for it.
    const WRONG: [(&str, &str, &str); 34] = [
        ("", "socket", "1"),
        ("", "directory", "true"),
        ("", "keep_on_stop", "\"yes\""),
        ("", "access", "1"),
        ("", "fill", "7"),
        ("", "limits", "\"\""),
        ("", "class", "{}"),
        ("", "quota", "1"),
        ("[access]", "group", "1"),
        ("[access]", "quota", "\"lots\""),
        ("[access]", "observers", "false"),
        ("[fill]", "rate", "-1"),
        ("[fill]", "batch", "\"2G\""),
        ("[fill]", "pause_at_pressure", "101"),
        ("[fill]", "cpus", "3"),
        ("[fill]", "nice", "-5"),
        ("[fill]", "refill_rate", "1.5"),
        ("[fill]", "refill_after_s", "\"1\""),
        ("[limits]", "connections", "-1"),
        ("[limits]", "connections_per_user", "4294967296"),
        ("[limits]", "idle_s", "\"1m\""),
        ("[limits]", "unread_s", "0.5"),
        ("[[class]]", "page", "\"4K\""),
        ("[[class]]", "size", "\"8GB\""),
        ("[[class]]", "slabs", "-1"),
        ("[[class]]", "node", "\"0\""),
        ("[[class]]", "source", "\"disk\""),
        ("[[class]]", "trusted", "1"),
        ("[[class]]", "refill", "\"1K\""),
        ("[[class]]", "keep_under_pressure", "-1"),
        ("[[quota]]", "uid", "\"root\""),
        ("[[quota]]", "group", "1"),
        ("[[quota]]", "cgroup", "1"),
        ("[[quota]]", "bytes", "true"),
    ];

    #[test]
    fn every_key_with_a_wrong_value_is_refused_at_its_line() {
        for (table, key, value) in WRONG {
            // What a table cannot be without comes behind, so that the line is known.
            let needed = match table {
                "[[class]]" => ["size = \"4M\"", "slabs = 1"],
                "[[quota]]" => ["uid = 1", "bytes = \"1G\""],
                _ => ["", ""],
            };
            let rest = needed.into_iter().filter(|line| !line.starts_with(key));
            let rest: Vec<_> = rest.collect();
            let text = format!("# ours\n{table}\n{key} = {value}\n{}\n", rest.join("\n"));
            let shown = parse(&text).unwrap_err().to_string();
            assert!(shown.starts_with("pool.toml, line 3: "), "{text}: {shown}");
        }
        // The example names every key, so none is missing above.
        let example = crate::config::EXAMPLE;
        let keys = example.lines().filter_map(|line| {
            let (key, _) = line.trim_start_matches("# ").split_once(" = ")?;
            key.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
                .then_some(key)
        });
        for key in keys {
            assert!(WRONG.iter().any(|(_, known, _)| *known == key), "{key}");
        }
    }
}
