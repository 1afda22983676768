//! SLITs: those of real machines byte for byte, and odd ones made by hand.

use crate::acpi_tables;

use acpi_tables::slit;
use firstlight::firmware::acpi::{AcpiError, Slit, SlitFault};

const R820_SLIT: &[u8] = machine!("PowerEdge_R820.slit.bin");
const H8DGU_SLIT: &[u8] = machine!("H8DGU.slit.bin");
const X8DTT_SLIT: &[u8] = machine!("X8DTT.slit.bin");
const X99_SLIT: &[u8] = machine!("X99.slit.bin");

#[test]
fn real_slits() {
    for (bytes, localities) in [
        (R820_SLIT, 5),
        (H8DGU_SLIT, 4),
        (X8DTT_SLIT, 2),
        (X99_SLIT, 1),
    ] {
        let slit = Slit::parse(bytes).unwrap();
        assert_eq!((slit.localities(), slit.trailing_bytes()), (localities, 0));
        assert_eq!((slit.checksum_fault(), slit.faults().count()), (None, 0));
        assert_eq!(slit.distance(localities, 0), None);
        assert_eq!(slit.distance(0, localities), None);
    }
    let slit = Slit::parse(R820_SLIT).unwrap();
    let row: Vec<u8> = (0..5).filter_map(|to| slit.distance(2, to)).collect();
    assert_eq!(row, [20, 20, 10, 20, 30]);
    assert_eq!(Slit::parse(H8DGU_SLIT).unwrap().distance(0, 3), Some(16));
    assert_eq!(Slit::parse(X8DTT_SLIT).unwrap().distance(1, 0), Some(21));
}

#[test]
fn slit_sizes_that_cannot_be() {
    for count in [3, 1 << 16, 1 << 32, u64::MAX, (1 << 32) + 2] {
        let mut table = slit(2, &[10, 20, 20, 10]);
        table[36..44].copy_from_slice(&u64::to_le_bytes(count));
        assert_eq!(
            Slit::parse(&table).unwrap_err(),
            AcpiError::Localities {
                seen: count,
                matrix_bytes: 4
            }
        );
    }
    let empty = slit(0, &[]);
    let empty = Slit::parse(&empty).unwrap();
    assert_eq!(
        (
            empty.localities(),
            empty.distance(0, 0),
            empty.faults().count()
        ),
        (0, None, 0)
    );
    let padded = slit(1, &[10, 0, 0]);
    assert_eq!(Slit::parse(&padded).unwrap().trailing_bytes(), 2);
}

#[test]
fn slit_distances_that_contradict() {
    let table = slit(3, &[10, 20, 255, 21, 11, 5, 255, 20, 10]);
    let faults: Vec<SlitFault> = Slit::parse(&table).unwrap().faults().collect();
    assert_eq!(
        faults,
        [
            SlitFault::Asymmetric {
                from: 0,
                to: 1,
                seen: 20,
                back: 21
            },
            SlitFault::Diagonal { at: 1, seen: 11 },
            SlitFault::BelowLocal {
                from: 1,
                to: 2,
                seen: 5
            },
        ]
    );
}
