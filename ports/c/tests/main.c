// Tests of firstlight.h, as a program of a host. Exit code 0 if all checks passed.
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned passed, failed;

void check(bool holds, const char *what, const char *file, int line) {
    if (!holds)
        fprintf(stderr, "%s:%d: %s\n", file, line, what);
    *(holds ? &passed : &failed) += 1;
}

void check_number(uint64_t seen, uint64_t expected, const char *what, const char *file, int line) {
    check(seen == expected, what, file, line);
    if (seen != expected)
        fprintf(stderr, "  seen %llu, expected %llu\n", (unsigned long long)seen,
                (unsigned long long)expected);
}

void check_code(fl_error seen, fl_error expected, const char *what, const char *file, int line) {
    check(seen == expected, what, file, line);
    if (seen != expected)
        fprintf(stderr, "  seen: %s, expected: %s\n", fl_error_string(seen),
                fl_error_string(expected));
}

enum { GUARD = 256, GUARD_BYTE = 0xa5 };

struct machine *machine_new(uint64_t span_bytes) {
    struct machine *machine = aligned_alloc(64, sizeof *machine);
    if (machine == NULL)
        abort();
    memset(machine, 0, sizeof *machine);
    CHECK_CODE(fl_bytes_for(0, span_bytes, 32, 4, &machine->bytes), FL_OK);
    machine->memory = aligned_alloc(64, (machine->bytes + 2 * GUARD + 63) & ~UINT64_C(63));
    if (machine->memory == NULL)
        abort();
    // Whatever was there before: tables need no zeros.
    memset(machine->memory, GUARD_BYTE, machine->bytes + 2 * GUARD);
    CHECK_CODE(
        fl_create(&machine->frames, 0, span_bytes, 4, machine_memory(machine), machine->bytes),
        FL_OK);
    return machine;
}

// An odd address, as the smallest size must allow.
unsigned char *machine_memory(struct machine *machine) { return machine->memory + GUARD - 1; }

void machine_delete(struct machine *machine) {
    CHECK_CODE(fl_validate(&machine->frames), FL_OK);
    bool intact = true;
    for (uint64_t i = 0; i + 1 < GUARD; i++)
        intact &= machine->memory[i] == GUARD_BYTE;
    for (uint64_t i = GUARD - 1 + machine->bytes; i < machine->bytes + 2 * GUARD; i++)
        intact &= machine->memory[i] == GUARD_BYTE;
    CHECK(intact);
    free(machine->memory);
    free(machine);
}

fl_statistics count(struct machine *machine) {
    fl_statistics counted;
    memset(&counted, 0, sizeof counted);
    CHECK_CODE(fl_count(&machine->frames, &counted), FL_OK);
    return counted;
}

void check_same(struct machine *machine, fl_statistics before, const char *what, const char *file,
                int line) {
    fl_statistics after = count(machine);
    check(memcmp(&before, &after, sizeof after) == 0, what, file, line);
}

int main(void) {
    test_errors();
    test_create();
    test_add();
    test_adopt();
    test_allocate();
    test_frames();
    test_places();
    test_requests();
    test_free();
    test_validate();
    test_cpus();
    test_cpu_arguments();
    test_drain();
    test_threads();
    test_interrupts();
    test_readme();
    printf("%u passed, %u failed\n", passed, failed);
    return failed == 0 ? 0 : 1;
}
