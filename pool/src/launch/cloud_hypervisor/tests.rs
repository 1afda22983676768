//! Command lines before and after.

use super::*;
use crate::launch::{Ordinary, Plan};

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

/// A command line that starts a guest.
fn guest(line: &str) -> Vec<OsString> {
    let starts = ["--kernel", "--api-socket"]
        .iter()
        .any(|option| line.contains(option));
    words(&if starts {
        line.into()
    } else {
        format!("{line} --kernel k")
    })
}

fn plan(line: &str, asked: &[&str]) -> Result<Plan, PlanError> {
    let asked: Vec<Need> = asked.iter().map(|text| text.parse().unwrap()).collect();
    let is_file = |path: &Path| path == Path::new("/var/saved");
    Plan::new(
        "/opt/cloud-hypervisor-static".as_ref(),
        &guest(line),
        &asked,
        &is_file,
    )
}

/// A command line, our `--memory`; what it becomes with the pool, and without.
type Case = (
    &'static str,
    &'static [&'static str],
    &'static str,
    &'static str,
);

/// Among them those of the VMM's docs/memory.md, as they stand there or joined with `=`.
const CASES: [Case; 13] = [
    (
        "--kernel vmlinux",
        &[],
        "--kernel vmlinux --memory size=0 --memory-zone id=mem0,size=536870912,FILE0",
        "--kernel vmlinux --memory size=536870912",
    ),
    (
        "--kernel vmlinux --cpus boot=2",
        &["4G"],
        "--kernel vmlinux --cpus boot=2 --memory size=0 --memory-zone id=mem0,size=4294967296,FILE0",
        "--kernel vmlinux --cpus boot=2 --memory size=4294967296",
    ),
    (
        "--memory size=1G --kernel vmlinux",
        &["1G@1"],
        "--memory size=0 --kernel vmlinux --memory-zone id=mem0,size=1073741824,FILE0",
        "--memory size=1G --kernel vmlinux",
    ),
    (
        "--memory=size=1G,mergeable=on,thp=on",
        &[],
        "--memory=size=0,thp=on --memory-zone id=mem0,size=1073741824,FILE0",
        "--memory=size=1G,mergeable=on,thp=on",
    ),
    (
        "--memory size=1G,hugepages=on,hugepage_size=2M,shared=off,prefault=on,reserve=on",
        &[],
        "--memory size=0 --memory-zone id=mem0,size=1073741824,FILE0",
        "--memory size=1G,hugepages=on,hugepage_size=2M,shared=off,prefault=on,reserve=on",
    ),
    (
        "--memory size=1G,hotplug_method=virtio-mem,hotplug_size=1G,hotplugged_size=512M",
        &[],
        "--memory size=0,hotplug_method=virtio-mem --memory-zone \
         id=mem0,size=1073741824,hotplug_size=1G,hotplugged_size=512M,FILE0",
        "--memory size=1G,hotplug_method=virtio-mem,hotplug_size=1G,hotplugged_size=512M",
    ),
    (
        "--memory size=0 --memory-zone id=mem0,size=1G",
        &[],
        "--memory size=0 --memory-zone id=mem0,size=1G,FILE0",
        "--memory size=0 --memory-zone id=mem0,size=1G",
    ),
    (
        "--memory size=0 --memory-zone id=mem0,size=1G,host_numa_node=0",
        &[],
        "--memory size=0 --memory-zone id=mem0,size=1G,FILE0",
        "--memory size=0 --memory-zone id=mem0,size=1G,host_numa_node=0",
    ),
    (
        "--memory size=0 --memory-zone id=mem0,size=1G,shared=on,file=/foo/bar id=mem1,size=1G,hugepages=on \
         --numa guest_numa_id=0,memory_zones=mem0 guest_numa_id=1,memory_zones=mem1",
        &[],
        "--memory size=0 --memory-zone id=mem0,size=1G,FILE0 id=mem1,size=1G,FILE1 \
         --numa guest_numa_id=0,memory_zones=mem0 guest_numa_id=1,memory_zones=mem1",
        "--memory size=0 --memory-zone id=mem0,size=1G,shared=on,file=/foo/bar id=mem1,size=1G,hugepages=on \
         --numa guest_numa_id=0,memory_zones=mem0 guest_numa_id=1,memory_zones=mem1",
    ),
    (
        "--memory size=0,hotplug_method=virtio-mem --memory-zone=id=mem0,size=1G,hotplug_size=1G --memory-zone=id=b,size=2M",
        &["1G@1", "2M@0"],
        "--memory size=0,hotplug_method=virtio-mem --memory-zone=id=mem0,size=1G,hotplug_size=1G,FILE0 \
         --memory-zone=id=b,size=2M,FILE1",
        "--memory size=0,hotplug_method=virtio-mem --memory-zone=id=mem0,size=1G,hotplug_size=1G --memory-zone=id=b,size=2M",
    ),
    (
        "--kernel vmlinux",
        &["1G@0", "2G"],
        "--kernel vmlinux --memory size=0 --memory-zone id=firstlight0,size=1073741824,FILE0 \
         id=firstlight1,size=2147483648,FILE1 --numa guest_numa_id=0,memory_zones=firstlight0 \
         guest_numa_id=1,memory_zones=firstlight1",
        "--kernel vmlinux --memory size=0 --memory-zone id=firstlight0,size=1073741824,host_numa_node=0 \
         id=firstlight1,size=2147483648 --numa guest_numa_id=0,memory_zones=firstlight0 \
         guest_numa_id=1,memory_zones=firstlight1",
    ),
    (
        "--disk path=a path=b --memory-zone id=m,size=2M --memory size=0 -v",
        &[],
        "--disk path=a path=b --memory-zone id=m,size=2M,FILE0 --memory size=0 -v",
        "--disk path=a path=b --memory-zone id=m,size=2M --memory size=0 -v",
    ),
    (
        "--memory thp=off --kernel vmlinux",
        &[],
        "--memory size=0,thp=off --kernel vmlinux --memory-zone id=mem0,size=536870912,FILE0",
        "--memory thp=off,size=536870912 --kernel vmlinux",
    ),
];

