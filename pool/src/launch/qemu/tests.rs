//! Command lines before and after.

use super::*;
use crate::launch::{Ordinary, Plan};
use std::ffi::OsStr;

fn words(text: &str) -> Vec<OsString> {
    text.split_whitespace().map(OsString::from).collect()
}

fn files(count: usize) -> Vec<Backing> {
    (0..count)
        .map(|at| Backing {
            path: format!("/proc/self/fd/{}", 3 + 2 * at),
            align_bytes: None,
        })
        .collect()
}

fn joined(arguments: &[OsString]) -> String {
    let text = arguments.join(OsStr::new(" "));
    text.into_string().expect("text")
}

fn plan(line: &str, memory: &[&str]) -> Result<Plan, PlanError> {
    let memory: Vec<Need> = memory
        .iter()
        .map(|text| text.parse().expect("a need"))
        .collect();
    let is_file = |path: &Path| path == Path::new("/var/saved");
    Plan::new(
        OsStr::new("/usr/bin/qemu-system-x86_64"),
        &words(line),
        &memory,
        &is_file,
    )
}

/// A command line, `--memory`; what comes out with the pool, and without.
struct Case(
    &'static str,
    &'static [&'static str],
    &'static str,
    &'static str,
);

const FILE: &str = "share=on";
const CANON: &str = "x-use-canonical-path-for-ramblock-id=off";

