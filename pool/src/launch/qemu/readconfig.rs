//! `-readconfig FILE`: the same words as options, so that memory in a file is found and replaced
//! as on a command line. Incus writes all of its guests so.
//!
//! A section is an option, `[object "mem0"]` with `size = "8G"` is `-object id=mem0,size=8G`. What
//! is not known to be the same as an option is refused.

use super::options;
use super::properties::Properties;
use crate::launch::error::PlanError;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// More than any guest's.
const MOST_BYTES: u64 = 1 << 20;

/// Sections, and the options that say the same.
const SECTIONS: [(&str, &str); 20] = [
    ("accel", "accel"),
    ("audiodev", "audiodev"),
    ("boot-opts", "boot"),
    ("chardev", "chardev"),
    ("device", "device"),
    ("drive", "drive"),
    ("fsdev", "fsdev"),
    ("fw_cfg", "fw_cfg"),
    ("global", "global"),
    ("icount", "icount"),
    ("machine", "machine"),
    ("memory", "m"),
    ("mon", "mon"),
    ("netdev", "netdev"),
    ("numa", "numa"),
    ("object", "object"),
    ("overcommit", "overcommit"),
    ("rtc", "rtc"),
    ("smp-opts", "smp"),
    ("spice", "spice"),
];

/// The arguments with options in the place of each `-readconfig`; `None` where there is none.
///
/// # Errors
/// A file that cannot be read, or what is in it.
pub(in crate::launch) fn expanded(
    arguments: &[OsString],
) -> Result<Option<Vec<OsString>>, PlanError> {
    let given = options::read(arguments);
    let configs: Vec<_> = given
        .iter()
        .filter(|one| one.name == "readconfig")
        .collect();
    if configs.is_empty() {
        return Ok(None);
    }
    let mut all = Vec::new();
    let mut from = 0;
    for config in configs {
        let path = config.value.unwrap_or_default();
        let unreadable = |reason: String| PlanError::Unreadable {
            option: "-readconfig".into(),
            text: path.into(),
            reason,
        };
        let text = text(Path::new(path)).map_err(unreadable)?;
        all.extend_from_slice(&arguments[from..config.at]);
        all.extend(options_of(&text).map_err(unreadable)?);
        from = (config.at + 2).min(arguments.len());
    }
    all.extend_from_slice(&arguments[from..]);
    Ok(Some(all))
}

/// What a file says, which must stay to be read by QEMU, too.
fn text(path: &Path) -> Result<String, String> {
    let known = path.metadata().map_err(|error| error.to_string())?;
    if !known.is_file() {
        return Err("it is no file that can be read twice".into());
    }
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    let read = file.take(MOST_BYTES + 1).read_to_string(&mut text);
    read.map_err(|error| error.to_string())?;
    if text.len() as u64 > MOST_BYTES {
        return Err(format!("it has more than {MOST_BYTES} bytes"));
    }
    Ok(text)
}

