//! PVH start info and what it points to, in a small guest memory.
#![no_main]

use firstlight::addr::PhysAddr;
use firstlight::firmware::MemoryImage;
use firstlight::firmware::pvh::{COMMAND_LINE_BYTES, PvhError, StartInfo};
use firstlight_fuzz::check_map;
use libfuzzer_sys::fuzz_target;

const BASE: u64 = 0x1000;

fuzz_target!(|data: &[u8]| {
    let memory = MemoryImage::new(PhysAddr::new(BASE), data);
    let Ok(info) = StartInfo::read(&memory, PhysAddr::new(BASE)) else {
        assert!(StartInfo::parse(data).is_err());
        return;
    };
    assert_eq!(StartInfo::parse(data), Ok(info));
    assert!(info.version > 0 || info.memory_map.is_none());
    match info.map_entries(&memory) {
        Ok(entries) => {
            let entries: Vec<_> = entries.collect();
            assert_eq!(entries.len(), info.memory_map_entries as usize);
            assert!(entries.len() * 24 <= data.len());
            check_map(&entries);
        }
        Err(error) => assert!(matches!(
            error,
            PvhError::NoMemoryMap | PvhError::Unreadable { .. }
        )),
    }
    if let Ok(modules) = info.modules(&memory) {
        assert_eq!(modules.count(), info.modules as usize);
    }
    let start = info
        .command_line
        .map(|start| start.get().wrapping_sub(BASE));
    let start = start.and_then(|start| usize::try_from(start).ok());
    match info.command_line(&memory) {
        Ok(None) => assert_eq!(info.command_line, None),
        Ok(Some(text)) => {
            assert!(!text.contains(&0) && text.len() < COMMAND_LINE_BYTES as usize);
            let start = start.expect("read from inside the image");
            assert_eq!(&data[start..][..text.len()], text);
            assert_eq!(data[start + text.len()], 0);
        }
        Err(_) => {
            let rest = start
                .and_then(|start| data.get(start..))
                .unwrap_or_default();
            let window = &rest[..rest.len().min(COMMAND_LINE_BYTES as usize)];
            assert!(!window.contains(&0), "an end was there to find");
        }
    }
});