const CASES: [Case; 12] = [
    Case(
        "-M q35 disk.img",
        &["8G"],
        "-M q35 disk.img -m 8192M -object memory-backend-file,id=pc.ram,size=8589934592,\
         CANON,mem-path=/proc/self/fd/3,FILE -machine memory-backend=pc.ram",
        "-M q35 disk.img -m 8192M",
    ),
    Case(
        "-m size=1G,slots=2,maxmem=4G -mem-path /dev/hugepages -mem-prealloc -S",
        &["1G@0"],
        "-m size=1G,slots=2,maxmem=4G -S -object memory-backend-file,id=pc.ram,\
         size=1073741824,CANON,mem-path=/proc/self/fd/3,FILE -machine memory-backend=pc.ram",
        "-m size=1G,slots=2,maxmem=4G -mem-path /dev/hugepages -mem-prealloc -S",
    ),
    Case(
        "-m 129 -append -m",
        &[],
        "-m 129 -append -m -object memory-backend-file,id=pc.ram,size=135266304,\
         CANON,mem-path=/proc/self/fd/3,FILE -machine memory-backend=pc.ram",
        "-m 129 -append -m",
    ),
    Case(
        "-object memory-backend-ram,id=ram,size=2G,prealloc=on,prealloc-threads=4,share=off \
         -machine q35,memory-backend=ram -object memory-backend-ram,id=other,size=1G",
        &[],
        "-object memory-backend-file,id=ram,size=2G,mem-path=/proc/self/fd/3,\
         FILE -machine q35,memory-backend=ram -object memory-backend-ram,id=other,size=1G -m 2048M",
        "-object memory-backend-ram,id=ram,size=2G,prealloc=on,prealloc-threads=4,share=off \
         -machine q35,memory-backend=ram -object memory-backend-ram,id=other,size=1G -m 2048M",
    ),
    Case(
        r#"-m 1G -object {"qom-type":"memory-backend-memfd","id":"pc.ram","hugetlb":true,"size":1073741824} -machine pc,memory-backend=pc.ram"#,
        &["1G"],
        r#"-m 1G -object {"id":"pc.ram","mem-path":"/proc/self/fd/3","qom-type":"memory-backend-file","share":true,"size":1073741824} -machine pc,memory-backend=pc.ram"#,
        r#"-m 1G -object {"qom-type":"memory-backend-memfd","id":"pc.ram","hugetlb":true,"size":1073741824} -machine pc,memory-backend=pc.ram"#,
    ),
    Case(
        "-m 3G -object memory-backend-file,id=a,size=1G,mem-path=/dev/hugepages,host-nodes=1,policy=bind \
         -object memory-backend-ram,id=b,size=2G -numa node,memdev=b -numa node,memdev=a -numa node,cpus=3",
        &[],
        "-m 3G -object memory-backend-file,id=a,size=1G,host-nodes=1,policy=bind,mem-path=/proc/self/fd/5,FILE \
         -object memory-backend-file,id=b,size=2G,mem-path=/proc/self/fd/3,FILE \
         -numa node,memdev=b -numa node,memdev=a -numa node,cpus=3",
        "-m 3G -object memory-backend-file,id=a,size=1G,mem-path=/dev/hugepages,host-nodes=1,policy=bind \
         -object memory-backend-ram,id=b,size=2G -numa node,memdev=b -numa node,memdev=a -numa node,cpus=3",
    ),
    Case(
        "-smp 2",
        &["1G", "2G@1"],
        "-smp 2 -m 3072M -object memory-backend-file,id=firstlight0,size=1073741824,mem-path=/proc/self/fd/3,FILE \
         -object memory-backend-file,id=firstlight1,size=2147483648,mem-path=/proc/self/fd/5,FILE \
         -numa node,nodeid=0,memdev=firstlight0 -numa node,nodeid=1,memdev=firstlight1",
        "-smp 2 -m 3072M -object memory-backend-ram,id=firstlight0,size=1073741824 \
         -object memory-backend-ram,id=firstlight1,size=2147483648,host-nodes=1,policy=preferred \
         -numa node,nodeid=0,memdev=firstlight0 -numa node,nodeid=1,memdev=firstlight1",
    ),
    Case(
        "-numa node,cpus=0 -numa node,cpus=1 -numa dist,src=0,dst=1,val=20",
        &["1G", "1G"],
        "-numa node,cpus=0,memdev=firstlight0 -numa node,cpus=1,memdev=firstlight1 -numa dist,src=0,dst=1,val=20 \
         -m 2048M -object memory-backend-file,id=firstlight0,size=1073741824,mem-path=/proc/self/fd/3,FILE \
         -object memory-backend-file,id=firstlight1,size=1073741824,mem-path=/proc/self/fd/5,FILE",
        "-numa node,cpus=0,memdev=firstlight0 -numa node,cpus=1,memdev=firstlight1 -numa dist,src=0,dst=1,val=20 \
         -m 2048M -object memory-backend-ram,id=firstlight0,size=1073741824 \
         -object memory-backend-ram,id=firstlight1,size=1073741824",
    ),
    Case(
        "-m 1536 -M pc-i440fx-5.0 -numa node,mem=512 -numa node,mem=1G,nodeid=1",
        &[],
        "-m 1536 -M pc-i440fx-5.0 -numa node,memdev=firstlight0 -numa node,nodeid=1,memdev=firstlight1 \
         -object memory-backend-file,id=firstlight0,size=536870912,mem-path=/proc/self/fd/3,FILE \
         -object memory-backend-file,id=firstlight1,size=1073741824,mem-path=/proc/self/fd/5,FILE",
        "-m 1536 -M pc-i440fx-5.0 -numa node,mem=512 -numa node,mem=1G,nodeid=1",
    ),
    Case(
        "-async-teardown -m 1G -object iothread,id=pc.ram",
        &[],
        "-async-teardown -m 1G -object iothread,id=pc.ram \
         -object memory-backend-file,id=firstlight0,size=1073741824,mem-path=/proc/self/fd/3,FILE \
         -machine memory-backend=firstlight0",
        "-async-teardown -m 1G -object iothread,id=pc.ram",
    ),
    Case(
        "-m 1G -object {'qom-type':'iothread','id':'i'}",
        &[],
        "-m 1G -object {'qom-type':'iothread','id':'i'} \
         -object memory-backend-file,id=pc.ram,size=1073741824,CANON,mem-path=/proc/self/fd/3,FILE \
         -machine memory-backend=pc.ram",
        "-m 1G -object {'qom-type':'iothread','id':'i'}",
    ),
    Case(
        "-m 4M -object rng-random,id=r -object memory-backend-file,id=nv,size=1M,mem-path=/var/saved,readonly=on",
        &[],
        "-m 4M -object rng-random,id=r -object memory-backend-file,id=nv,size=1M,mem-path=/var/saved,readonly=on \
         -object memory-backend-file,id=pc.ram,size=4194304,CANON,mem-path=/proc/self/fd/3,FILE \
         -machine memory-backend=pc.ram",
        "-m 4M -object rng-random,id=r -object memory-backend-file,id=nv,size=1M,mem-path=/var/saved,readonly=on",
    ),
];

