//! Reading 4,096 CPUs from MADT and SRAT: in place, and by copies.

use std::error::Error;
use std::hint::black_box;

use firstlight::firmware::acpi::{Madt, MadtCpu, Srat, SratEntry};
use firstlight::topology::{NodeInfo, TopologyBuilder, TopologyRange, TopologyStorage, add_srat};
use firstlight_bench::tables;
use firstlight_figures::spread::Spread;

use crate::contest::{nice, time};

const CPUS: u32 = 4096;
const DOMAINS: u32 = 64;
const ROUNDS: usize = 201;
/// Bytes a reader keeps that copies the entries of both tables.
const COPIES_BYTES: usize = CPUS as usize * (size_of::<MadtCpu>() + size_of::<(u32, u32)>());

/// Enabled CPUs of the MADT, and CPUs a node by the SRAT: one pass each, nothing kept of a CPU.
fn in_place(madt: &[u8], srat: &[u8]) -> Result<(usize, Vec<u32>), Box<dyn Error>> {
    let mut enabled = 0;
    for cpu in Madt::parse(madt)?.cpus() {
        enabled += usize::from(cpu?.enabled);
    }
    let mut nodes = [NodeInfo::EMPTY; DOMAINS as usize];
    let mut ranges = [TopologyRange::EMPTY; DOMAINS as usize];
    let mut builder = TopologyBuilder::new(TopologyStorage {
        nodes: &mut nodes,
        ranges: &mut ranges,
    });
    add_srat(&mut builder, Srat::parse(srat)?.entries(), &mut |_| {})?;
    let topology = builder.finish(&mut |_| {});
    Ok((
        enabled,
        topology.nodes().iter().map(|node| node.cpus).collect(),
    ))
}

/// The count from copies: both lists sorted by APIC id and joined.
fn by_copies(madt: &[u8], srat: &[u8]) -> Result<(usize, Vec<u32>), Box<dyn Error>> {
    let cpus: Result<Vec<_>, _> = Madt::parse(madt)?.cpus().collect();
    let mut cpus = cpus?;
    cpus.retain(|cpu| cpu.enabled);
    cpus.sort_unstable_by_key(|cpu| cpu.apic_id);
    let mut affinity = Vec::new();
    for entry in Srat::parse(srat)?.entries() {
        if let SratEntry::Cpu {
            apic_id,
            domain,
            enabled: true,
        } = entry?
        {
            affinity.push((apic_id, domain));
        }
    }
    affinity.sort_unstable();
    let mut nodes = vec![0; DOMAINS as usize];
    for cpu in &cpus {
        if let Ok(at) = affinity.binary_search_by_key(&cpu.apic_id, |&(apic_id, _)| apic_id) {
            nodes[affinity[at].1 as usize] += 1;
        }
    }
    Ok((cpus.len(), nodes))
}

/// Prints the table.
pub(crate) fn print() -> Result<(), Box<dyn Error>> {
    let (madt, srat) = tables::acpi(CPUS, DOMAINS);
    assert_eq!(in_place(&madt, &srat)?, by_copies(&madt, &srat)?);
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (times, read) in times.iter_mut().zip([in_place, by_copies]) {
            let (ns, read) = time(|| read(black_box(&madt), black_box(&srat)));
            black_box(read?);
            times.push(ns);
        }
    }
    println!(
        "| {CPUS} CPUs in {DOMAINS} nodes, MADT and SRAT of {} bytes | median (min .. max) | a CPU | ratio | kept of CPUs |",
        madt.len() + srat.len()
    );
    println!("|---|---|---|---|---|");
    let mut ours = None;
    for (times, (name, kept)) in times.iter_mut().zip([
        ("**firstlight**, in place", 0),
        ("copies, sorted and joined", COPIES_BYTES),
    ]) {
        let Spread {
            median, min, max, ..
        } = Spread::of(times.iter().copied()).ok_or("no rounds")?;
        println!(
            "| {name} | {} ({} .. {}) | {} | {:.2} x | {kept} B |",
            nice(median),
            nice(min),
            nice(max),
            nice(median / f64::from(CPUS)),
            median / *ours.get_or_insert(median),
        );
    }
    println!();
    Ok(())
}
