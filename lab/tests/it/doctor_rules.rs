//! Every rule of `doctor`: a few lines in which it finds something, in the words of kernels
//! of several ages, and almost the same lines in which it does not.

use firstlight_lab::doctor::{diagnose, ids};

/// Finding, lines that have it, the line it is seen in.
const FOUND: &[(&str, &str, usize)] = &[
    (
        "memory-blocks-small",
        "[0.1000] Memory: 2100000000K/2147483648K available (1K kernel code, 47483648K reserved)\n\
         [0.2000] x86/mm: Memory block size: 128MB\n",
        2,
    ),
    (
        "memory-blocks-slow",
        "[0.1000] Memory: 100000000K/134217728K available\n[0.2000] devtmpfs: initialized\n\
         [0.9000] clocksource: jiffies\n",
        3,
    ),
    (
        "memory-blocks-slow",
        "[9.0000] watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [swapper/0:1]\n\
         [9.1000] Call Trace:\n[9.2000]  register_mem_sect_under_node+0x1/0x2\n",
        3,
    ),
    (
        "memory-initialisation-stalls",
        "[9.0000] rcu: INFO: rcu_sched self-detected stall on CPU\n\
         [9.1000] Call Trace:\n[9.2000]  deferred_init_memmap+0x1/0x2\n",
        3,
    ),
    (
        "deferral-absent",
        "[1.0000] Memory: 500000000K/536870912K available\n[1.1000] smp: Brought up 2 nodes, 64 CPUs\n\
         [1.2000] devtmpfs: initialized\n[1.3000] NET: Registered\n",
        3,
    ),
    (
        "memmap-eager",
        "[0.0100] On node 0 totalpages: 1000000\n[3.0000] ACPI: PM-Timer IO Port: 0x408\n",
        2,
    ),
    (
        "memmap-eager",
        "[0.0100] Initmem setup node 0 [mem 0x1000-0x2000]\n[1.0000] Built 1 zonelists\n",
        2,
    ),
    (
        "deferral-defeated",
        "[0.0000] Command line: root=/dev/sda early_page_ext quiet\n",
        1,
    ),
    (
        "deferral-defeated",
        "[1.0000] node 0 deferred pages initialised in 10ms\n[1.8000] allocated 67108864 bytes of page_ext\n",
        2,
    ),
    (
        "deferral-defeated",
        "[0.1000] Memory: 100000000K/134217728K available\n\
         [0.2000] kmemleak: Kernel memory leak detector initialized (mem pool available: 15675)\n",
        2,
    ),
    (
        "deferral-serial",
        "[1.0000] node 0 initialised, 15530251 pages in 400ms\n[1.4000] node 1 initialised, 15530251 pages in 400ms\n\
         [1.8000] node 2 initialised, 15530251 pages in 400ms\n",
        3,
    ),
    (
        "deferral-slow",
        "[1.0000] node 0 initialised, 1000000 pages in 600ms\n",
        1,
    ),
    // Two nodes of 512 GiB, 26 CPUs each: 8 ns a page.
    (
        "deferral-bandwidth",
        "[0.0000] Linux version 6.1.0\n[0.0100]   node   0: [mem 0x0000000000000000-0x0000007fffffffff]\n\
         [0.0200]   node   1: [mem 0x0000008000000000-0x000000ffffffffff]\n\
         [0.1000] smp: Brought up 2 nodes, 52 CPUs\n[0.2000] x86/mm: Memory block size: 2048MB\n\
         [1.1900] node 0 deferred pages initialised in 1070ms\n[1.2000] node 1 deferred pages initialised in 1080ms\n",
        7,
    ),
    (
        "deferral-uneven",
        "[1.0000] node 0 initialised, 9000000 pages in 300ms\n[1.6000] node 1 initialised, 9000000 pages in 900ms\n",
        2,
    ),
    (
        "deferral-one-thread",
        "[7.0000] kswapd 0 initialised deferred memory in 1168ms\n",
        1,
    ),
    (
        "reserved-pages-serial",
        "[1.0000] Dentry cache hash table entries: 8\n\
         [3.0000] Memory: 100K/2000000000K available (1K kernel code, 1900000000K reserved, 0K cma-reserved)\n",
        2,
    ),
    (
        "hash-table-failed",
        "swapper/0: vmalloc error: size 17179869184, failed to allocate pages, mode:0xdc0\n\
         Call Trace:\n alloc_large_system_hash+0x1/0x2\n",
        1,
    ),
    (
        "hash-table-failed",
        "Kernel panic - not syncing: Failed to allocate Dentry cache hash table\n",
        1,
    ),
    (
        "hash-tables-oversized",
        "Inode-cache hash table entries: 1073741824 (order: 21, 8589934592 bytes, linear)\n",
        1,
    ),
    (
        "hash-tables-oversized",
        "Memory: 8000000K/8388608K available\n\
         Dentry cache hash table entries: 16777216 (order: 15, 134217728 bytes)\n",
        2,
    ),
    (
        "hash-tables-slow",
        "[1.0000] Kernel command line: a\n[2.0000] Dentry cache hash table entries: 8388608 (order: 14, 67108864 bytes)\n",
        2,
    ),
    (
        "hugepages-short",
        "HugeTLB: allocating 100 of page size 1.00 GiB failed.  Only allocated 90 hugepages.\n",
        1,
    ),
    (
        "hugepages-slow",
        "[1.0000] a\n[9.0000] HugeTLB registered 1.00 GiB page size, pre-allocated 5632 pages\n",
        2,
    ),
    (
        "hugepages-slow",
        "[4.0000] HugeTLB: allocation took 1706ms with hugepage_allocation_threads=32\n",
        1,
    ),
    (
        "init-on-free",
        "mem auto-init: stack:off, heap alloc:off, heap free:on\n",
        1,
    ),
    (
        "init-on-alloc",
        "Command line: init_on_alloc=1\nmem auto-init: stack:off, heap alloc:on, heap free:off\n",
        2,
    ),
    ("page-debugging", "Command line: a debug_pagealloc=on\n", 1),
    (
        "huge-hole",
        "  node   0: [mem 0x0000000100000000-0x00000010ffffffff]\n\
         \x20 node   1: [mem 0x0000100000000000-0x0000100fffffffff]\n",
        2,
    ),
    (
        "nodes-interleaved",
        "  node   0: [mem 0x0000000000001000-0x000000007fffffff]\n\
         \x20 node   1: [mem 0x0000000080000000-0x00000000bfffffff]\n\
         \x20 node   0: [mem 0x0000000100000000-0x000000013fffffff]\n",
        3,
    ),
    ("memoryless-node", "Initmem setup node 3 as memoryless\n", 1),
    (
        "numa-tables-faulty",
        "SRAT: PXMs only cover 2047MB of your 3071MB e820 RAM. Not used.\n",
        1,
    ),
    (
        "numa-tables-faulty",
        "ACPI: SLIT table looks invalid. Not used.\n",
        1,
    ),
    (
        "numa-tables-faulty",
        "NUMA: no nodes coverage for 1024MB of 8185MB RAM\n",
        1,
    ),
    (
        "numa-tables-faulty",
        "sched: CPU #1's llc-sibling CPU #0 is not on the same node! [node: 1 != 0]. Ignoring dependency.\n",
        1,
    ),
    (
        "memory-accepted-eagerly",
        "Kernel command line: accept_memory=eager\n",
        1,
    ),
    (
        "memory-accepted-eagerly",
        "[0.5000] a\n[90.000] Memory Encryption Features active: Intel TDX\n",
        2,
    ),
    (
        "bounce-buffer-large",
        "software IO TLB: mapped [mem 0x100000000-0x200000000] (4096MB)\n",
        1,
    ),
    (
        "tsc-unstable",
        "TSC synchronization [CPU#0 -> CPU#12]:\nMeasured 72 cycles TSC warp between CPUs, turning off TSC clock.\n\
         tsc: Marking TSC unstable due to check_tsc_sync_source failed\n",
        2,
    ),
    (
        "bounce-buffer-short",
        "software IO TLB: Cannot allocate buffer\n",
        1,
    ),
    (
        "bounce-buffer-short",
        "nvme 0000:00:04.0: swiotlb buffer is full (sz: 4096 bytes), total 32768 (slots), used 32768 (slots)\n",
        1,
    ),
    (
        "tsc-unstable",
        "TSC found unstable after boot, most likely due to broken BIOS. Use 'tsc=unstable'.\n",
        1,
    ),
    (
        "tsc-unstable",
        "sched_clock: Marking unstable (1234567, 89)<-(2345678, -90)\n",
        1,
    ),
    (
        "init-on-free",
        "mem auto-init: clearing system memory may take some time...\n",
        1,
    ),
    (
        "deferral-slow",
        "[9.0000] node 0 deferred pages initialised in 5460ms\n",
        1,
    ),
    (
        "memoryless-node",
        "Could not find start_pfn for node 1\n",
        1,
    ),
    (
        "memory-phase-slow",
        "[0.5000] percpu: Embedded 66 pages/cpu\n[3.5000] Built 4 zonelists, mobility grouping on.\n",
        2,
    ),
    (
        "tsc-unstable",
        "Clocksource tsc unstable (delta = -120374208 ns)\n",
        1,
    ),
    (
        "memory-lost-mtrr",
        "WARNING: BIOS bug: CPU MTRRs don't cover all of memory, losing 64MB of RAM.\n",
        1,
    ),
    (
        "memory-lost-parameter",
        "Command line: mem=1G\nBIOS-e820: [mem 0x0000000000100000-0x00000000ffffffff] usable\n",
        1,
    ),
    ("memory-lost-parameter", "Memory limited to 512MB\n", 1),
    (
        "memory-lost-crashkernel",
        "Reserving 1024MB of memory at 2048MB for crashkernel (System RAM: 4095MB)\n\
         Memory: 3000000K/4193784K available\n",
        1,
    ),
    (
        "memory-lost-crashkernel",
        "crashkernel reserved: 0x0000000100000000 - 0x0000000240000000 (5120 MB)\n",
        1,
    ),
    (
        "memory-lost-alignment",
        "Block size [0x80000000] unaligned hotplug range: start 0x120000000, size 0x8000000\n",
        1,
    ),
    (
        "memory-lost-unaddressable",
        "Warning only 4GB will be used.\nUse a HIGHMEM64G enabled kernel.\n",
        1,
    ),
    (
        "memory-lost-unaddressable",
        "Ignoring RAM at 0x30000000-0x3fffffff (!CONFIG_HIGHMEM)\n",
        1,
    ),
    (
        "memory-lost-aperture",
        "Mapping aperture over 65536 KB of RAM @ c000000\n",
        1,
    ),
    (
        "memory-phase-slow",
        "[0.1000] Zone ranges:\n[0.2000] Something new\n[4.0000] and what comes after it\n[4.1000] SLUB: HWalign=64\n",
        3,
    ),
    (
        "memory-lost-parameter",
        "Kernel command line: console=ttyS0 mem=884480k\nMemory: 719212K/884480K available (8704K kernel code)\n",
        1,
    ),
    (
        "memory-lost-parameter",
        "Command line: ro memmap=79G$82G\n",
        1,
    ),
    (
        "memory-lost-parameter",
        "Command line: ro memmap=4G!12G\n",
        1,
    ),
    (
        "memory-lost-unaddressable",
        "BIOS-e820: 0000000100000000 - 0000000140000000 (usable)\n3200MB HIGHMEM available.\n896MB LOWMEM available.\n",
        1,
    ),
    (
        "mtrr-inconsistent",
        "mtrr: probably your BIOS does not setup all CPUs.\n",
        1,
    ),
    (
        "kasan",
        "kasan: KernelAddressSanitizer initialized (generic)\n",
        1,
    ),
    (
        "memory-initialisation-oops",
        "BUG: unable to handle page fault for address: ffffea0000000000\nCall Trace:\n memmap_init_range+0x1/0x2\n",
        3,
    ),
    (
        "hash-tables-oversized",
        "Dentry cache hash table entries: -2147483648 (order: -9, 8 bytes)\n",
        1,
    ),
    (
        "wait-embedded-controller",
        "[1.0000] ACPI: EC: EC started\n[6.0000] ACPI: Interpreter enabled\n",
        2,
    ),
    (
        "wait-firmware-file",
        "[1.0000] a\n[61.0000] bnx2 0000:02:00.0: Direct firmware load for bnx2.fw failed with error -2\n",
        2,
    ),
    (
        "wait-root-device",
        "[1.0000] Waiting for root device /dev/mmcblk0p2...\n[9.0000] mmc0: new card\n",
        2,
    ),
    // Lines of two nodes that end at the same time swap.
    (
        "deferral-uneven",
        "[1.000020] node 0 initialised, 9000000 pages in 900ms\n[1.000010] node 1 initialised, 9000000 pages in 300ms\n",
        1,
    ),
];