#[test]
fn command_lines_become_what_qemu_wants() {
    for Case(line, memory, with, without) in CASES {
        let plan = plan(line, memory).expect(line);
        let seen = joined(&plan.with_memory(&files(plan.needs().len())));
        let expected = joined(&words(&with.replace("FILE", FILE).replace("CANON", CANON)));
        assert_eq!(seen, expected, "{line}");
        let Ordinary::Arguments(seen) = plan.ordinary() else {
            panic!("{line}: QEMU finds its own memory");
        };
        assert_eq!(joined(&seen), joined(&words(without)), "{line}");
    }
}

#[test]
fn needs_come_from_either_side() {
    let line = "-object memory-backend-ram,id=a,size=1G,host-nodes=1,policy=bind \
                -machine memory-backend=a";
    let need = |bytes, node| [Need { bytes, node }];
    assert_eq!(
        plan(line, &[]).expect("known").needs(),
        need(1 << 30, Some(1))
    );
    assert_eq!(
        plan(line, &["1G@1"]).expect("the same").needs(),
        need(1 << 30, Some(1))
    );
    assert_eq!(
        plan("-m 64", &[]).expect("-m").needs(),
        need(64 << 20, None)
    );
    assert_eq!(
        plan("", &["1G@3"]).expect("--memory").needs(),
        need(1 << 30, Some(3))
    );
}

#[test]
fn what_would_copy_is_said() {
    let line =
        "-m 1G -object memory-backend-memfd,id=a,size=1G,share=off -machine memory-backend=a";
    let notes = plan(line, &[]).expect("replaced").notes().join("\n");
    assert!(notes.contains("share=off of a becomes share=on"), "{notes}");
    let notes = plan("-m 1G -mem-path /dev/shm", &[])
        .expect("left out")
        .notes()
        .join("\n");
    assert!(notes.contains("-mem-path is left out"), "{notes}");
    assert!(
        plan("-m 1G", &[])
            .expect("nothing to say")
            .notes()
            .is_empty()
    );
}

#[test]
fn transparent_pages_are_aligned() {
    let file = Backing {
        path: "/proc/self/fd/9".into(),
        align_bytes: Some(2 << 20),
    };
    let seen = joined(&plan("-m 1G", &[]).expect("-m").with_memory(&[file]));
    assert!(seen.contains("share=on,align=2097152 -machine"), "{seen}");
}

