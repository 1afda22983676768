//! How long `virsh start` takes: printed, not judged.

use crate::libvirt::kit::{Domain, EMULATOR, Host, QEMU};
use std::time::{Duration, Instant};

/// MiB of each guest.
const MIB: u64 = 4096;

/// Rounds, in each of which each way has its turn.
const ROUNDS: usize = 11;

#[test]
#[ignore = "4 GiB twice, and a minute"]
fn virsh_start_in_three_ways() {
    let Some(host) = Host::new(2 * MIB) else {
        return;
    };
    host.start_pool(MIB, 1);
    let huge = "<memoryBacking><hugepages/></memoryBacking>";
    let ways = [
        ("small pages", QEMU, ""),
        ("pool", EMULATOR, ""),
        ("prealloc", QEMU, huge),
    ];
    for (name, emulator, memory) in ways {
        host.define(Domain {
            name,
            emulator,
            mib: MIB,
            memory,
        });
    }
    let mut times = [const { Vec::<Duration>::new() }; 3];
    for round in 0..=ROUNDS {
        for ((name, ..), times) in ways.iter().zip(&mut times) {
            host.until_clean(1);
            let begin = Instant::now();
            host.virsh(&["start", name]);
            let took = begin.elapsed();
            let leases = if *name == "pool" { 1 } else { 0 };
            assert_eq!(host.leases().len(), leases, "{name}");
            host.virsh(&["destroy", name]);
            // The first asks QEMU what it can do.
            if round > 0 {
                times.push(took);
            }
        }
    }
    let mut plain = None;
    for ((name, ..), times) in ways.iter().zip(&mut times) {
        times.sort();
        let ms = |time: &Duration| time.as_secs_f64() * 1e3;
        let median = ms(&times[ROUNDS / 2]);
        let plain = *plain.get_or_insert(median);
        eprintln!(
            "virsh start, 4 GiB, {name}: {median:.0} ms ({:.0}-{:.0}), {:.2} x",
            ms(&times[0]),
            ms(&times[ROUNDS - 1]),
            median / plain
        );
    }
}