/// Lines that look alike and are healthy.
const HEALTHY: &[&str] = &[
    // Bounce buffers are switched off.
    "Command line: console=ttyS0 swiotlb=noforce\n[    0.254557] software IO TLB: No low mem\n",
    // 512 GiB of an arm64, whose 6.1 has one thread a node: no want of bandwidth.
    "[0.0000] Linux version 6.1.0\n[0.0100]   node   0: [mem 0x0000000000000000-0x0000007fffffffff]\n\
     [0.1000] smp: Brought up 1 node, 64 CPUs\n[2.3000] node 0 deferred pages initialised in 2140ms\n",
    // A size that suits the machine; blocks that take no time.
    "[0.1000] Memory: 100000000K/134217728K available\n[0.2000] x86/mm: Memory block size: 2048MB\n[0.2100] a\n",
    // A small machine without deferral.
    "[1.0000] Memory: 8000000K/8388608K available\n[1.1000] smp: Brought up 1 node, 4 CPUs\n[1.2000] devtmpfs: initialized\n",
    // Nodes at the same time.
    "[5.3131] node 0 initialised, 15530251 pages in 653ms\n[5.3306] node 1 initialised, 15988494 pages in 670ms\n",
    // A node of 2 TiB at the rate of published machines; slower ones: a guest, few CPUs,
    // one node of two.
    "[0.0000] Linux version 6.1.0\n[0.0100]   node   0: [mem 0x0000000000000000-0x000001ffffffffff]\n\
     [0.1000] smp: Brought up 1 node, 64 CPUs\n[1.2200] node 0 deferred pages initialised in 1100ms\n",
    "[0.0000] Linux version 6.1.0\n[0.0000] Hypervisor detected: KVM\n\
     [0.0100]   node   0: [mem 0x0000000000000000-0x0000007fffffffff]\n\
     [0.1000] smp: Brought up 1 node, 64 CPUs\n[1.2200] node 0 deferred pages initialised in 1100ms\n",
    "[0.0000] Linux version 6.1.0\n[0.0100]   node   0: [mem 0x0000000000000000-0x0000007fffffffff]\n\
     [0.1000] smp: Brought up 1 node, 4 CPUs\n[1.2200] node 0 deferred pages initialised in 1100ms\n",
    "[0.0000] Linux version 6.1.0\n[0.0100]   node   0: [mem 0x0000000000000000-0x0000007fffffffff]\n\
     [0.0200]   node   1: [mem 0x0000008000000000-0x000000ffffffffff]\n\
     [0.1000] smp: Brought up 2 nodes, 52 CPUs\n\
     [0.6700] node 0 deferred pages initialised in 550ms\n[1.2000] node 1 deferred pages initialised in 1080ms\n",
    // Small nodes differ by the resolution of the figure.
    "[1.0000] node 0 deferred pages initialised in 1ms\n[1.0010] node 1 deferred pages initialised in 9ms\n",
    // Tables as a kernel chooses them, spread over nodes.
    "Memory: 64000000K/67108344K available\nDentry cache hash table entries: 8388608 (order: 14, 67108864 bytes, vmalloc hugepage)\n",
    // Another failure of vmalloc.
    "insmod: vmalloc error: size 4096, failed to allocate pages\nCall Trace:\n load_module+0x1/0x2\n",
    "[1.0000] a\n[1.1000] HugeTLB: registered 1.00 GiB page size, pre-allocated 0 pages\n",
    "[1.0000] a\n[9.0000] HugeTLB: registered 2.00 MiB page size, pre-allocated 0 pages\n",
    // The build's default.
    "Command line: quiet\nmem auto-init: stack:all(zero), heap alloc:on, heap free:off\n",
    // One node, and no table of nodes at all.
    "No NUMA configuration found\nFaking a node at [mem 0x0000000000000000-0x000000023fffffff]\n",
    "NUMA: Node 0 [mem 0x0-0xbfffffff] + [mem 0x100000000-0x83fffffff] -> [mem 0x0-0x83fffffff]\n",
    // The hole below 4 GiB.
    "  node   0: [mem 0x0000000000001000-0x000000007fffffff]\n  node   0: [mem 0x0000000100000000-0x000000017fffffff]\n",
    "software IO TLB: mapped [mem 0x000000007bfdb000-0x000000007ffdb000] (64MB)\n",
    "[0.6000] Memory Encryption Features active: AMD SEV\n",
    "tsc: Refined TSC clocksource calibration: 2593.904 MHz\nclocksource: Switched to clocksource tsc\n",
    "tsc: Fast TSC calibration failed\n",
    "sched_clock: Marking stable (1234567, 89)->(2345678, -90)\n",
    "[1.0000] node 1 deferred pages initialised in 900ms\n[2.5000] Memory: 65838892K/67108344K available (1K kernel code)\n",
    "Command line: mem=64G\nBIOS-e820: [mem 0x0000000000100000-0x00000000ffffffff] usable\n",
    "Command line: mem=nopentium\nBIOS-e820: [mem 0x0000000000100000-0x00000000ffffffff] usable\n",
    "Reserving 256MB of memory at 2848MB for crashkernel (System RAM: 65213MB)\nMemory: 63000000K/66778112K available\n",
    // Services may take as long as they like.
    "[0.1000] Zone ranges:\n[0.2000] SLUB: HWalign=64\n[9.0000] systemd[1]: Started x\n",
    // A serial line in the middle of a driver.
    "[3.0000] soft lockup - CPU#3 stuck for 23s! [kworker:1]\n[3.1000]  nvme_probe+0x1/0x2\n",
    // An emulator's counter, and its idea of which CPUs share a cache.
    "smpboot: CPU0: AMD QEMU TCG CPU version 2.5+ (family: 0xf)\ntsc: Marking TSC unstable due to TSCs unsynchronized\n\
     sched: CPU #1's llc-sibling CPU #0 is not on the same node! [node: 1 != 0]. Ignoring dependency.\n",
    "smpboot: CPU0: Intel QEMU Virtual CPU version 2.5+\ntsc: Marking TSC unstable due to check_tsc_sync_source failed\n",
    // Asked for.
    "Command line: quiet tsc=unstable\ntsc: Marking TSC unstable due to boot parameter\n",
    // Memory of an arm64 at 8 TiB, by design.
    "Booting Linux on physical CPU 0x0000120000 [0x413fd0c1]\n\
     \x20 node   0: [mem 0x0000000088300000-0x00000000ffffffff]\n\x20 node   0: [mem 0x0000080000000000-0x00000807ffffffff]\n",
    // 16 blocks of 2 GiB can't take 0.9 s, and with initcalls named it was one of them.
    "[0.0000] Linux version 6.1.0\n[0.1000] Memory: 33000000K/33554432K available\n\
     [0.2000] x86/mm: Memory block size: 2048MB\n[1.1000] clocksource: jiffies\n",
    "[0.2000] x86/mm: Memory block size: 128MB\n[0.9000] initcall jent_mod_init+0x0/0x2c returned 0 after 700000 usecs\n",
    // A node of 400 GiB on one thread: 41 ns a page are no reason to look for poisoning.
    "[0.0000] Linux version 6.1.0\n[5.0000] node 0 initialised, 100000000 pages in 4100ms\n",
    // A device that came at once.
    "[1.0000] Waiting for root device /dev/sda...\n[1.2000] sd 0:0:0:0: a\n",
    // A fault elsewhere.
    "BUG: unable to handle page fault for address: 0\nCall Trace:\n nvme_probe+0x1/0x2\n",
];