#[test]
fn command_lines_before_and_after() {
    for (line, asked, expected, without) in CASES {
        let plan = plan(line, asked).unwrap_or_else(|error| panic!("{line}: {error}"));
        let files: Vec<_> = (0..plan.needs().len())
            .map(|at| Backing {
                path: format!("/proc/self/fd/{}", 3 + at),
                align_bytes: None,
            })
            .collect();
        let expected = expected
            .replace("FILE0", "file=/proc/self/fd/3,shared=on")
            .replace("FILE1", "file=/proc/self/fd/4,shared=on");
        let expected = match (
            expected.contains("--kernel"),
            expected.split_once(" --memory-zone id=mem0,size=1073741824"),
        ) {
            (true, _) => words(&expected),
            // A new zone comes behind the rest.
            (false, Some((before, after))) if !line.contains("--memory-zone") => words(&format!(
                "{before} --kernel k --memory-zone id=mem0,size=1073741824{after}"
            )),
            (false, _) => guest(&expected),
        };
        assert_eq!(plan.with_memory(&files), expected, "{line}");
        assert_eq!(
            plan.ordinary(),
            Ordinary::Arguments(guest(without)),
            "{line}"
        );
    }
}

#[test]
fn a_slab_lies_where_its_zone_is_to_be() {
    let needs = |line, asked: &[&str]| plan(line, asked).unwrap().needs().to_vec();
    let need = |bytes, node| Need { bytes, node };
    let zone = "--memory size=0 --memory-zone id=m,size=1G,host_numa_node=2";
    assert_eq!(needs(zone, &[]), [need(1 << 30, Some(2))]);
    assert_eq!(needs(zone, &["1G@2"]), [need(1 << 30, Some(2))]);
    assert_eq!(
        needs("--memory size=2048K", &["2M@1"]),
        [need(2 << 20, Some(1))]
    );
}

