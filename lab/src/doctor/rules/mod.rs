//! One finding a file, and the list of them.

mod blocks_slow;
mod blocks_small;
mod bounce_buffer;
mod bounce_short;
mod deferral_absent;
mod deferral_bandwidth;
mod deferral_blocked;
mod deferral_one_thread;
mod deferral_serial;
mod deferral_slow;
mod deferral_uneven;
mod early_stamps;
mod hash_failed;
mod hash_oversized;
mod hash_slow;
mod huge_hole;
mod hugepages_short;
mod hugepages_slow;
mod init_on_alloc;
mod init_on_free;
mod interleaved;
mod kasan;
mod lost_alignment;
mod lost_aperture;
mod lost_crashkernel;
mod lost_mtrr;
mod lost_parameter;
mod lost_unaddressable;
mod memmap_eager;
mod memoryless;
mod mtrr_inconsistent;
mod numa_tables;
mod oops;
mod page_debugging;
mod reserved_pages;
mod shared;
mod stalls;
mod tsc_unstable;
mod unaccepted;
mod unexplained;
mod wait_ec;
mod wait_firmware;
mod wait_root;

use std::sync::OnceLock;

use super::case;
use super::keys::Keys;
use super::rule::Rule;

/// Every rule.
pub(super) static ALL: [&Rule; 41] = [
    &blocks_small::RULE,
    &blocks_slow::RULE,
    &stalls::RULE,
    &deferral_absent::RULE,
    &memmap_eager::RULE,
    &deferral_blocked::RULE,
    &deferral_serial::RULE,
    &deferral_slow::RULE,
    &deferral_bandwidth::RULE,
    &deferral_uneven::RULE,
    &deferral_one_thread::RULE,
    &reserved_pages::RULE,
    &hash_failed::RULE,
    &hash_oversized::RULE,
    &hash_slow::RULE,
    &hugepages_short::RULE,
    &hugepages_slow::RULE,
    &init_on_free::RULE,
    &init_on_alloc::RULE,
    &page_debugging::RULE,
    &huge_hole::RULE,
    &interleaved::RULE,
    &memoryless::RULE,
    &numa_tables::RULE,
    &unaccepted::RULE,
    &bounce_buffer::RULE,
    &bounce_short::RULE,
    &early_stamps::RULE,
    &tsc_unstable::RULE,
    &lost_mtrr::RULE,
    &lost_parameter::RULE,
    &lost_crashkernel::RULE,
    &lost_alignment::RULE,
    &lost_unaddressable::RULE,
    &lost_aperture::RULE,
    &mtrr_inconsistent::RULE,
    &kasan::RULE,
    &oops::RULE,
    &wait_ec::RULE,
    &wait_firmware::RULE,
    &wait_root::RULE,
];

/// The rule for what none of them explains.
pub(super) static UNEXPLAINED: Rule = unexplained::RULE;

/// Finds the messages that some rule looks at.
pub(super) fn keys() -> &'static Keys {
    static KEYS: OnceLock<Keys> = OnceLock::new();
    KEYS.get_or_init(|| {
        let rules = ALL.iter().copied().chain([&UNEXPLAINED]);
        Keys::new(rules.flat_map(|rule| rule.keys).chain(&case::KEYS).copied())
    })
}
