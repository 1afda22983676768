//! What a guest is called, by the command line that starts it.

use super::{is_qemu, qemu};
use crate::protocol::Label;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// QEMU's `-name`, which libvirt writes too, or else the last part of the program's path.
///
/// ```
/// use firstlight_pool::launch::label;
/// let arguments = ["-name", "guest=web,debug-threads=on"].map(Into::into);
/// assert_eq!(label("/usr/bin/qemu-system-x86_64".as_ref(), &arguments).as_str(), "web");
/// assert_eq!(label("/opt/some-vmm".as_ref(), &[]).as_str(), "some-vmm");
/// ```
#[must_use]
pub fn label(program: &OsStr, arguments: &[OsString]) -> Label {
    let named = is_qemu(program).then(|| qemu::name(arguments)).flatten();
    let name = named.unwrap_or_else(|| {
        let last = Path::new(program).file_name().unwrap_or(program);
        last.to_string_lossy().into_owned()
    });
    Label::new(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labelled(program: &str, line: &str) -> String {
        let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        label(program.as_ref(), &arguments).to_string()
    }

    #[test]
    fn a_guest_is_called_as_its_command_line_says() {
        let table = [
            ("-name web", "web"),
            ("--name web", "web"),
            ("-name guest=web,debug-threads=on", "web"),
            ("-name web,process=qemu:web,debug-threads=on", "web"),
            ("-name process=qemu:web,guest=web", "web"),
            ("-name a,,b", "a,b"),
            ("-name guest=a,,guest=b", "a,guest=b"),
            // QEMU has one list of all of them.
            ("-name a -m 1G -name guest=b", "b"),
            ("-name a -name process=p", "a"),
            ("-name guest=\u{1b}[2J\"$(x)", "?[2J??(x)"),
            ("-name größe", "größe"),
            ("-name process=p", "qemu-system-x86_64"),
            ("-name guest=", "qemu-system-x86_64"),
            ("-name", "qemu-system-x86_64"),
            ("-append -name -m 1G", "qemu-system-x86_64"),
        ];
        for (line, expected) in table {
            assert_eq!(
                labelled("/usr/bin/qemu-system-x86_64", line),
                expected,
                "{line}"
            );
        }
        for (program, expected) in [
            ("cloud-hypervisor", "cloud-hypervisor"),
            ("/opt/bin/vmm", "vmm"),
            ("..", ".."),
        ] {
            assert_eq!(labelled(program, "-name web"), expected, "{program}");
        }
    }
}