#[test]
fn every_rule_finds_what_it_is_for() {
    for (id, log, line) in FOUND {
        let found = diagnose("lines", log.as_bytes()).findings;
        let seen: Vec<_> = found
            .iter()
            .map(|finding| (finding.id, finding.line))
            .collect();
        assert!(seen.contains(&(*id, *line)), "{id}: {seen:?} in {log}");
    }
    // Needs a whole log; `doctor.rs` has some.
    let elsewhere = ["early-stamps-missing"];
    for id in ids() {
        let tried = FOUND.iter().any(|(tried, _, _)| *tried == id) || elsewhere.contains(&id);
        assert!(tried, "no lines for {id}");
    }
}

#[test]
fn lines_that_look_alike_have_nothing() {
    for log in HEALTHY {
        assert_eq!(diagnose("lines", log.as_bytes()).findings, [], "{log}");
    }
}

#[test]
fn emulated_time_is_no_measure() {
    let slow =
        "[0.0100] Zone ranges:\n[0.0200] On node 0 totalpages: 1\n[3.0000] a\n[3.1000] SLUB: x\n";
    let emulated = format!("{slow}[4.0000] smpboot: CPU0: AMD QEMU TCG CPU version 2.5+\n");
    assert_eq!(diagnose("slow", slow.as_bytes()).findings.len(), 1);
    assert_eq!(diagnose("emulated", emulated.as_bytes()).findings, []);
}

