//! What an operator should know of a machine before a configuration is used on it, though the daemon starts.

use crate::config::{Config, Size};
use crate::machine::Spec;
use crate::protocol::PageSize;
use firstlight_host::topology::nodes::total_bytes;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The first kernel that tells a connection's process for as long as it is open, by which its cgroup is found.
const CGROUP_SINCE: (u32, u32) = (6, 5);

/// Files and folders that say what the kernel's settings are after a start.
const SETTINGS: [&str; 5] = [
    "etc/sysctl.conf",
    "etc/sysctl.d",
    "run/sysctl.d",
    "usr/local/lib/sysctl.d",
    "usr/lib/sysctl.d",
];

/// All warnings; the files of the machine are below `root`, and `tells` says of which pages' files the kernel tells
/// who has them open.
pub(super) fn of(
    root: &Path,
    config: &Config,
    specs: &[Spec],
    tells: impl Fn(PageSize) -> bool,
) -> Vec<String> {
    let all = [
        cgroups(root, config),
        too_large(root, specs),
        not_for_good(root, specs),
        unseen_holders(specs, tells),
    ];
    all.into_iter().flatten().collect()
}

fn cgroups(root: &Path, config: &Config) -> Vec<String> {
    let of_cgroup = config.quota.iter().any(|quota| quota.cgroup.is_some());
    let release = fs::read_to_string(root.join("proc/sys/kernel/osrelease")).unwrap_or_default();
    let is_old = version(&release).is_some_and(|seen| seen < CGROUP_SINCE);
    let warning = || {
        format!(
            "a quota is for a cgroup, and Linux {} does not tell those of clients for certain: all but root are refused; \
             Linux {}.{} does",
            release.trim(),
            CGROUP_SINCE.0,
            CGROUP_SINCE.1
        )
    };
    (of_cgroup && is_old).then(warning).into_iter().collect()
}

