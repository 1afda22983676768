//! How long it takes to read every CPU of a large machine from its MADT and
//! SRAT: one pass over each table, in place.
//!
//! ```text
//! cargo run --release -p firstlight --example read_cpus -- 4096
//! ```

#[path = "../tests/acpi_tables/mod.rs"]
mod acpi_tables;

use std::hint::black_box;
use std::time::Instant;

use firstlight::firmware::acpi::{AcpiError, Madt, Srat, SratEntry};

fn cpus(table: &[u8]) -> Result<usize, AcpiError> {
    Madt::parse(table)?
        .cpus()
        .try_fold(0, |cpus, cpu| Ok(cpus + usize::from(cpu?.enabled)))
}

fn cpus_with_domain(table: &[u8]) -> Result<usize, AcpiError> {
    Srat::parse(table)?.entries().try_fold(0, |cpus, entry| {
        Ok(cpus + usize::from(matches!(entry?, SratEntry::Cpu { enabled: true, .. })))
    })
}

fn measure(
    name: &str,
    table: &[u8],
    read: fn(&[u8]) -> Result<usize, AcpiError>,
) -> Result<(), AcpiError> {
    let mut times_ns = Vec::new();
    let mut cpus = 0;
    for _ in 0..101 {
        let start = Instant::now();
        cpus = read(black_box(table))?;
        times_ns.push(start.elapsed().as_nanos());
    }
    times_ns.sort_unstable();
    println!(
        "{name}: {cpus} CPUs in {} bytes, {} ns (median of 101 passes)",
        table.len(),
        times_ns[50]
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = std::env::args()
        .nth(1)
        .map_or(Ok(4096), |count| count.parse())?;
    let (madt, srat) = acpi_tables::large_machine(count, (count / 64).max(1));
    measure("MADT", &madt, cpus)?;
    measure("SRAT", &srat, cpus_with_domain)?;
    Ok(())
}