#[test]
fn what_stands_in_the_way_is_said() {
    let table: [(&str, &[&str], &str); 23] = [
        ("-M q35", &[], "how much memory? give --memory"),
        ("-m 0", &[], "how much memory? give --memory"),
        (
            "-m 1G -machine memory-backend=x \
             -object {'qom-type':'memory-backend-ram','id':'x','size':1073741824}",
            &[],
            "key must be a string",
        ),
        (
            "-m 4G",
            &["8G"],
            "-m says 4 GiB, --memory says 8 GiB: make them the same",
        ),
        ("-m 4G", &["2G", "1G"], "-m says 4 GiB, --memory says 3 GiB"),
        ("-m 4X", &[], "-m 4X: \"4X\" is no size"),
        (
            "-m 1G -machine memory-backend=x",
            &[],
            "backend x: no -object of the command line",
        ),
        (
            "-object memory-backend-ram,id=x -machine memory-backend=x",
            &[],
            "backend x: it has no size",
        ),
        (
            "-object memory-backend-ram,id=x,size=1G -machine memory-backend=x",
            &["2G"],
            "memory backend x says 1 GiB, --memory says 2 GiB",
        ),
        (
            "-object memory-backend-ram,id=x,size=1G -machine memory-backend=x",
            &["1G", "1G"],
            "the guest has 1 nodes with memory, --memory was given 2 times",
        ),
        (
            "-numa node -numa node",
            &[],
            "the guest has 2 nodes and nothing says how much",
        ),
        (
            "-numa node -numa node",
            &["1G"],
            "the guest has 2 nodes with memory",
        ),
        (
            "-numa node,mem=1G",
            &["2G"],
            "the 1. -numa node,mem says 1 GiB, --memory says 2 GiB",
        ),
        (
            "-object memory-backend-file,id=x,size=1G,mem-path=/var/saved -machine memory-backend=x",
            &[],
            "backend x: its file /var/saved would not be used",
        ),
        (
            "-object memory-backend-epc,id=x,size=1G -machine memory-backend=x",
            &[],
            "backend x: a memory-backend-epc cannot be provided",
        ),
        (
            "-m 2G -object memory-backend-ram,size=1G -numa node,memdev= -numa node,memdev=",
            &[],
            "is named more than once",
        ),
        (
            "-m 1G -object memory-backend-ram,id=x,size=1G -machine memory-backend=x -numa node,memdev=x",
            &[],
            "backend x: it is named more than once",
        ),
        (
            "-object memory-backend-ram,id=x,size=1G,host-nodes=0-1,policy=bind -machine memory-backend=x",
            &[],
            "backend x: host-nodes=0-1 are several nodes of the host, and a slab lies on one",
        ),
        (
            "-object memory-backend-ram,id=x,size=1G,host-nodes=0,host-nodes=2 -machine memory-backend=x",
            &[],
            "host-nodes=0,2 are several",
        ),
        (
            "-object {\"qom-type\":\"memory-backend-ram\",\"id\":\"x\",\"size\":1073741824,\"host-nodes\":[0,1]} \
             -machine memory-backend=x",
            &[],
            "host-nodes=0,1 are several",
        ),
        (
            "-object memory-backend-ram,id=x,size=1G,host-nodes=0,policy=interleave -machine memory-backend=x",
            &[],
            "backend x: policy=interleave spreads the memory, and a slab lies on one node",
        ),
        (
            "-object memory-backend-ram,id=x,size=1G,host-nodes=1,policy=bind -machine memory-backend=x",
            &["1G@0"],
            "backend x: --memory names node 0 of the host, host-nodes=1",
        ),
        (
            "-object {\"qom-type\":\"memory-backend-ram\" -m 1G",
            &[],
            "\"memory-backend-ram\": EOF",
        ),
    ];
    for (line, memory, expected) in table {
        let error = plan(line, memory).expect_err(line).to_string();
        assert!(error.contains(expected), "{line}: {error}");
    }
    let program = OsStr::new("crosvm");
    let error = Plan::new(program, &[], &[], &|_| false).expect_err("unknown");
    assert!(error.to_string().contains("write {memory}"), "{error}");
    let wrapped = words("-c 0 /usr/bin/qemu-system-x86_64 -m 1G");
    let error = Plan::new(OsStr::new("taskset"), &wrapped, &[], &|_| false);
    let error = error.expect_err("no VMM").to_string();
    assert!(error.contains("taskset ... firstlight pool run"), "{error}");
}