/// Pages of whose files this kernel does not say who has them open.
fn unseen_holders(specs: &[Spec], tells: impl Fn(PageSize) -> bool) -> Vec<String> {
    let pages = specs.iter().map(|spec| spec.key.page);
    let reserved = pages.filter(|page| *page != PageSize::Transparent);
    let reserved: BTreeSet<PageSize> = reserved.collect();
    let unseen = reserved.into_iter().filter(|page| !tells(*page));
    let warning = |page| {
        format!(
            "this kernel does not say who has files of {page} pages open (Linux 7.0 and later): each slab of them that was \
             allocated counts as kept by its client for good, and stays charged; `thp` is as before"
        )
    };
    unseen.map(warning).collect()
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Slabs that no machine of this size can hold.
fn too_large(root: &Path, specs: &[Spec]) -> Vec<String> {
    let warning = |spec: &Spec| {
        let (place, path) = spec.key.node.map_or(
            ("this machine".to_owned(), "proc/meminfo".to_owned()),
            |node| {
                let path = format!("sys/devices/system/node/node{node}/meminfo");
                (format!("node {node}"), path)
            },
        );
        let all = total_bytes(&root.join(path)).ok()?;
        (spec.key.bytes > all).then(|| {
            let [bytes, all] = [spec.key.bytes, all].map(Size::new);
            format!("a slab of {bytes} is larger than the memory of {place}, {all}")
        })
    };
    specs.iter().filter_map(warning).collect()
}

/// Huge pages that are there now, and are not after a reboot.
fn not_for_good(root: &Path, specs: &[Spec]) -> Vec<String> {
    let command_line = fs::read_to_string(root.join("proc/cmdline")).unwrap_or_default();
    let at_start = at_start(&command_line);
    let pages: BTreeSet<PageSize> = specs.iter().map(|spec| spec.key.page).collect();
    let warning = |page: &PageSize| {
        match page {
        page if at_start.contains(&page.bytes()) => None,
        PageSize::Transparent => None,
        PageSize::Huge if is_set(root) => None,
        PageSize::Huge => Some(
            "pages of 2M are not set aside after a reboot: a line `vm.nr_hugepages = NUMBER` in \
             /etc/sysctl.d/firstlight-pool.conf, or `hugepages=NUMBER` for the kernel, does that"
                .to_owned(),
        ),
        PageSize::Giant => Some(
            "pages of 1G are not set aside after a reboot: `hugepagesz=1G hugepages=NUMBER` for the \
             kernel does that"
                .to_owned(),
        ),
    }
    };
    pages.iter().filter_map(warning).collect()
}

/// The sizes of pages that the kernel sets aside when it starts with this command line, read as it does: a
/// number is for the size named before it, or for the default one where none is.
fn at_start(command_line: &str) -> BTreeSet<u64> {
    let values = command_line.split_whitespace();
    let values = values.filter_map(|word| word.split_once('='));
    let default = values
        .clone()
        .find(|(name, _)| *name == "default_hugepagesz");
    let default = default.and_then(|(_, size)| size_of(size));
    let default = default.unwrap_or(PageSize::Huge.bytes());
    let (mut size, mut sizes) = (Some(default), BTreeSet::new());
    for (name, value) in values {
        match name {
            "hugepagesz" | "default_hugepagesz" => size = size_of(value),
            "hugepages" if sets_aside(value) => sizes.extend(size),
            _ => {}
        }
    }
    sizes
}

/// A size as the kernel reads it: a number and a letter.
fn size_of(word: &str) -> Option<u64> {
    let digits = word.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match &word[digits.len()..] {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Whether `hugepages=` asks for any: a number, or one for each of some nodes, `0:128,1:64`.
fn sets_aside(value: &str) -> bool {
    let numbers = value.split(',');
    let mut numbers = numbers.map(|one| one.split_once(':').map_or(one, |(_, pages)| pages));
    numbers.any(|pages| pages.parse::<u64>().is_ok_and(|pages| pages > 0))
}

/// Whether a file of settings sets huge pages aside.
fn is_set(root: &Path) -> bool {
    let sets = |path: &Path| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut lines = text.lines().map(|line| line.trim_start_matches(['-', ' ']));
        lines.any(|line| line.starts_with("vm.nr_hugepages") || line.starts_with("vm/nr_hugepages"))
    };
    SETTINGS.iter().any(|place| {
        let place = root.join(place);
        let files = fs::read_dir(&place).into_iter().flatten().flatten();
        sets(&place) || files.into_iter().any(|file| sets(&file.path()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "
        [[class]]
        page = \"2M\"
        node = 1
        size = \"8G\"
        slabs = 1
        [[class]]
        page = \"1G\"
        size = \"2G\"
        slabs = 1
        [[class]]
        page = \"thp\"
        size = \"2M\"
        slabs = 1
        [[quota]]
        cgroup = \"/machine.slice\"
        bytes = \"1G\"
    ";

    fn warnings(files: &[(&str, &str)]) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let config = Config::parse(Path::new("test"), CONFIG).unwrap();
        let specs: Vec<Spec> = config.class.iter().map(Spec::from).collect();
        of(root.path(), &config, &specs, |_| true)
    }

    #[test]
    fn pages_of_whose_files_no_holder_is_told_are_named_once() {
        let config = Config::parse(Path::new("test"), CONFIG).unwrap();
        let specs: Vec<Spec> = config.class.iter().map(Spec::from).collect();
        let told = unseen_holders(&specs, |page| page == PageSize::Giant);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("files of 2M pages open"), "{told:?}");
        assert!(unseen_holders(&specs, |_| true).is_empty());
    }

    #[test]
    fn an_old_kernel_a_small_node_and_pages_for_now_are_told() {
        let told = warnings(&[
            ("proc/sys/kernel/osrelease", "6.1.0-56-amd64\n"),
            ("proc/cmdline", "quiet splash"),
            ("proc/meminfo", "MemTotal:  4194304 kB\n"),
            (
                "sys/devices/system/node/node1/meminfo",
                "Node 1 MemTotal:  4194304 kB\n",
            ),
            (
                "etc/sysctl.d/other.conf",
                "# vm.nr_hugepages = 7\nvm.swappiness = 1\n",
            ),
        ]);
        for (warning, part) in told.iter().zip([
            "Linux 6.1.0-56-amd64 does not tell",
            "a slab of 8G is larger than the memory of node 1, 4G",
            "pages of 2M are not set aside",
            "pages of 1G are not set aside",
        ]) {
            assert!(warning.contains(part), "{part}: {warning}");
        }
        assert_eq!(told.len(), 4, "{told:?}");
    }

    #[test]
    fn a_machine_that_has_all_of_it_is_told_nothing() {
        let machine = [
            ("proc/sys/kernel/osrelease", "6.12.5\n"),
            ("proc/cmdline", "hugepages=7 hugepagesz=1G hugepages=4"),
            ("proc/meminfo", "MemTotal:  41943040 kB\n"),
            (
                "sys/devices/system/node/node1/meminfo",
                "Node 1 MemTotal:  41943040 kB\n",
            ),
        ];
        assert_eq!(warnings(&machine), [""; 0]);
        // Of pages of 2 MiB a file of settings says as much.
        let settings = ("usr/lib/sysctl.d/50-pages.conf", "-vm.nr_hugepages=4096\n");
        let told = warnings(&[machine[0], machine[2], machine[3], settings]);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("1G"), "{told:?}");
        // What cannot be read is not known to be wrong.
        assert!(
            !warnings(&[])
                .iter()
                .any(|told| told.contains("larger") || told.contains("cgroup"))
        );
    }

    #[test]
    fn pages_of_another_size_say_nothing_of_these() {
        let lacking = |command_line: &str| {
            let told = warnings(&[("proc/cmdline", command_line)]);
            let lacks = |size: &str| {
                let told = told.iter().any(|told| told.starts_with(size));
                told.then(|| size.trim_start_matches("pages of ").to_owned())
            };
            ["pages of 2M", "pages of 1G"]
                .into_iter()
                .filter_map(lacks)
                .collect::<Vec<_>>()
                .join(" ")
        };
        for (command_line, expected) in [
            ("", "2M 1G"),
            ("hugepages=512", "1G"),
            ("hugepagesz=2M hugepages=512", "1G"),
            ("hugepagesz=2048K hugepages=512", "1G"),
            ("hugepagesz=1G hugepages=4", "2M"),
            ("hugepages=512 hugepagesz=1G hugepages=4", ""),
            ("hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=512", ""),
            ("hugepagesz=1G hugepagesz=2M hugepages=512", "1G"),
            ("default_hugepagesz=1G hugepages=4", "2M"),
            ("hugepages=4 default_hugepagesz=1G", "2M"),
            ("default_hugepagesz=1G hugepagesz=2M hugepages=512", "1G"),
            ("default_hugepagesz=1G hugepagesz=1G hugepages=64", "2M"),
            ("hugepages=0:128,1:64", "1G"),
            ("hugepages=0:0,1:64", "1G"),
            ("hugepages=0:0,1:0", "2M 1G"),
            ("hugepages=0", "2M 1G"),
            ("hugepages=many", "2M 1G"),
            ("hugepagesz=16M hugepages=4", "2M 1G"),
            ("hugepagesz=x hugepages=4", "2M 1G"),
            ("default_hugepagesz=x hugepages=4", "2M 1G"),
        ] {
            assert_eq!(lacking(command_line), expected, "{command_line}");
        }
    }
}