#[test]
fn what_cannot_be_on_the_pool_is_refused_with_what_to_change() {
    for (line, asked, words) in [
        ("--api-socket /tmp/socket", &[][..], "starts no guest"),
        ("--memory size=0", &[], "--memory-zone"),
        ("--memory size=1G,shared=off", &[], "shared=off would copy"),
        (
            "--memory size=0 --memory-zone id=m,size=1G,shared=off",
            &[],
            "memory zone m: shared=off",
        ),
        ("--memory size=0 --memory-zone size=1G", &[], "has an id"),
        (
            "--memory size=0 --memory-zone id=m,size=1G,file=/var/saved",
            &[],
            "/var/saved would not be used",
        ),
        (
            "--memory size=0 --memory-zone id=m,size=1G id=m,size=2G",
            &[],
            "memory zone m: another zone has this id",
        ),
        (
            "--memory size=0 --memory-zone id=m,size=1G,file=/a id=n,size=1G,file=/a",
            &[],
            "memory zone n: its file /a is another zone's, too",
        ),
        ("--memory size=1G,hotplug_size=1G", &[], "virtio-mem"),
        (
            "--memory size=1G,hotplug_method=acpi,hotplug_size=1G",
            &[],
            "virtio-mem",
        ),
        ("--memory size=1G", &["2G"], "--memory size says 1 GiB"),
        (
            "--memory size=0 --memory-zone id=m,size=1G",
            &["2G"],
            "memory zone m says 1 GiB",
        ),
        (
            "--memory size=0 --memory-zone id=m,size=1G",
            &["1G", "1G"],
            "1 nodes",
        ),
        (
            "--memory size=0 --memory-zone id=m,size=1G,host_numa_node=1",
            &["1G@0"],
            "make them the same",
        ),
        (
            "--memory size=0 --memory-zone id=m,host_numa_node=x",
            &[],
            "no node of the host",
        ),
        (
            "--kernel k --numa guest_numa_id=0",
            &["1G", "1G"],
            "its --numa names zones",
        ),
        ("--memory size=1G,shared=OFF", &[], "shared=off would copy"),
        (
            "--memory size=1G --landlock",
            &[],
            "--landlock allows files",
        ),
        (
            "--memory size=1G,hotplug_method=virtio-mem,hotplug_size=1G,hugepages=true",
            &[],
            "would have neither",
        ),
        (
            "--memory size=0 --memory-zone id=m,size=1G,hotplug_size=1G,host_numa_node=1",
            &[],
            "memory zone m: hotplug_size beside",
        ),
        ("--memory size=1T", &[], "no size"),
        ("--memory size=1GG", &[], "no size"),
        ("--memory size=-1", &[], "no size"),
        ("--memory size=18446744073709551615G", &[], "no size"),
        ("--memory 1G", &[], "property=value"),
        ("--memory-zone [id=a]", &[], "brackets"),
        (
            "--restore source_url=file:///saved",
            &["1G"],
            "its own memory",
        ),
    ] {
        let error = plan(line, asked)
            .map(|plan| plan.with_memory(&[]))
            .unwrap_err();
        assert!(error.to_string().contains(words), "{line}: {error}");
    }
}

/// A folder, in which each zone has a file of its own without a name.
#[test]
fn zones_may_name_one_folder() {
    let line = "--memory size=0 --memory-zone id=m,size=2M,file=/dev id=n,size=2M,file=/dev";
    assert_eq!(plan(line, &[]).unwrap().needs().len(), 2);
}

#[test]
fn what_changes_is_noted() {
    let notes = |line| plan(line, &[]).unwrap().notes().to_vec();
    assert_eq!(notes("--memory size=1G"), [SNAPSHOTS]);
    let zone =
        "--memory size=0,hotplug_method=virtio-mem --memory-zone id=m,size=1G,hotplug_size=1G";
    assert_eq!(notes(zone), [PLUGGED, SNAPSHOTS]);
    assert_eq!(
        notes("--memory size=1G,mergeable=on"),
        [NOT_MERGED, SNAPSHOTS]
    );
    let merged = "--memory size=0,mergeable=on --memory-zone id=m,size=1G";
    assert_eq!(notes(merged), [NOT_MERGED, SNAPSHOTS]);
    let file = Backing {
        path: "F".into(),
        align_bytes: None,
    };
    let expected = "--memory size=0 --memory-zone id=m,size=1G,file=F,shared=on --kernel k";
    assert_eq!(
        plan(merged, &[]).unwrap().with_memory(&[file]),
        words(expected)
    );
}

/// Several zones without the pool are as `--memory` says, and what is not known stays for the VMM to judge.
#[test]
fn an_ordinary_start_keeps_what_it_had() {
    let line = "--memory size=2G,shared=on,hugepages=on,new=1";
    let seen = plan(line, &["1G@1", "1G"]).unwrap().ordinary();
    let expected = "--memory size=0,new=1 --kernel k --memory-zone \
        id=firstlight0,size=1073741824,shared=on,hugepages=on,host_numa_node=1 \
        id=firstlight1,size=1073741824,shared=on,hugepages=on \
        --numa guest_numa_id=0,memory_zones=firstlight0 guest_numa_id=1,memory_zones=firstlight1";
    assert_eq!(seen, Ordinary::Arguments(words(expected)));
}

#[test]
fn it_is_known_by_its_name() {
    for (name, is) in [
        ("cloud-hypervisor", true),
        ("/usr/local/bin/cloud-hypervisor-static-aarch64", true),
        ("cloud-hypervisors", false),
        ("ch-remote", false),
    ] {
        assert_eq!(is_it(name.as_ref()), is, "{name}");
    }
}
