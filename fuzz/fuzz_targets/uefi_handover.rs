//! What the UEFI loader hands to the image, and a result in firmware's variables: both are read
//! whole or refused.
#![no_main]

use firstlight::firmware::efi::{self, Descriptor};
use firstlight_fuzz::check_map;
use firstlight_image::merged::merged;
use firstlight_wire::handover::{HEAD_BYTES, Handover, HandoverError, MAGIC, VERSION, View};
use firstlight_wire::parts::{MOST_PARTS, PART_BYTES, RESULT_BYTES, count, join, part};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    handover(data);
    parts(data);
});

fn handover(data: &[u8]) {
    let view = match View::read(data) {
        Ok(None) => {
            assert!(!data.starts_with(&MAGIC));
            return;
        }
        Err(error) => {
            assert!(data.starts_with(&MAGIC));
            match error {
                HandoverError::Version(seen) => assert_eq!(Some(&seen), data.get(7)),
                HandoverError::Cut {
                    seen_bytes,
                    needed_bytes,
                } => {
                    assert_eq!(seen_bytes, data.len());
                    assert!(needed_bytes > data.len() as u64);
                }
                HandoverError::Map {
                    map_bytes,
                    descriptor_bytes,
                } => assert!(
                    map_bytes == 0
                        || descriptor_bytes < 40
                        || map_bytes % u64::from(descriptor_bytes) != 0
                ),
                HandoverError::Screen(_) => panic!("a screen refuses no hand-over"),
            }
            return;
        }
        Ok(Some(view)) => view,
    };
    assert_eq!(data[7], VERSION);
    assert_eq!(&data[HEAD_BYTES..][..view.map.len()], view.map);
    let Handover {
        descriptor_bytes,
        screen,
        ..
    } = view.handover;
    // What is written again is read as the same.
    let mut again = vec![0; data.len()];
    let length = view
        .handover
        .write(view.map, &mut again)
        .expect("it fitted");
    assert_eq!(View::read(&again[..length]), Ok(Some(view)));
    if let Some(screen) = screen.and_then(|screen| screen.checked().ok()) {
        let last =
            u64::from(screen.stride) * u64::from(screen.height - 1) + u64::from(screen.width);
        assert!(last * 4 <= screen.bytes && screen.address.checked_add(screen.bytes).is_some());
    }
    let size = usize::try_from(descriptor_bytes).expect("64 bits");
    let descriptors = efi::descriptors(view.map, size).expect("whole descriptors");
    let whole: Vec<_> = descriptors.clone().map(Descriptor::entry).collect();
    let merged: Vec<_> = merged(descriptors).collect();
    assert!(merged.len() <= whole.len());
    let bytes = |list: &[firstlight::map::MapEntry]| -> u128 {
        list.iter().map(|entry| u128::from(entry.bytes)).sum()
    };
    assert_eq!(bytes(&merged), bytes(&whole));
    check_map(&merged);
}

/// The data as variables: lengths, one byte a part in units of 8, then their content.
fn parts(data: &[u8]) {
    let Some((lengths, content)) = data.split_first_chunk::<8>() else {
        return;
    };
    let read = |number: u8, buffer: &mut [u8; PART_BYTES]| {
        let before: usize = lengths[..usize::from(number)]
            .iter()
            .map(|units| usize::from(*units) * 8)
            .sum();
        let length = usize::from(lengths[usize::from(number)]) * 8;
        let own = content.get(before..)?.get(..length)?;
        buffer.get_mut(..length)?.copy_from_slice(own);
        (length > 0).then_some(length)
    };
    let mut whole = [0; RESULT_BYTES];
    if let Ok(Some(text)) = join(read, &mut whole) {
        assert!(!text.is_empty() && text.len() <= RESULT_BYTES);
    }
    // What is split is joined again, and one changed bit is noticed.
    let mut whole = [0; RESULT_BYTES];
    let split = |flipped: Option<(u8, usize)>| {
        move |number: u8, buffer: &mut [u8; PART_BYTES]| {
            let length = part(content, number, buffer)?.len();
            if let Some((_, at)) = flipped.filter(|(of, _)| *of == number) {
                buffer[16 + at % (length - 16).max(1)] ^= 1;
            }
            Some(length)
        }
    };
    match count(content) {
        None => assert_eq!(join(split(None), &mut whole), Ok(None)),
        Some(count) => {
            assert!(count <= MOST_PARTS);
            assert_eq!(join(split(None), &mut whole), Ok(Some(content)));
            let flipped = (lengths[0] % count, usize::from(lengths[1]));
            assert!(join(split(Some(flipped)), &mut whole).is_err());
        }
    }
}
