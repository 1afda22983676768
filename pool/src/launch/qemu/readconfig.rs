//! `-readconfig FILE`: what a file of options says about memory. Incus writes all of its guests so.
//!
//! It is only read, so that memory which is served as it stands (`memory-backend-memfd`, shared) is
//! known: a file is never rewritten, since a section is not always the same as the option of its
//! name, and what is secret in a file would be seen on a command line.

use super::options;
use crate::launch::error::PlanError;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// More than any guest's.
const MOST_BYTES: u64 = 1 << 20;

/// Sections about memory, and the options that say the same.
const SECTIONS: [(&str, &str); 4] = [
    ("machine", "-machine"),
    ("memory", "-m"),
    ("numa", "-numa"),
    ("object", "-object"),
];

/// What the files of a command line say about memory, as options. What is not there, cannot be read
/// or says something else is QEMU's to judge; it reads no further file that one names.
pub(in crate::launch) fn memory(arguments: &[OsString]) -> Result<Vec<OsString>, PlanError> {
    let given = options::read(arguments);
    let configs = given.iter().filter(|one| one.name == "readconfig");
    let mut all = Vec::new();
    for path in configs.filter_map(|one| one.value) {
        all.extend(options_of(&text(path)?.unwrap_or_default()));
    }
    Ok(all)
}

