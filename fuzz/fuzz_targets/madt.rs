//! The MADT: the same CPUs as a plain walk finds, in the same order.
#![no_main]

use firstlight::firmware::acpi::{AcpiError, Madt};
use firstlight_fuzz::{walk, with_header};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(madt) = Madt::parse(data) {
        assert!(madt.cpus().count() <= data.len());
    }
    let table = with_header(b"APIC", data);
    let Ok(madt) = Madt::parse(&table) else {
        assert!(table.len() < 44);
        return;
    };
    let (entries, broken) = walk(&table, 44);
    let (mut cpus, mut giccs) = (madt.cpus(), madt.giccs());
    for (kind, offset, length) in entries {
        let needed_bytes = match kind {
            0 => 8,
            9 => 16,
            11 => 76,
            _ => continue,
        };
        let word =
            |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| table[offset + at + byte]));
        if kind == 11 {
            match giccs.next().expect("no CPU is passed over") {
                Err(AcpiError::EntryTooShort { offset: at, .. }) => {
                    assert!(at == offset && length < needed_bytes);
                }
                Ok(cpu) => {
                    assert_eq!(
                        (cpu.processor_uid, cpu.enabled),
                        (word(8), word(12) & 1 == 1)
                    );
                    assert_eq!(cpu.mpidr, u64::from(word(68)) | u64::from(word(72)) << 32);
                }
                Err(error) => panic!("{error}"),
            }
            continue;
        }
        let cpu = cpus.next().expect("no CPU is passed over");
        match cpu {
            Err(AcpiError::EntryTooShort {
                offset: at,
                seen_bytes,
                ..
            }) => {
                assert!(length < needed_bytes);
                assert_eq!((at, seen_bytes), (offset, length.into()));
            }
            Ok(cpu) if kind == 0 => {
                assert_eq!(cpu.apic_id, u32::from(table[offset + 3]));
                assert_eq!(cpu.enabled, word(4) & 1 == 1);
            }
            Ok(cpu) => {
                assert_eq!((cpu.apic_id, cpu.processor_uid), (word(4), word(12)));
                assert_eq!(cpu.online_capable, word(8) & 2 == 2);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(broken, cpus.next().is_some_and(|last| last.is_err()));
    assert_eq!(broken, giccs.next().is_some_and(|last| last.is_err()));
    assert!(cpus.next().is_none() && giccs.next().is_none());
});
