//! The EFI memory map: any descriptor size, whole descriptors or an error, and
//! a sound map.
#![no_main]

use firstlight::firmware::efi;
use firstlight_fuzz::check_map;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&size, map)) = data.split_first() else {
        return;
    };
    let size = usize::from(size);
    match efi::entries(map, size) {
        Err(efi::EfiError::DescriptorSize { .. }) => assert!(size < efi::DESCRIPTOR_BYTES),
        Err(efi::EfiError::PartialDescriptor { .. }) => assert_ne!(map.len() % size, 0),
        Ok(entries) => {
            let entries: Vec<_> = entries.collect();
            assert_eq!(entries.len() * size, map.len());
            check_map(&entries);
        }
    }
});