/// Its sections as options.
fn options_of(text: &str) -> Result<Vec<OsString>, String> {
    let mut sections: Vec<(&str, Properties)> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |what: &str| format!("line {}, {line:?}: {what}", at + 1);
        if let Some(name) = line.strip_prefix('[') {
            let name = name
                .strip_suffix(']')
                .ok_or_else(|| wrong("expected [section] or [section \"id\"]"))?;
            let (section, id) = name.split_once(' ').map_or((name, None), |(section, id)| {
                (section, Some(id.trim().trim_matches('"')))
            });
            let mut known = SECTIONS.iter();
            let (_, option) = known
                .find(|(known, _)| *known == section)
                .ok_or_else(|| wrong("it is not known which option says the same"))?;
            let list = Properties::new();
            let list = id.into_iter().fold(list, |list, id| list.with("id", id));
            sections.push((option, list));
            continue;
        }
        let (name, value) = line
            .split_once('=')
            .ok_or_else(|| wrong("expected name = \"value\""))?;
        let value = value.trim();
        let value = value
            .strip_prefix('"')
            .and_then(|value| value.strip_suffix('"'))
            .filter(|value| !value.contains('"'))
            .ok_or_else(|| wrong("expected name = \"value\""))?;
        let (_, list) = sections
            .last_mut()
            .ok_or_else(|| wrong("it is in no section"))?;
        // Written so by newer versions: one of a list.
        let name = name.trim();
        let is_node = name
            .strip_prefix("host-nodes.")
            .is_some_and(|at| at.parse::<u8>().is_ok());
        let name = if is_node { "host-nodes" } else { name };
        *list = std::mem::replace(list, Properties::new()).with(name, value);
    }
    let words = sections.into_iter().flat_map(|(option, list)| {
        // A name that comes first must not be taken for the value of the option's own.
        [format!("-{option}"), list.write("")]
    });
    Ok(words.map(OsString::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::{Backing, Ordinary, Plan};
    use std::ffi::OsStr;

    /// As Incus writes it, with huge pages on two nodes of the host; shortened.
    const INCUS: &str = "# Machine\n[machine]\ngraphics = \"off\"\ntype = \"q35\"\naccel = \"kvm\"\n\n\
        [global]\ndriver = \"ICH9-LPC\"\nproperty = \"disable_s3\"\nvalue = \"1\"\n\n\
        [boot-opts]\nstrict = \"on\"\n\n# Console\n[chardev \"console\"]\nbackend = \"pty\"\n\n\
        # Memory\n[memory]\nsize = \"2048M\"\n\n# CPU\n[smp-opts]\ncpus = \"2\"\nsockets = \"1\"\n\n\
        [object \"mem0\"]\nqom-type = \"memory-backend-file\"\nmem-path = \"/dev/shm\"\nprealloc = \"on\"\n\
        discard-data = \"on\"\nsize = \"1024M\"\npolicy = \"bind\"\nshare = \"on\"\nhost-nodes.0 = \"0\"\n\n\
        [numa]\ntype = \"node\"\nnodeid = \"0\"\nmemdev = \"mem0\"\n\n\
        [object \"mem1\"]\nqom-type = \"memory-backend-file\"\nmem-path = \"/dev/shm\"\nsize = \"1024M\"\n\
        policy = \"bind\"\nshare = \"on\"\nhost-nodes.0 = \"1\"\n\n\
        [numa]\ntype = \"node\"\nnodeid = \"1\"\nmemdev = \"mem1\"\n\n\
        [device \"qemu_pcie0\"]\ndriver = \"pcie-root-port\"\nmultifunction = \"on\"\n";

    fn line(config: &Path) -> Vec<OsString> {
        vec![
            "-S".into(),
            "-readconfig".into(),
            config.into(),
            "-name".into(),
            "vm,debug-threads=on".into(),
        ]
    }

    fn config(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn memory_in_a_file_is_replaced_as_on_a_command_line() {
        let file = config(INCUS);
        let arguments = line(file.path());
        let plan = Plan::managed(OsStr::new("qemu-system-x86_64"), &arguments);
        let plan = plan.unwrap().expect("a guest");
        let nodes: Vec<_> = plan.needs().iter().map(|need| need.node).collect();
        assert_eq!(nodes, [Some(0), Some(1)]);
        let files: Vec<_> = (3..5)
            .map(|at| Backing {
                path: format!("/proc/self/fd/{at}"),
                align_bytes: None,
            })
            .collect();
        let words = plan.with_memory(&files).join(OsStr::new(" "));
        let expected = "-S -machine graphics=off,type=q35,accel=kvm \
            -global driver=ICH9-LPC,property=disable_s3,value=1 -boot strict=on \
            -chardev id=console,backend=pty -m size=2048M -smp cpus=2,sockets=1 \
            -object memory-backend-file,id=mem0,size=1024M,policy=bind,host-nodes=0,mem-path=/proc/self/fd/3,share=on \
            -numa type=node,nodeid=0,memdev=mem0 \
            -object memory-backend-file,id=mem1,size=1024M,policy=bind,host-nodes=1,mem-path=/proc/self/fd/4,share=on \
            -numa type=node,nodeid=1,memdev=mem1 \
            -device id=qemu_pcie0,driver=pcie-root-port,multifunction=on -name vm,debug-threads=on";
        assert_eq!(words, OsStr::new(expected));
        assert_eq!(plan.ordinary(), Ordinary::Arguments(arguments));
    }

    #[test]
    fn memory_that_is_shared_already_stays_in_its_file() {
        let shared = INCUS.replace("memory-backend-file", "memory-backend-memfd");
        let file = config(&shared);
        let arguments = line(file.path());
        let plan = Plan::managed(OsStr::new("qemu-system-x86_64"), &arguments);
        let plan = plan.unwrap().expect("a guest");
        assert!(plan.is_injected());
        assert_eq!(plan.needs().len(), 2);
        assert_eq!(plan.with_memory(&[]), arguments);
    }

    #[test]
    fn a_file_that_says_something_else_is_refused() {
        for (text, words) in [
            (
                "[tpmdev \"a\"]\n",
                "line 1, \"[tpmdev \\\"a\\\"]\": it is not known which option",
            ),
            ("\n[memory\n", "line 2"),
            ("size = \"1G\"\n", "in no section"),
            ("[memory]\nsize = 1G\n", "expected name = \"value\""),
            ("[memory]\nsize\n", "expected name = \"value\""),
            ("[memory]\nsize = \"1G\" \"\n", "expected name = \"value\""),
        ] {
            let file = config(text);
            let error = expanded(&line(file.path())).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        let large = config(&"#".repeat(1 << 20));
        assert!(expanded(&line(large.path())).is_ok());
        std::fs::write(large.path(), "#".repeat((1 << 20) + 1)).unwrap();
        for (path, words) in [
            (large.path(), "more than 1048576 bytes"),
            (Path::new("/dev/zero"), "no file that can be read twice"),
            (Path::new("/proc/self"), "no file that can be read twice"),
            (Path::new("/no/such/file"), "No such file"),
        ] {
            let error = expanded(&line(path)).unwrap_err().to_string();
            assert!(error.contains(words), "{}: {error}", path.display());
        }
        // One that says nothing is one.
        let nothing = config("");
        let words = ["-S", "-name", "vm,debug-threads=on"].map(OsString::from);
        assert_eq!(expanded(&line(nothing.path())).unwrap().unwrap(), words);
        let last = ["-S", "-readconfig"].map(OsString::from);
        expanded(&last).unwrap_err();
        assert_eq!(expanded(&words).unwrap(), None);
    }
}