#[test]
fn injection_leaves_the_command_line_alone() {
    let program = OsStr::new("qemu-system-x86_64");
    let line = "-m 1G -object memory-backend-memfd,id=a,size=1G -machine memory-backend=a";
    let plan = Plan::injected(program, &words(line), &[]).expect("a memfd");
    assert_eq!(plan.needs()[0].bytes, 1 << 30);
    assert_eq!(plan.with_memory(&[]), words(line));
    for (line, expected) in [
        ("-m 1G", "no memory-backend-memfd; without --inject"),
        (
            "-object memory-backend-ram,id=a,size=1G -machine memory-backend=a",
            "memory-backend-ram a is no memory-backend-memfd",
        ),
        (
            "-object memory-backend-memfd,id=a,size=1G,share=off -machine memory-backend=a",
            "share=off of a would copy",
        ),
        (
            "-object memory-backend-memfd,id=a,size=1G,host-nodes=0-1,policy=bind -machine memory-backend=a",
            "host-nodes=0-1 are several",
        ),
    ] {
        let error = Plan::injected(program, &words(line), &[])
            .expect_err(line)
            .to_string();
        assert!(error.contains(expected), "{line}: {error}");
    }
}

/// As Kata writes it (`govmm/qemu/qemu.go`): with huge pages, with shared memory for virtio-fs, and without.
#[test]
fn kata_starts_on_the_pool() {
    let before = "-name sandbox-1 -machine q35,accel=kvm,nvdimm=on -cpu host,pmu=off -m 2048M,slots=10,maxmem=9000M \
        -device virtio-serial-pci,disable-modern=true,id=serial0 -global kvm-pit.lost_tick_policy=discard \
        -vga none -no-user-config -nodefaults -nographic --no-reboot";
    let numa = "-numa node,memdev=dimm1 -smp 1,cores=1,threads=1,sockets=8,maxcpus=8";
    for memory in [
        "memory-backend-file,id=dimm1,size=2048M,mem-path=/dev/shm,share=on",
        "memory-backend-file,id=dimm1,size=2048M,mem-path=/dev,share=on,prealloc=on",
        "memory-backend-file,id=dimm1,size=2048M,mem-path=/dev,prealloc=on",
        "memory-backend-ram,id=dimm1,size=2048M",
    ] {
        let arguments = words(&format!("{before} -object {memory} {numa}"));
        let plan = Plan::managed(OsStr::new("qemu-system-x86_64"), &arguments);
        let plan = plan.unwrap().expect("a guest");
        let expected = format!(
            "{before} -object memory-backend-file,id=dimm1,size=2048M,mem-path=/proc/self/fd/3,share=on {numa}"
        );
        assert_eq!(plan.with_memory(&files(1)), words(&expected), "{memory}");
        assert_eq!(plan.ordinary(), Ordinary::Arguments(arguments), "{memory}");
    }
}

#[test]
fn dimms_come_from_the_pool_beside_the_guests_own_memory() {
    let dimms = "-object memory-backend-file,id=d0,size=1G,mem-path=/dev/hugepages,host-nodes=1,policy=bind \
        -device pc-dimm,id=dimm0,memdev=d0 \
        -object memory-backend-ram,id=pmem,size=1G -device nvdimm,memdev=pmem";
    let on_the_pool = "-object memory-backend-file,id=d0,size=1G,host-nodes=1,policy=bind,mem-path=/proc/self/fd/FD,share=on \
        -device pc-dimm,id=dimm0,memdev=d0 \
        -object memory-backend-ram,id=pmem,size=1G -device nvdimm,memdev=pmem";
    let own = "-object memory-backend-file,id=pc.ram,size=2147483648,x-use-canonical-path-for-ramblock-id=off,\
        mem-path=/proc/self/fd/3,share=on -machine memory-backend=pc.ram";
    let seen = plan(&format!("-m 2G,slots=4,maxmem=8G {dimms}"), &[]).unwrap();
    let need = |gib: u64, node| Need {
        bytes: gib << 30,
        node,
    };
    assert_eq!(seen.needs(), [need(2, None), need(1, Some(1))]);
    assert_eq!(
        joined(&seen.with_memory(&files(2))),
        joined(&words(&format!(
            "-m 2G,slots=4,maxmem=8G {} {own}",
            on_the_pool.replace("FD", "5")
        )))
    );
    let line = words(&format!("-m 2G,slots=4,maxmem=8G {dimms}"));
    assert_eq!(seen.ordinary(), Ordinary::Arguments(line));
    assert_eq!(seen.notes().len(), 1, "{:?}", seen.notes());
    assert!(seen.notes()[0].contains("pmem is a device's"));

    // New nodes stay what an ordinary start needs, and its DIMMs are as they were.
    let seen = plan(&format!("-m 2G,slots=4,maxmem=8G {dimms}"), &["1G", "1G@1"]).unwrap();
    assert_eq!(seen.needs().len(), 3);
    let Ordinary::Arguments(ordinary) = seen.ordinary() else {
        panic!("arguments")
    };
    let expected = format!(
        "-m 2G,slots=4,maxmem=8G {dimms} -object memory-backend-ram,id=firstlight0,size=1073741824 \
         -object memory-backend-ram,id=firstlight1,size=1073741824,host-nodes=1,policy=preferred \
         -numa node,nodeid=0,memdev=firstlight0 -numa node,nodeid=1,memdev=firstlight1"
    );
    assert_eq!(joined(&ordinary), joined(&words(&expected)));
    // One that the command line does not have is QEMU's to refuse.
    let missing = plan("-m 1G -device pc-dimm,memdev=none", &[]).unwrap();
    assert_eq!(missing.needs().len(), 1);
}

