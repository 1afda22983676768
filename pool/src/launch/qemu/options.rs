//! QEMU's command line as QEMU reads it: options, some with a value.

use std::ffi::OsString;

/// Options that take no value. Any other takes the next argument.
const WITHOUT_VALUE: &[&str] = &[
    "h",
    "help",
    "version",
    "S",
    "s",
    "nographic",
    "curses",
    "daemonize",
    "snapshot",
    "no-fd-bootchk",
    "no-acpi",
    "no-hpet",
    "no-reboot",
    "no-shutdown",
    "no-quit",
    "no-frame",
    "alt-grab",
    "ctrl-grab",
    "sdl",
    "full-screen",
    "portrait",
    "win2k-hack",
    "usb",
    "nodefaults",
    "no-user-config",
    "nouserconfig",
    "enable-kvm",
    "only-migratable",
    "mem-prealloc",
    "preconfig",
    "semihosting",
    "old-param",
    "xen-attach",
    "xen-domid-restrict",
    "enable-sync-profile",
    "singlestep",
    "one-insn-per-tb",
    "show-cursor",
    "enable-fips",
    "async-teardown",
    "audio-help",
];

/// One option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Given<'a> {
    /// Without its dashes.
    pub(super) name: &'a str,
    /// Which argument it is.
    pub(super) at: usize,
    /// The next argument, if it takes one and that is text.
    pub(super) value: Option<&'a str>,
}

/// The options among `arguments`; disk images and what is no text are passed over.
pub(super) fn read(arguments: &[OsString]) -> Vec<Given<'_>> {
    let mut options = Vec::new();
    let mut at = 0;
    while let Some(argument) = arguments.get(at) {
        let name = argument.to_str().and_then(|text| text.strip_prefix('-'));
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            at += 1;
            continue;
        };
        let name = name.strip_prefix('-').unwrap_or(name);
        let takes_value = !WITHOUT_VALUE.contains(&name);
        let value = arguments.get(at + 1).filter(|_| takes_value);
        options.push(Given {
            name,
            at,
            value: value.and_then(|value| value.to_str()),
        });
        at += if takes_value { 2 } else { 1 };
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_no_options() {
        let arguments = "-nographic --machine q35 -append -m disk.img -m 8G -S".split(' ');
        let arguments: Vec<OsString> = arguments.map(OsString::from).collect();
        let seen: Vec<_> = read(&arguments)
            .into_iter()
            .map(|option| (option.name, option.at, option.value))
            .collect();
        let expected = [
            ("nographic", 0, None),
            ("machine", 1, Some("q35")),
            ("append", 3, Some("-m")),
            ("m", 6, Some("8G")),
            ("S", 8, None),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn odd_arguments_are_passed_over() {
        use std::os::unix::ffi::OsStringExt;
        let raw = OsString::from_vec(vec![b'-', 0xff]);
        let arguments = [raw.clone(), "-".into(), "-drive".into(), raw, "-m".into()];
        let seen: Vec<_> = read(&arguments);
        assert_eq!(seen.len(), 2);
        assert_eq!((seen[0].name, seen[0].value), ("drive", None));
        assert_eq!((seen[1].name, seen[1].value), ("m", None));
    }
}
