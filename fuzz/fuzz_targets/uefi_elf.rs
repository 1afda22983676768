//! The image's file as the UEFI loader reads it, places it and moves it; the flat one for aarch64 it only places.
#![no_main]

use firstlight_image_uefi::elf::Image;
use firstlight_image_uefi::{flat, words};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let line = words(data);
    assert!(line.iter().all(|byte| (b' '..=b'~').contains(byte)));
    assert!(!line.starts_with(b" ") && !line.ends_with(b" "));
    if let Ok(image) = flat::Image::parse(data) {
        let (start, end) = (image.range.start, image.range.end);
        assert!(start % (2 << 20) == 0 && end <= 4 << 30 && end - start <= 2 << 20);
        assert!(image.range.contains(&image.entry));
        let mut memory = vec![0xcc; usize::try_from(end - start).expect("64 bits")];
        image.write(start, &mut memory).expect("it moves itself");
        let (file, rest) = memory.split_at(data.len());
        assert!(file == data && rest.iter().all(|byte| *byte == 0));
    }
    let Ok(image) = Image::parse(data) else {
        return;
    };
    let (start, end) = (image.range.start, image.range.end);
    assert!(start < end && end <= 4 << 30 && start >= 1 << 20);
    assert!(
        start >> 21 == (end - 1) >> 21,
        "one page table describes it"
    );
    assert!(image.range.contains(&image.entry));
    let mut own = vec![0xcc; usize::try_from(end - start).expect("64 bits")];
    image
        .write(start, &mut own)
        .expect("where it is linked it fits");
    let mut moved = vec![0x33; own.len()];
    if image.write(start + (6 << 20), &mut moved).is_ok() {
        // Back again it is the same, whatever overlaps.
        let mut once_more = vec![0; own.len()];
        image
            .write(start + (6 << 20), &mut once_more)
            .expect("as before");
        assert_eq!(moved, once_more);
    }
});
