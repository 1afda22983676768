//! No client ever reads a byte of another: tenants that leave in every way,
//! with the daemon killed meanwhile, and a next tenant that reads every byte.

use super::kit::{Daemon, free_pages, huge_pages, mapped, random, rounds, take_soon, until};
use super::tenant::{BYTES, Tenant, Way};
use std::collections::VecDeque;

/// Tenants that keep something while others come and go.
const KEPT: usize = 4;

fn poison(source: &str, rounds: u32) {
    // Three slabs, and what pins and kept mappings can hold besides.
    let Some(_pages) = huge_pages(40) else { return };
    let free = free_pages();
    let mut random = random();
    let mut daemon = Daemon::start(&format!(
        "fill = {{ rate = \"0\" }}\n[[class]]\nsize = \"4M\"\nslabs = 3\nsource = \"{source}\"\n"
    ));
    let mut kept: VecDeque<Tenant> = VecDeque::new();
    let mut poisoned = 0;
    for round in 0..rounds {
        let way = Way::ALL[random.below(Way::ALL.len())];
        let context = format!("round {round}, {way:?}");
        daemon.until_clean(1);
        let tenant = Tenant::start(&daemon.socket(), way, random.below(2) == 0);
        poisoned += u32::from(tenant.is_some());
        let killed = random.below(8) == 0;
        if killed {
            daemon.kill();
        }
        match way {
            // Dropped, it is killed.
            Way::Exit | Way::Killed => drop(tenant),
            Way::Mapping | Way::Descriptor | Way::Pin | Way::PinAndReserve => kept.extend(tenant),
        }
        if kept.len() > KEPT {
            kept.pop_front();
        }
        if killed {
            daemon.start_again();
        }
        let next = take_soon(&daemon, BYTES);
        let memory = mapped(&next.memory, next.lease.bytes);
        assert_eq!(memory.first_nonzero(), None, "{context}");
        for tenant in &mut kept {
            tenant.poke();
        }
        assert_eq!(memory.first_nonzero(), None, "{context}, poked");
    }
    // Nearly all of them: a daemon that is just being taken from may be out.
    assert!(
        poisoned * 2 > rounds,
        "{poisoned} of {rounds} tenants came to poison"
    );
    drop(kept);
    assert_eq!(daemon.stop(), 0);
    until("all huge pages are back", || free_pages() == free);
}

#[test]
fn no_client_reads_what_another_left_in_a_mount() {
    poison("mount", rounds("FIRSTLIGHT_POISON_ROUNDS", 60) / 2);
}

#[test]
fn no_client_reads_what_another_left_in_a_file_without_a_name() {
    poison("memfd", rounds("FIRSTLIGHT_POISON_ROUNDS", 60) / 2);
}
