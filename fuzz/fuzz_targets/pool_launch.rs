//! QEMU's command line on memory of the pool, one argument a line: a plan or an
//! error that can be shown; every argument the plan does not speak of stays, in
//! order, and what comes out can be planned again without another change of size.
#![no_main]

use firstlight_pool::launch::{Backing, Need, Ordinary, Plan};
use libfuzzer_sys::fuzz_target;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

fuzz_target!(|data: &[u8]| {
    let mut lines = data.split(|byte| *byte == b'\n');
    let memory = lines.next().unwrap_or_default();
    let needs: Vec<Need> = String::from_utf8_lossy(memory)
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    let arguments: Vec<OsString> = lines.map(|line| OsStr::from_bytes(line).into()).collect();
    // Files are the machine's, not the fuzzer's.
    let reads = |one: &OsString| one.to_string_lossy().contains("readconfig");
    if arguments.iter().any(reads) {
        return;
    }
    let other = OsStr::new("cloud-hypervisor");
    if let Ok(plan) = Plan::new(other, &arguments, &needs, &|_| false) {
        let files: Vec<Backing> = (0..plan.needs().len())
            .map(|number| Backing {
                path: format!("/proc/self/fd/{}", number + 3),
                align_bytes: None,
            })
            .collect();
        assert!(plan.with_memory(&files).len() >= arguments.len());
        let _ = plan.ordinary();
    }
    let qemu = OsStr::new("qemu-system-x86_64");
    let _ = Plan::injected(qemu, &arguments, &needs).map_err(|error| error.to_string());
    let plan = match Plan::new(qemu, &arguments, &needs, &|_| false) {
        Ok(plan) => plan,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert!(!plan.needs().is_empty());
    // DIMMs come from the pool, too, and are not asked for.
    assert!(needs.len() <= plan.needs().len());
    let files: Vec<Backing> = (0..plan.needs().len())
        .map(|number| Backing {
            path: format!("/proc/self/fd/{}", number + 3),
            align_bytes: None,
        })
        .collect();
    let with = plan.with_memory(&files);
    for file in &files {
        let named = |argument: &OsString| {
            let text = argument.to_string_lossy();
            text.contains(&file.path)
        };
        assert!(with.iter().any(named), "a file is not used: {with:?}");
    }
    // What is no option about memory is none of the plan's business.
    let about_memory = |argument: &OsString| {
        let text = argument.to_string_lossy();
        let place = text.contains("{memory");
        place
            || [
                "m",
                "object",
                "numa",
                "machine",
                "M",
                "mem-path",
                "mem-prealloc",
            ]
            .iter()
            .any(|name| text.trim_start_matches('-') == *name)
    };
    if !arguments.iter().any(about_memory) {
        assert!(
            with.starts_with(&arguments),
            "{arguments:?} became {with:?}"
        );
        if let Ordinary::Arguments(ordinary) = plan.ordinary() {
            assert!(ordinary.starts_with(&arguments));
        }
    }
});