/// The reason and the cure of the only finding.
fn told(log: &str) -> (String, &'static str, Option<&'static str>) {
    let findings = diagnose("lines", log.as_bytes()).findings;
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let finding = findings.into_iter().next().unwrap();
    (finding.why, finding.cure, finding.fixed_in)
}

#[test]
fn reasons_are_those_of_this_log() {
    for (log, why, cure) in [
        (
            "a: swiotlb buffer is full (sz: 8 bytes), total 0 (slots), used 0 (slots)\n",
            "no bounce buffer at all",
            "leave iommu=off out",
        ),
        (
            "a: swiotlb buffer is full (sz: 294912 bytes), total 1024 (slots), used 725 (slots)\n",
            "a request of 288 KiB",
            "a kernel whose driver",
        ),
        (
            "a: swiotlb buffer is full (sz: 4096 bytes), total 1024 (slots), used 1024 (slots)\n",
            "taken from low memory",
            "swiotlb=N,any",
        ),
        (
            "[8996.1000] tsc: Marking TSC unstable due to clocksource watchdog\n[8996.2000] clocksource: Switched to clocksource acpi_pm\n",
            "8996 s after the boot",
            "firmware",
        ),
        (
            "[9.1000] clocksource: timekeeping watchdog on CPU3: wd-tsc-wd read-back delay of 250000ns\n[9.2000] tsc: Marking TSC unstable due to clocksource watchdog\n",
            "takes long to read",
            "tsc=nowatchdog",
        ),
        (
            "clocksource: Clocksource 'tsc' skewed 489317 ns (0 ms) over watchdog 'xen' interval of 511979417 ns\n",
            "paravirtual guest of Xen",
            "PVH",
        ),
        (
            "[0.0000] Command line: quiet\n[9.0000] node 0 initialised, 1000000 pages in 600ms\n",
            "no word of the command line",
            "without debugging",
        ),
        (
            "[0.0000] Command line: page_poison=1\n[9.0000] node 0 initialised, 1000000 pages in 600ms\n",
            "has page_poison=1: ",
            "leave page_poison=1",
        ),
    ] {
        let found = diagnose("lines", log.as_bytes()).findings;
        let found = found
            .iter()
            .find(|finding| finding.why.contains(why) && finding.cure.contains(cure));
        assert!(found.is_some(), "{why}, {cure} in {log}");
    }
}

