//! The browser that opens a page: [`open`], where a person sees one.

use std::env;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Opens `page`; whether that was tried and began.
pub(super) fn open(page: &Path) -> bool {
    let is_terminal = std::io::stdout().is_terminal();
    let Some(program) = program(is_terminal, |name| env::var_os(name)) else {
        return false;
    };
    // What it prints would be between our lines; a terminal that closes leaves it running.
    let child = Command::new(program)
        .arg(page)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    child.is_ok()
}

/// The program, where somebody looks at a terminal on a screen that has windows.
fn program(is_terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> Option<OsString> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    if !is_terminal {
        return None;
    }
    let screen = set("DISPLAY").or_else(|| set("WAYLAND_DISPLAY"));
    set("BROWSER").or_else(|| screen.map(|_| "xdg-open".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_opens_only_where_it_is_seen() {
        let of = |is_terminal, set: &[(&str, &str)]| {
            let variable = |name: &str| {
                let found = set.iter().find(|(one, _)| *one == name);
                found.map(|(_, value)| OsString::from(value))
            };
            program(is_terminal, variable)
        };
        assert_eq!(of(true, &[("DISPLAY", ":0")]), Some("xdg-open".into()));
        assert_eq!(
            of(true, &[("WAYLAND_DISPLAY", "w")]),
            Some("xdg-open".into())
        );
        assert_eq!(of(true, &[("BROWSER", "lynx")]), Some("lynx".into()));
        assert_eq!(of(true, &[("DISPLAY", "")]), None);
        assert_eq!(of(true, &[]), None);
        assert_eq!(of(false, &[("DISPLAY", ":0"), ("BROWSER", "lynx")]), None);
    }
}
