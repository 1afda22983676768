//! The e820 table: whole entries or an error, and a sound map.
#![no_main]

use firstlight::firmware::e820;
use firstlight_fuzz::check_map;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(entries) = e820::entries(data) else {
        assert_ne!(data.len() % e820::ENTRY_BYTES, 0);
        return;
    };
    let entries: Vec<_> = entries.collect();
    assert_eq!(entries.len() * e820::ENTRY_BYTES, data.len());
    check_map(&entries);
});
