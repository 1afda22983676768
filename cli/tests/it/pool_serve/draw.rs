//! After its lease a client draws nothing more from the pool, whatever it kept.

use super::kit::{
    Daemon, M, another_user, free_pages, huge_pages, is_root, mapped, take, take_soon, until,
};
use super::tenant::{Tenant, Way};
use firstlight_pool::client::Client;
use firstlight_pool::os::mapping::Mapping;
use firstlight_pool::os::memory_file;

fn draw(source: &str) {
    let Some(_pages) = huge_pages(12) else { return };
    let mut daemon = Daemon::start(&format!(
        "fill = {{ rate = \"0\" }}\n[[class]]\nsize = \"4M\"\nslabs = 2\nsource = \"{source}\"\n"
    ));
    daemon.until_clean(2);
    let free = free_pages();
    let allocated = take_soon(&daemon, 4 * M);
    let mapping = mapped(&allocated.memory, 4 * M);
    let kept = allocated.memory.try_clone().unwrap();
    daemon
        .connect()
        .give(allocated.lease.lease.clone())
        .unwrap();
    drop(allocated);
    daemon.until_clean(2);
    until("the slab was emptied", || free_pages() == free);

    // The stock is out of reach, and the mapping it kept leads nowhere.
    assert!(
        mapping.populate().is_err(),
        "pages drawn through a kept mapping"
    );
    if source == "memfd" {
        assert!(memory_file::set_length(&kept, 4 * M).is_err());
        assert!(memory_file::allocate(&kept, 0, 4 * M).is_err());
    }
    // What the kernel does not prevent is taken away again and again, and
    // does not come out of what is ready for others.
    for _ in 0..3 {
        let _ = memory_file::set_length(&kept, 4 * M);
        if let Ok(mapping) = Mapping::new(&kept, 0, 4 << 20) {
            let _ = mapping.populate();
        }
        assert_eq!(daemon.status().pools[0].clean_slabs, 2);
        until("it was taken away again", || free_pages() == free);
        assert!(mapping.populate().is_err(), "it came back");
    }
    // Also behind the end, where the file's length does not show it.
    for _ in 0..3 {
        let _ = memory_file::refill(&kept, 0, 8 * M);
        until("it was taken away again", || free_pages() == free);
    }
    drop((mapping, kept));
    assert_eq!(daemon.stop(), 0);
}

/// During its lease, too, a client gets no more than was allocated.
fn grow(source: &str) {
    let Some(_pages) = huge_pages(12) else { return };
    let mut daemon = Daemon::start(&format!(
        "fill = {{ rate = \"0\" }}\n[[class]]\nsize = \"4M\"\nslabs = 1\nsource = \"{source}\"\n"
    ));
    daemon.until_clean(1);
    let allocated = take_soon(&daemon, 4 * M);
    let mut mine = mapped(&allocated.memory, 4 * M);
    mine.write(77, b"mine");
    let free = free_pages();
    // No more than twice what the pool keeps, however many pages are free.
    assert!(memory_file::refill(&allocated.memory, 4 * M, 8 * M).is_err());
    until("it is as long as it was", || free_pages() == free);
    let longer = |keep_size: bool| {
        if keep_size {
            return memory_file::refill(&allocated.memory, 4 * M, 4 * M).is_ok();
        }
        Mapping::new(&allocated.memory, 0, 8 << 20).is_ok_and(|longer| longer.populate().is_ok())
    };
    for keep_size in [false, true, false, true] {
        let drew = longer(keep_size);
        assert!(drew || source == "memfd", "{source} {keep_size}");
        until("it is as long as it was", || free_pages() == free);
        assert_eq!(mine.first_nonzero(), Some(77));
    }
    drop((mine, allocated));
    daemon.until_clean(1);
    assert_eq!(daemon.stop(), 0);
}

#[test]
fn a_client_gets_no_more_than_was_allocated_from_a_mount() {
    grow("mount");
}

#[test]
fn a_client_gets_no_more_than_was_allocated_without_a_name() {
    grow("memfd");
}

#[test]
fn nothing_is_drawn_through_a_file_of_a_mount() {
    draw("mount");
}

#[test]
fn nothing_is_drawn_through_a_file_without_a_name() {
    draw("memfd");
}

/// A user without processes.
const STRANGER: u32 = 65_533;

#[test]
fn a_refusal_for_quota_names_memory_that_a_revoked_client_goes_on_drawing() {
    let Some(_pages) = huge_pages(12) else { return };
    if !is_root() {
        return;
    }
    let daemon = Daemon::start(&format!(
        "fill = {{ rate = \"0\" }}\n[[class]]\nsize = \"4M\"\nslabs = 2\nsource = \"mount\"\n\
         [[quota]]\nuid = {STRANGER}\nbytes = \"4M\"\n"
    ));
    std::os::unix::fs::chown(daemon.path(), Some(STRANGER), None).unwrap();
    daemon.until_clean(2);
    let free = free_pages();
    let mut pool = another_user(STRANGER, || Client::connect(&daemon.socket()).unwrap());
    let allocated = pool.take(take(4 * M)).unwrap();
    pool.give(allocated.lease.lease.clone()).unwrap();
    daemon.until_clean(2);
    for _ in 0..3 {
        until("it was taken away", || free_pages() == free);
        let longer = Mapping::new(&allocated.memory, 0, 4 << 20).unwrap();
        longer.populate().unwrap();
        let refusal = pool.take(take(4 * M)).unwrap_err().to_string();
        let why = "4M of it was given back and can still be reached";
        assert!(refusal.contains(why), "{refusal}");
    }
    drop(allocated);
    until("it may allocate again", || pool.take(take(4 * M)).is_ok());
}

#[test]
fn what_a_revoked_client_has_pinned_stays_charged_to_it() {
    pin(Way::Pin);
}

#[test]
fn what_a_client_reserves_hides_nothing_that_it_pins() {
    pin(Way::PinAndReserve);
}

fn pin(way: Way) {
    let Some(_pages) = huge_pages(12) else { return };
    let daemon = Daemon::start(&format!(
        "fill = {{ rate = \"0\" }}\n[[class]]\nsize = \"4M\"\nslabs = 2\nsource = \"mount\"\n\
         [[quota]]\nuid = {STRANGER}\nbytes = \"4M\"\n"
    ));
    std::os::unix::fs::chown(daemon.path(), Some(STRANGER), None).unwrap();
    daemon.until_clean(2);
    let taken = |way| Tenant::start_as(&daemon.socket(), way, true, Some(STRANGER));
    let pinned = taken(way).expect("it may allocate once");
    until("its lease has ended", || daemon.status().leases.is_empty());
    daemon.until_clean(2);
    // Two looks at what is kept later it still counts.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert!(taken(Way::Exit).is_none(), "its pin is free of charge");
    assert!(daemon.status().counters.denied > 0);
    drop(pinned);
    until("it may allocate again", || taken(Way::Exit).is_some());
}