#[test]
fn a_dimm_that_others_read_is_refused_and_one_beside_served_memory_is_noted() {
    let managed = |memory: &str, dimm: &str| {
        let line = format!(
            "-m 1G -machine q35,memory-backend=r -object {memory},id=r,size=1G \
             -object {dimm},id=d,size=1G -device pc-dimm,memdev=d"
        );
        Plan::managed(OsStr::new("qemu-system-x86_64"), &words(&line))
    };
    let file = "memory-backend-file,mem-path=/dev/shm/theirs,share=on";
    let error = managed("memory-backend-ram", file).unwrap_err().to_string();
    assert!(
        error.contains("d: its file /dev/shm/theirs is for others"),
        "{error}"
    );
    let served = managed("memory-backend-memfd,share=on", "memory-backend-ram");
    let served = served.unwrap().expect("a guest");
    assert!(served.is_injected());
    assert!(
        served.notes()[0].contains("d is a device's"),
        "{:?}",
        served.notes()
    );
}

#[test]
fn dimms_that_a_slab_cannot_be_stay_the_kernels() {
    for (dimm, device) in [
        ("memory-backend-file,mem-path=/var/saved", "pc-dimm"),
        (
            "memory-backend-file,mem-path=/dev/hugepages,readonly=on",
            "pc-dimm",
        ),
        ("memory-backend-ram,host-nodes=0-1,policy=bind", "pc-dimm"),
        ("memory-backend-ram", "pc-dimm,addr=0x140200000"),
        ("memory-backend-ram", "pc-dimm,addr=x"),
    ] {
        let line = format!("-m 1G -object {dimm},id=d,size=1G -device {device},memdev=d");
        let seen = plan(&line, &[]).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(seen.needs().len(), 1, "{line}");
        assert!(
            seen.notes()[0].contains("d is a device's"),
            "{line}: {:?}",
            seen.notes()
        );
        assert_eq!(seen.ordinary(), Ordinary::Arguments(words(&line)), "{line}");
    }
    let twice = "-m 1G -object memory-backend-ram,id=d,size=1G -device pc-dimm,memdev=d,addr=0x140000000 -device pc-dimm,memdev=d";
    assert_eq!(plan(twice, &[]).unwrap().needs().len(), 2);
}

#[test]
fn a_node_in_a_list_is_one_too() {
    let line = "-object memory-backend-ram,id=r,size=1G,host-nodes.0=1,policy=bind -machine memory-backend=r";
    let seen = plan(line, &[]).unwrap();
    assert_eq!(seen.needs()[0].node, Some(1));
    let expected = "-object memory-backend-file,id=r,size=1G,host-nodes.0=1,policy=bind,mem-path=/proc/self/fd/3,share=on \
        -machine memory-backend=r -m 1024M";
    assert_eq!(
        joined(&seen.with_memory(&files(1))),
        joined(&words(expected))
    );
}