/// What a file says; `None` of one that QEMU cannot read either.
fn text(path: &str) -> Result<Option<String>, PlanError> {
    let unknown = |reason: &str| PlanError::Unreadable {
        option: "-readconfig".into(),
        text: path.into(),
        reason: format!("{reason}, so what it says of memory is not known"),
    };
    match Path::new(path).metadata() {
        Ok(known) if known.is_file() => {}
        Ok(known) if !known.is_dir() => return Err(unknown("it is a device or a pipe")),
        _ => return Ok(None),
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map(|file| file.take(MOST_BYTES + 1));
    if file
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .is_err()
    {
        return Ok(None);
    }
    if bytes.len() as u64 > MOST_BYTES {
        return Err(unknown("it is larger than 1 MiB"));
    }
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

fn options_of(text: &str) -> Vec<OsString> {
    let mut sections: Vec<(&str, Vec<String>)> = Vec::new();
    let mut is_memory = false;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            let (section, id) = name.split_once(' ').unwrap_or((name, ""));
            let known = SECTIONS.iter().find(|(known, _)| *known == section);
            is_memory = known.is_some();
            let id = id.trim().trim_matches('"');
            let id = (!id.is_empty()).then(|| format!("id={}", id.replace(',', ",,")));
            sections.extend(known.map(|(_, option)| (*option, Vec::from_iter(id))));
            continue;
        }
        let pair = line
            .split_once('=')
            .filter(|_| is_memory && !line.starts_with('#'));
        let Some(((name, value), (_, list))) = pair.zip(sections.last_mut()) else {
            continue;
        };
        let value = value.trim().trim_matches('"').replace(',', ",,");
        list.push(format!("{}={value}", name.trim()));
    }
    let is_about_memory = |(option, list): &(&str, Vec<String>)| {
        let is = |word: &str| list.iter().any(|pair| pair.starts_with(word));
        match *option {
            "-object" => is("qom-type=memory-backend-"),
            "-machine" => is("memory-backend="),
            _ => true,
        }
    };
    let words = sections.into_iter().filter(is_about_memory);
    let words = words.flat_map(|(option, list)| [option.to_owned(), list.join(",")]);
    words.map(OsString::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::{Backing, Ordinary, Plan};
    use std::ffi::OsStr;

    const QEMU: &str = "qemu-system-x86_64";

    /// As Incus writes it, shortened.
    const INCUS: &str = "# Machine\n[machine]\ngraphics = \"off\"\ntype = \"q35\"\naccel = \"kvm\"\n\n\
        [global]\ndriver = \"ICH9-LPC\"\nproperty = \"disable_s3\"\nvalue = \"1\"\n\n\
        [chardev \"console\"]\nbackend = \"pty\"\n\n\
        [memory]\nsize = \"2048M\"\n\n[smp-opts]\ncpus = \"2\"\nsockets = \"1\"\n\n\
        [object \"mem0\"]\nqom-type = \"memory-backend-memfd\"\nsize = \"1024M\"\npolicy = \"bind\"\n\
        share = \"on\"\nhost-nodes.0 = \"0\"\n\n[numa]\ntype = \"node\"\nnodeid = \"0\"\nmemdev = \"mem0\"\n\n\
        [object \"mem1\"]\nqom-type = \"memory-backend-memfd\"\nsize = \"1024M\"\n\
        policy = \"bind\"\nshare = \"on\"\nhost-nodes.0 = \"1\"\n\n\
        [numa]\ntype = \"node\"\nnodeid = \"1\"\nmemdev = \"mem1\"\n\n\
        [object \"sec0\"]\nqom-type = \"secret\"\ndata = \"hunter2\"\n\n\
        [device \"qemu_pcie0\"]\ndriver = \"pcie-root-port\"\nmultifunction = \"on\"\n";

    fn line(config: &Path) -> Vec<OsString> {
        vec!["-S".into(), "-readconfig".into(), config.into()]
    }

    fn config(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn memory_that_is_shared_already_is_served_as_its_file_says() {
        let file = config(INCUS);
        let arguments = line(file.path());
        let plan = Plan::managed(OsStr::new(QEMU), &arguments).unwrap();
        let plan = plan.expect("a guest");
        assert!(plan.is_injected());
        let needs: Vec<_> = plan
            .needs()
            .iter()
            .map(|need| (need.bytes, need.node))
            .collect();
        assert_eq!(needs, [(1 << 30, Some(0)), (1 << 30, Some(1))]);
        assert_eq!(plan.with_memory(&[]), arguments, "nothing is rewritten");
        let words = memory(&arguments).unwrap().join(OsStr::new(" "));
        assert!(!words.to_string_lossy().contains("hunter2"), "{words:?}");
    }

    #[test]
    fn memory_in_a_file_that_would_be_replaced_is_refused() {
        for kind in [
            "memory-backend-file\"\nmem-path = \"/dev/shm",
            "memory-backend-ram",
        ] {
            let file = config(&INCUS.replace("memory-backend-memfd", kind));
            let arguments = line(file.path());
            for plan in [
                Plan::managed(OsStr::new(QEMU), &arguments).map(|plan| plan.is_some()),
                Plan::new(OsStr::new(QEMU), &arguments, &[], &|_| false).map(|_| true),
            ] {
                let error = plan.unwrap_err().to_string();
                assert!(error.contains("make it memory-backend-memfd"), "{error}");
            }
        }
        let size = config("[memory]\nsize = \"1G\"\n");
        Plan::new(OsStr::new(QEMU), &line(size.path()), &[], &|_| false).unwrap_err();
    }

    /// As without such files.
    #[test]
    fn a_file_that_says_nothing_of_memory_is_none_of_the_plans_business() {
        let many = "#".repeat((1 << 20) - 1) + "\n";
        for text in [
            "",
            "[vnc \"default\"]\nvnc = \"none\"\n",
            "[machine]\ntype = \"q35\"\n",
            "[object \"rng\"]\nqom-type = \"rng-random\"\n",
            "size = \"1G\"\n[memory\n[\n]\n= \"\n",
            // Nothing includes another file.
            "readconfig = \"/etc/other.conf\"\n[readconfig]\nfile = \"/etc/other.conf\"\n",
            &many,
        ] {
            let file = config(text);
            let mut arguments = line(file.path());
            arguments.extend(["-m", "1G"].map(OsString::from));
            let plan = Plan::new(OsStr::new(QEMU), &arguments, &[], &|_| false).unwrap();
            assert_eq!(plan.ordinary(), Ordinary::Arguments(arguments.clone()));
            let backing = Backing {
                path: "/proc/self/fd/3".into(),
                align_bytes: None,
            };
            assert!(
                plan.with_memory(&[backing]).starts_with(&arguments),
                "{text}"
            );
        }
        let folder = tempfile::tempdir().unwrap();
        let circle = folder.path().join("circle");
        std::os::unix::fs::symlink(&circle, &circle).unwrap();
        for path in [Path::new("/proc/self"), Path::new("/no/such/file"), &circle] {
            assert_eq!(memory(&line(path)).unwrap(), [""; 0], "{path:?}");
        }
        assert_eq!(memory(&["-readconfig".into()]).unwrap(), [""; 0]);
    }

    /// Such a guest would have memory twice.
    #[test]
    fn a_file_that_is_not_read_is_refused_with_the_reason() {
        let many = config(&("#".repeat(1 << 20) + "\n[memory]\nsize = \"1G\"\n"));
        for (path, reason) in [
            (
                many.path(),
                "it is larger than 1 MiB, so what it says of memory is not known",
            ),
            (Path::new("/dev/zero"), "it is a device or a pipe"),
        ] {
            let mut arguments = line(path);
            arguments.extend(["-m", "1G"].map(OsString::from));
            let qemu = OsStr::new(QEMU);
            for error in [
                Plan::new(qemu, &arguments, &[], &|_| false)
                    .map(drop)
                    .unwrap_err(),
                Plan::managed(qemu, &arguments).map(drop).unwrap_err(),
                Plan::injected(qemu, &arguments, &[]).map(drop).unwrap_err(),
            ] {
                let expected = format!("-readconfig {}: {reason}", path.display());
                assert!(error.to_string().starts_with(&expected), "{error}");
            }
        }
    }
}