#[test]
fn what_a_kernel_has_already_is_no_cure() {
    let blocks = |release: &str| {
        told(&format!(
            "[0.0000] Linux version {release}\n[0.1000] Memory: 2100000000K/2147483648K available\n\
             [0.2000] x86/mm: Memory block size: 2048MB\n[0.7000] clocksource: jiffies\n"
        ))
    };
    let (_, cure, fixed_in) = blocks("5.4.0");
    assert!(cure.contains("from 5.8") && fixed_in == Some("5.8"));
    let (why, cure, fixed_in) = blocks("6.1.0");
    assert!(!why.contains("5.8") && !cure.contains("5.8") && fixed_in.is_none());
    let eager = |release: &str| {
        told(&format!(
            "[0.0000] Linux version {release}\n[0.0100] On node 0 totalpages: 1\n[3.0000] ACPI: PM-Timer\n"
        ))
    };
    assert_eq!(eager("5.9.0").2, Some("5.11"));
    assert_eq!(eager("6.1.0").2, None);
}

#[test]
fn one_time_is_counted_once() {
    let log = "[9.0000] node 0 initialised, 10000000 pages in 2000ms\n";
    let ids: Vec<&str> = diagnose("lines", log.as_bytes())
        .findings
        .iter()
        .map(|finding| finding.id)
        .collect();
    assert_eq!(ids, ["deferral-slow"]);
    let log = "[9.0000] node 0 initialised, 100000000 pages in 4100ms\n";
    let ids: Vec<&str> = diagnose("lines", log.as_bytes())
        .findings
        .iter()
        .map(|finding| finding.id)
        .collect();
    assert_eq!(ids, ["deferral-one-thread"]);
}

