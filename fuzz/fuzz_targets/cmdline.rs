//! The command line: words lie in the text in order, nothing after `--` is
//! read, and what `mem=` and `memmap=` do leaves a sound map.
#![no_main]

use firstlight::cmdline::{CommandLine, parse_number, parse_size};
use firstlight::layout::{CoreSize, LayoutPolicy};
use firstlight::map::{MapEntry, MemoryKind, MemoryMap, Region, ScratchEntry};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let line = CommandLine::new(data);
    let mut at = data.as_ptr();
    for word in line.words() {
        let text = word.text.as_ptr_range();
        assert!(at <= text.start && text.end <= data.as_ptr_range().end);
        at = text.end;
        assert!(!word.text.is_empty() && !word.text.contains(&0));
        assert!(word.name != b"--" || word.value.is_some());
        assert!(word.name.len() + word.value.map_or(0, |value| value.len()) <= word.text.len());
    }
    for read in [parse_number, parse_size] {
        if let Ok((_, rest)) = read(data) {
            assert!(data.ends_with(rest) && rest.len() < data.len());
        }
    }
    let mut bad = 0;
    let policy = line.layout_policy(LayoutPolicy::DEFAULT, &mut |_| bad += 1);
    assert!(bad <= data.len());
    for core in [policy.kernelcore, policy.movablecore]
        .into_iter()
        .flatten()
    {
        // An amount of a machine is at most the machine, whatever was written.
        if let CoreSize::Percent(_) = core {
            let _ = core.frames(u64::MAX);
        }
    }

    let entries = [
        MapEntry::new(0, 0x9_fc00, MemoryKind::Usable),
        MapEntry::new(0x10_0000, 0xbff0_0000, MemoryKind::Usable),
        MapEntry::new(0xfffc_0000, 0x4_0000, MemoryKind::Reserved),
        MapEntry::new(1 << 32, 4 << 30, MemoryKind::Usable),
    ];
    let mut scratch = [ScratchEntry::default(); 4];
    let mut regions = [Region::default(); 64];
    let mut map = MemoryMap::build(entries.into_iter(), &mut scratch, &mut regions, &mut |_| {})
        .expect("there is room");
    let changes = line.memory_changes().filter(Result::is_ok).count();
    match line.change_map(&mut map, &mut |_| {}) {
        Ok(made) => assert_eq!(made, changes),
        Err(error) => assert!(error.to_string().contains("needed")),
    }
    map.validate().expect("a changed map keeps its promises");
});
