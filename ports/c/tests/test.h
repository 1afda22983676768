// What the tests share: checks, and a machine with memory.
#ifndef TEST_H
#define TEST_H

#include "firstlight.h"

#include <stdbool.h>
#include <stdint.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

// Counts, and prints what failed.
#define CHECK(condition) check((condition), #condition, __FILE__, __LINE__)
#define CHECK_NUMBER(seen, expected) check_number((seen), (expected), #seen, __FILE__, __LINE__)
#define CHECK_CODE(call, expected) check_code((call), (expected), #call, __FILE__, __LINE__)
// The call is refused with this code, and what is free stays as it was.
#define CHECK_REFUSED(machine, call, expected)                                                     \
    do {                                                                                           \
        fl_statistics before_ = count(machine);                                                    \
        CHECK_CODE((call), (expected));                                                            \
        check_same((machine), before_, #call, __FILE__, __LINE__);                                 \
    } while (0)

void check(bool holds, const char *what, const char *file, int line);
void check_number(uint64_t seen, uint64_t expected, const char *what, const char *file, int line);
void check_code(fl_error seen, fl_error expected, const char *what, const char *file, int line);

// An allocator and the memory of its tables, with guards around that memory.
struct machine {
    fl_frames frames;
    fl_cpu cpus[4];
    unsigned char *memory; // with guards on both sides
    uint64_t bytes;
};

// A machine of 4 CPUs over 0 to `span_bytes`, with nothing added.
struct machine *machine_new(uint64_t span_bytes);
// Checks the tables and their guards, and frees it.
void machine_delete(struct machine *machine);

// The `bytes` of its tables.
unsigned char *machine_memory(struct machine *machine);

fl_statistics count(struct machine *machine);
void check_same(struct machine *machine, fl_statistics before, const char *what, const char *file,
                int line);

void test_errors(void);
void test_create(void);
void test_add(void);
void test_adopt(void);
void test_allocate(void);
void test_frames(void);
void test_places(void);
void test_requests(void);
void test_free(void);
void test_validate(void);
void test_cpus(void);
void test_cpu_arguments(void);
void test_drain(void);
void test_threads(void);
void test_interrupts(void);
void test_readme(void);

#endif
