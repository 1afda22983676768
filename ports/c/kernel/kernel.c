// A kernel of one file: brings its memory up with Firstlight, uses it on 4 CPUs, and checks that
// no frame is handed out twice and that all are there at the end.
//
// Booted by PVH, `qemu-system-x86_64 -kernel`; start.S has the way to `kernel_main`. It ends by
// isa-debug-exit: QEMU's exit code is 33 if all checks passed, 35 if some failed.

#include "firstlight.h"

#include <stdatomic.h>
#include <stdbool.h>

enum { CPUS = 4, ROUNDS = 20000, HELD = 128, EXCHANGED = 64, MAP_ENTRIES = 64 };

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define MAPPED_BYTES (8 * GIB) // what start.S maps

extern char image_start[], image_end[], trampoline[], trampoline_end[];
extern atomic_uint cpus_started;

void kernel_main(uint32_t cpu, uint64_t start_info);

// ---- The machine: ports, the serial line, the end.

static void out8(uint16_t port, uint8_t value) {
    __asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static uint8_t in8(uint16_t port) {
    uint8_t value;
    __asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}

static void relax(void) { __asm__ volatile("pause"); }

static void print(const char *text) {
    for (; *text != '\0'; text++) {
        while ((in8(0x3fd) & 0x20) == 0)
            relax();
        out8(0x3f8, (uint8_t)*text);
    }
}

static void print_number(uint64_t number) {
    char digits[21], *at = digits + 20;
    for (*at = '\0'; number >= 10; number /= 10)
        *--at = (char)('0' + number % 10);
    *--at = (char)('0' + number);
    print(at);
}

static _Noreturn void halt(void) {
    for (;;)
        __asm__ volatile("cli; hlt");
}

// ---- Checks. A CPU counts what went wrong in its rounds; CPU 0 checks and prints.

static unsigned passed, failed;
static uint64_t added_frames;
static atomic_ullong operations;

static _Noreturn void end(void) {
    print("C kernel: ");
    print_number(added_frames / 256);
    print(" MiB, ");
    print_number(atomic_load(&cpus_started));
    print(" CPUs, ");
    print_number(atomic_load(&operations));
    print(" operations: ");
    print_number(passed);
    print(" passed, ");
    print_number(failed);
    print(" failed\n");
    out8(0xf4, failed == 0 ? 16 : 17); // QEMU's exit code is (value << 1) | 1
    halt();
}

static void check(bool holds, const char *what) {
    if (!holds) {
        print("FAILED: ");
        print(what);
        print("\n");
    }
    *(holds ? &passed : &failed) += 1;
}

static void check_code(fl_error seen, fl_error expected, const char *what) {
    check(seen == expected, what);
    if (seen != expected) {
        print("  seen: ");
        print(fl_error_string(seen));
        print(", expected: ");
        print(fl_error_string(expected));
        print("\n");
    }
}

// What the rest depends on: without memory there is no kernel.
static void must_hold(bool holds, const char *what) {
    check(holds, what);
    if (!holds)
        end();
}

static void must(fl_error error, const char *what) {
    check_code(error, FL_OK, what);
    if (error != FL_OK)
        end();
}

// ---- Memory: the loader's map, and what the kernel makes of it.

struct map_entry {
    uint64_t start, bytes;
    uint32_t type, reserved; // type 1 is memory
};

struct start_info {
    uint32_t magic, version, flags, modules;
    uint64_t module_list, command_line, rsdp, map;
    uint32_t map_entries, reserved;
};

static fl_frames frames;
static fl_cpu caches[CPUS];

// A copy of the map, needed at boot only: a page that becomes memory later.
static union {
    struct map_entry entries[MAP_ENTRIES];
    char page[FL_FRAME_BYTES];
} boot __attribute__((aligned(4096)));

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t frames_up(uint64_t bytes) { return (bytes + 4095) & ~UINT64_C(4095); }

static void add(uint64_t start, uint64_t end) {
    if (start >= end)
        return;
    must(fl_add(&frames, start, end - start), "memory is added");
    added_frames += (end - start) / FL_FRAME_BYTES;
}

static void bring_up(uint32_t entries) {
    uint64_t end = 0, bytes;
    for (uint32_t i = 0; i < entries; i++)
        if (boot.entries[i].type == 1)
            end = larger(end, (boot.entries[i].start + boot.entries[i].bytes) & ~UINT64_C(4095));
    must(fl_bytes_for(0, end, entries + 4, CPUS, &bytes), "tables have a size");
    // The tables follow the kernel's image; neither is ever added.
    uint64_t used_start = (uint64_t)image_start, used_end = frames_up((uint64_t)image_end + bytes);
    must(fl_create(&frames, 0, end, CPUS, image_end, bytes), "the allocator is created");
    for (uint32_t i = 0; i < entries; i++) {
        if (boot.entries[i].type != 1)
            continue;
        uint64_t start = frames_up(larger(boot.entries[i].start, MIB)); // start info lies below
        uint64_t stop = (boot.entries[i].start + boot.entries[i].bytes) & ~UINT64_C(4095);
        add(start, smaller(stop, larger(start, used_start)));
        add(larger(start, smaller(used_end, stop)), stop);
    }
}

// ---- Which frames are handed out: a bit each, and a stamp in the first and the last.

static atomic_ullong in_use[MAPPED_BYTES / FL_FRAME_BYTES / 64];
static atomic_uint faults;

static void mark(uint64_t address, uint64_t count, bool used) {
    uint64_t first = address / FL_FRAME_BYTES, last = first + count - 1;
    if (address % FL_FRAME_BYTES != 0 || (last + 1) * FL_FRAME_BYTES > MAPPED_BYTES) {
        atomic_fetch_add(&faults, 1);
        return;
    }
    for (uint64_t word = first / 64; word <= last / 64; word++) {
        unsigned long long bits = ~0ULL;
        if (word == first / 64)
            bits &= ~0ULL << first % 64;
        if (word == last / 64)
            bits &= ~0ULL >> (63 - last % 64);
        unsigned long long old = used ? atomic_fetch_or(&in_use[word], bits)
                                      : atomic_fetch_and(&in_use[word], ~bits);
        if ((used ? old : ~old) & bits)
            atomic_fetch_add(&faults, 1);
    }
    volatile uint64_t *stamps[] = {(uint64_t *)address, (uint64_t *)(last * FL_FRAME_BYTES)};
    for (int i = 0; i < 2; i++) {
        if (used)
            *stamps[i] = address ^ count;
        else if (*stamps[i] != (address ^ count))
            atomic_fetch_add(&faults, 1);
    }
}

// ---- What every CPU does.

struct block {
    uint64_t address, count;
};

static atomic_ullong exchange[EXCHANGED]; // pages that another CPU frees

static uint64_t next(uint64_t *random) {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

static void expect(fl_error error) {
    if (error != FL_OK)
        atomic_fetch_add(&faults, 1);
}

static struct block allocate(fl_cpu *cpu, uint64_t *random) {
    struct block block = {0, 0};
    uint32_t flags = next(random) % 2 ? FL_MOVABLE : 0;
    fl_error error;
    if (next(random) % 8 == 0) {
        uint64_t align = UINT64_C(1) << next(random) % 10;
        block.count = 1 + next(random) % 700;
        fl_request request = {.flags = flags};
        error = fl_cpu_allocate_frames(cpu, block.count, align, &request, &block.address);
        if (error == FL_OK && block.address / FL_FRAME_BYTES % align != 0)
            atomic_fetch_add(&faults, 1);
    } else {
        uint32_t order = next(random) % 4 ? 0 : (uint32_t)(next(random) % 11);
        fl_request request = {.flags = flags, .order = order};
        block.count = UINT64_C(1) << request.order;
        error = fl_cpu_allocate(cpu, &request, &block.address);
        if (error == FL_OK && block.address / FL_FRAME_BYTES % block.count != 0)
            atomic_fetch_add(&faults, 1);
    }
    expect(error);
    if (error == FL_OK)
        mark(block.address, block.count, true);
    return error == FL_OK ? block : (struct block){0, 0};
}

static void release(fl_cpu *cpu, struct block block) {
    uint32_t order = 0;
    if (block.count == 0)
        return;
    mark(block.address, block.count, false);
    while (UINT64_C(1) << order < block.count)
        order++;
    bool is_block = UINT64_C(1) << order == block.count;
    if (is_block && block.address / FL_FRAME_BYTES % block.count == 0)
        expect(fl_cpu_free(cpu, block.address, order));
    else
        expect(fl_cpu_free_frames(cpu, block.address, block.count));
}

static void churn(uint32_t number, fl_cpu *cpu) {
    struct block held[HELD] = {{0, 0}};
    uint64_t random = 0x9e3779b97f4a7c15 * (number + 1);
    for (int round = 0; round < ROUNDS; round++) {
        struct block *at = &held[next(&random) % HELD];
        if (at->count == 0) {
            *at = allocate(cpu, &random);
        } else if (at->count == 1 && next(&random) % 4 == 0) {
            // Another CPU frees it, and this one what another left.
            uint64_t taken = atomic_exchange(&exchange[next(&random) % EXCHANGED], at->address);
            release(cpu, (struct block){taken, taken != 0});
            *at = (struct block){0, 0};
        } else {
            release(cpu, *at);
            *at = (struct block){0, 0};
        }
        atomic_fetch_add_explicit(&operations, 1, memory_order_relaxed);
    }
    for (int i = 0; i < HELD; i++)
        release(cpu, held[i]);
}

// All CPUs meet here; those that wait free what others request.
static void barrier(fl_cpu *cpu) {
    static atomic_uint arrived;
    unsigned mine = atomic_fetch_add(&arrived, 1);
    while (atomic_load(&arrived) < (mine / CPUS + 1) * CPUS) {
        fl_error polled = cpu == NULL ? FL_OK : fl_cpu_poll(cpu);
        expect(polled);
        relax();
    }
}

// ---- The other CPUs: INIT, then the start page, to all but this one.

static void command(uint32_t value) {
    volatile uint32_t *apic = (volatile uint32_t *)UINT64_C(0xfee00000);
    apic[0x310 / 4] = 0;
    apic[0x300 / 4] = value;
    while (apic[0x300 / 4] & 1 << 12)
        relax();
}

static bool start_cpus(void) {
    enum { PAGE = 0x8000 };
    char *page = (char *)(uint64_t)PAGE;
    for (char *at = trampoline; at < trampoline_end; at++)
        *page++ = *at;
    command(0xc4500);                // INIT
    for (int i = 0; i < 10000; i++)  // some microseconds each
        in8(0x80);
    command(0xc4600 | PAGE >> 12);   // STARTUP
    for (long i = 0; i < 2000000 && atomic_load(&cpus_started) < CPUS; i++)
        in8(0x80);
    return atomic_load(&cpus_started) == CPUS;
}

// ---- What only CPU 0 does.

static fl_statistics count(void) {
    fl_statistics counted;
    must(fl_count(&frames, &counted), "frames are counted");
    return counted;
}

// Until nothing is left, in a list through the frames themselves; returns how many frames.
static uint64_t allocate_all(fl_cpu *cpu, uint64_t *list, fl_request request) {
    uint64_t got = 0, address;
    fl_error error;
    while ((error = fl_cpu_allocate(cpu, &request, &address)) == FL_OK) {
        mark(address, UINT64_C(1) << request.order, true);
        ((uint64_t *)address)[1] = *list;
        *list = address;
        got += UINT64_C(1) << request.order;
    }
    if (error != FL_OUT_OF_MEMORY)
        atomic_fetch_add(&faults, 1);
    return got;
}

static void free_all(fl_cpu *cpu, uint64_t list, uint64_t frames_each) {
    while (list != 0) {
        uint64_t address = list;
        list = ((uint64_t *)address)[1];
        release(cpu, (struct block){address, frames_each});
    }
}

static void exhaust(fl_cpu *cpu) {
    uint64_t huges = 0, pages = 0, held = 0, address;
    uint64_t got = allocate_all(cpu, &huges, (fl_request){.order = FL_HUGE_ORDER});
    got += allocate_all(cpu, &pages, (fl_request){.held_by_cpus = &held});
    // The others poll: what they cache comes back, and this CPU tries again.
    fl_drain drain;
    must(fl_request_drain(&frames, &drain), "a drain is requested");
    held = 1;
    for (long tries = 0; tries < 4000000 && held != 0; tries++) {
        expect(fl_cpu_poll(cpu));
        expect(fl_drain_pending_frames(&drain, &held));
        relax();
    }
    must_hold(held == 0, "all CPUs drain");
    got += allocate_all(cpu, &pages, (fl_request){0});
    check(got == added_frames, "all memory can be allocated, what other CPUs cached too");
    fl_request page = {.flags = FL_ON_NODE | FL_MOVABLE};
    check_code(fl_allocate(&frames, &page, &address), FL_OUT_OF_MEMORY, "and no more than that");
    free_all(cpu, huges, 512);
    free_all(cpu, pages, 1);
}

// A page that only booting needed becomes memory.
static void adopt_boot_page(fl_cpu *cpu) {
    uint64_t page = (uint64_t)&boot;
    check(fl_free(&frames, page, 0) != FL_OK, "a page that was never added can't be freed");
    check_code(fl_adopt(&frames, page, FL_FRAME_BYTES), FL_OK, "the boot page is adopted");
    check_code(fl_adopt(&frames, page, FL_FRAME_BYTES), FL_PRESENT, "but not twice");
    check_code(fl_cpu_free(cpu, page, 0), FL_OK, "and freed");
    added_frames += 1;
}

static void refuse(fl_cpu *cpu) {
    uint64_t address = 42;
    fl_cpu *other = &caches[1];
    fl_request huge = {.order = 200};
    check_code(fl_cpu_allocate(cpu, &huge, &address), FL_BAD_ORDER, "order 200 is refused");
    check_code(fl_cpu_allocate(cpu, NULL, &address), FL_NULL, "no request is refused");
    check_code(fl_cpu_init(cpu, &frames, 0, 0), FL_ALREADY_CREATED, "a CPU starts once");
    check_code(fl_cpu_free(cpu, 4096 + 1, 0), FL_MISALIGNED, "half a frame is refused");
    check_code(fl_cpu_init(other, &frames, CPUS, 0), FL_NO_SUCH_CPU, "there is no CPU 4");
    check_code(fl_cpu_init(other, &frames, 0, 0), FL_CPU_TAKEN, "CPU 0 has its number");
    check(address == 42, "what is refused stores nothing");
}

void kernel_main(uint32_t number, uint64_t start_info) {
    fl_cpu *cpu = &caches[number];
    if (number == 0) {
        const struct start_info *info = (const struct start_info *)start_info;
        must_hold(info->magic == 0x336ec578 && info->version >= 1, "there is a start info");
        must_hold(info->map_entries <= MAP_ENTRIES, "the memory map fits a page");
        for (uint32_t i = 0; i < info->map_entries; i++)
            boot.entries[i] = ((const struct map_entry *)info->map)[i];
        bring_up(info->map_entries);
        check(count().free_frames == added_frames, "all memory that was added is free");
        check_code(fl_add(&frames, 64 * MIB, MIB), FL_PRESENT, "memory is added once");
        must(fl_cpu_init(cpu, &frames, 0, 0), "CPU 0 has a cache");
        refuse(cpu);
        must_hold(start_cpus(), "all CPUs start");
    } else {
        expect(fl_cpu_init(cpu, &frames, number, 0));
    }
    barrier(NULL);
    churn(number, cpu);
    barrier(cpu);
    if (number == 0) {
        must_hold(atomic_load(&faults) == 0, "no call failed, no frame was handed out twice");
        for (int i = 0; i < EXCHANGED; i++) {
            uint64_t left = atomic_exchange(&exchange[i], 0);
            release(cpu, (struct block){left, left != 0});
        }
        adopt_boot_page(cpu);
        fl_statistics counted = count();
        check(counted.managed_frames == added_frames, "all that was added and adopted is managed");
        check(counted.free_frames + counted.cached_frames == added_frames, "statistics add up");
        exhaust(cpu);
    }
    barrier(cpu);
    expect(fl_cpu_close(cpu));
    barrier(NULL);
    if (number != 0)
        halt();
    check(atomic_load(&faults) == 0, "and none when memory ran out");
    check(count().free_frames == added_frames, "every frame is free again");
    check_code(fl_validate(&frames), FL_OK, "the tables agree");
    end();
}