/// What each finding of `FOUND` costs, in milliseconds, where it costs anything.
const COSTS: &[(&str, f64)] = &[
    ("memory-blocks-small", 491.52),
    ("memory-blocks-slow", 700.0),
    ("memory-blocks-slow", 22_000.0),
    ("deferral-absent", 2684.35456),
    ("memmap-eager", 2_990.0),
    ("memmap-eager", 990.0),
    ("deferral-defeated", 800.0),
    ("deferral-serial", 800.0),
    ("deferral-slow", 600.0),
    ("deferral-bandwidth", 765.104561),
    ("deferral-uneven", 603.0),
    ("deferral-one-thread", 642.4),
    ("reserved-pages-serial", 2_000.0),
    ("hash-tables-oversized", 3_200.0),
    ("hash-tables-oversized", 50.0),
    ("hash-tables-slow", 1_000.0),
    ("hugepages-slow", 8_000.0),
    ("hugepages-slow", 1_706.0),
    ("memory-accepted-eagerly", 89_500.0),
    ("deferral-slow", 5_460.0),
    ("memory-phase-slow", 3_000.0),
    ("memory-phase-slow", 3_800.0),
    ("wait-embedded-controller", 5_000.0),
    ("wait-firmware-file", 60_000.0),
    ("wait-root-device", 8_000.0),
    ("deferral-uneven", 603.0),
];

#[test]
fn every_rule_says_what_it_costs() {
    let costs = FOUND.iter().filter_map(|(id, log, _)| {
        let findings = diagnose("log", log.as_bytes()).findings;
        let finding = findings.into_iter().find(|finding| finding.id == *id)?;
        Some((*id, finding.cost_ms?))
    });
    assert_eq!(costs.collect::<Vec<_>>(), COSTS);
}
