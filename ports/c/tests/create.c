// Creating an allocator, adding and adopting memory.
#include "test.h"

#include <stdlib.h>
#include <string.h>

void test_errors(void) {
    for (int32_t code = FL_OK; code <= FL_NO_MEMORY; code++) {
        CHECK(fl_error_string(code) != NULL);
        CHECK(strcmp(fl_error_string(code), fl_error_string(-1)) != 0);
        for (int32_t other = FL_OK; other < code; other++)
            CHECK(strcmp(fl_error_string(code), fl_error_string(other)) != 0);
    }
    const int32_t none[] = {FL_NO_MEMORY + 1, 1000, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        CHECK(strcmp(fl_error_string(none[i]), fl_error_string(-1)) == 0);
}

void test_create(void) {
    static fl_frames frames;
    static unsigned char memory[1 << 20];
    const uint64_t size = GIB;
    uint64_t bytes = 42;

    CHECK_CODE(fl_bytes_for(0, size, 8, 4, NULL), FL_NULL);
    CHECK_CODE(fl_bytes_for(0, size, 8, 4, (uint64_t *)(void *)(memory + 1)), FL_UNALIGNED);
    CHECK_CODE(fl_bytes_for(0, 0, 8, 4, &bytes), FL_BAD_SPAN);
    CHECK_CODE(fl_bytes_for(1, 4096, 8, 4, &bytes), FL_BAD_SPAN);
    CHECK_CODE(fl_bytes_for(4096, 4095, 8, 4, &bytes), FL_BAD_SPAN);
    CHECK_CODE(fl_bytes_for(0, (UINT64_C(1) << 52) + 4096, 8, 4, &bytes), FL_BAD_SPAN);
    CHECK_CODE(fl_bytes_for(4096, UINT64_MAX, 8, 4, &bytes), FL_BAD_SPAN);
    CHECK_CODE(fl_bytes_for(UINT64_MAX - 4095, 4096, 8, 4, &bytes), FL_BAD_SPAN);
    CHECK_NUMBER(bytes, 42);
    // All that there can be has a size, too.
    CHECK_CODE(fl_bytes_for(0, UINT64_C(1) << 52, UINT32_MAX, UINT32_MAX, &bytes), FL_OK);
    CHECK(bytes > UINT64_C(1) << 36);
    CHECK_CODE(fl_bytes_for(0, 4096, 0, 0, &bytes), FL_OK);
    CHECK_CODE(fl_bytes_for(0, size, 8, 4, &bytes), FL_OK);
    CHECK(bytes <= sizeof memory);

    CHECK_CODE(fl_create(NULL, 0, size, 4, memory, sizeof memory), FL_NULL);
    CHECK_CODE(fl_create(&frames, 0, size, 4, NULL, sizeof memory), FL_NULL);
    fl_frames *odd = (fl_frames *)(void *)((unsigned char *)&frames + 8);
    CHECK_CODE(fl_create(odd, 0, size, 4, memory, sizeof memory), FL_UNALIGNED);
    CHECK_CODE(fl_create(&frames, 0, 0, 4, memory, sizeof memory), FL_BAD_SPAN);
    CHECK_CODE(fl_create(&frames, 1, size, 4, memory, sizeof memory), FL_BAD_SPAN);
    CHECK_CODE(fl_create(&frames, 4096, UINT64_MAX - 8191, 4, memory, sizeof memory), FL_BAD_SPAN);
    CHECK_CODE(fl_create(&frames, 0, size, 4, memory, SIZE_MAX), FL_TOO_LARGE);
    CHECK_CODE(fl_create(&frames, 0, size, 4, memory, SIZE_MAX / 2 + 1), FL_TOO_LARGE);
    CHECK_CODE(fl_create(&frames, 0, size, UINT32_MAX, memory, sizeof memory), FL_NO_SPACE);
    CHECK_CODE(fl_create(&frames, 0, UINT64_C(1) << 52, 4, memory, sizeof memory), FL_NO_SPACE);
    // Up to the least, without ranges that are added, and to where `memory` happens to be aligned.
    uint64_t least = 0;
    CHECK_CODE(fl_bytes_for(0, size, 0, 4, &least), FL_OK);
    CHECK(least > 4 * 12032 && least <= bytes);
    for (size_t few = 0; few + 64 <= least; few += 63)
        CHECK_CODE(fl_create(&frames, 0, size, 4, memory, few), FL_NO_SPACE);

    // Nothing works before.
    uint64_t address;
    fl_cpu *cpu = aligned_alloc(64, sizeof *cpu);
    if (cpu == NULL)
        abort();
    memset(cpu, 0, sizeof *cpu);
    fl_drain drain;
    fl_statistics counted;
    fl_request page = {0};
    CHECK_CODE(fl_add(&frames, 0, 4096), FL_NOT_CREATED);
    CHECK_CODE(fl_adopt(&frames, 0, 4096), FL_NOT_CREATED);
    CHECK_CODE(fl_allocate(&frames, &page, &address), FL_NOT_CREATED);
    CHECK_CODE(fl_allocate_frames(&frames, 1, 1, &page, &address), FL_NOT_CREATED);
    CHECK_CODE(fl_free(&frames, 0, 0), FL_NOT_CREATED);
    CHECK_CODE(fl_free_frames(&frames, 0, 1), FL_NOT_CREATED);
    CHECK_CODE(fl_count(&frames, &counted), FL_NOT_CREATED);
    CHECK_CODE(fl_count_zone(&frames, 0, 0, &counted), FL_NOT_CREATED);
    CHECK_CODE(fl_validate(&frames), FL_NOT_CREATED);
    CHECK_CODE(fl_request_drain(&frames, &drain), FL_NOT_CREATED);
    CHECK_CODE(fl_cpu_init(cpu, &frames, 0, 0), FL_NOT_CREATED);
    CHECK_CODE(fl_cpu_allocate(cpu, &page, &address), FL_NOT_CREATED);
    free(cpu);

    CHECK_CODE(fl_create(&frames, 0, size, 4, memory, sizeof memory), FL_OK);
    CHECK_CODE(fl_create(&frames, 0, size, 4, memory, sizeof memory), FL_ALREADY_CREATED);
    CHECK_CODE(fl_count(&frames, &counted), FL_OK);
    CHECK_NUMBER(counted.free_frames, 0);
    CHECK_NUMBER(counted.managed_frames, 0);
    CHECK_CODE(fl_allocate(&frames, &page, &address), FL_OUT_OF_MEMORY);
    CHECK_CODE(fl_validate(&frames), FL_OK);
}

void test_add(void) {
    struct machine *m = machine_new(8 * GIB);
    CHECK_CODE(fl_add(&m->frames, 64 * MIB, 32 * MIB), FL_OK);
    CHECK_NUMBER(count(m).free_frames, 32 * MIB / 4096);

    CHECK_REFUSED(m, fl_add(NULL, 0, 4096), FL_NULL);
    CHECK_REFUSED(m, fl_add((fl_frames *)(void *)((char *)&m->frames + 1), 0, 4096), FL_UNALIGNED);
    CHECK_REFUSED(m, fl_add(&m->frames, 4096, 0), FL_MISALIGNED);
    CHECK_REFUSED(m, fl_add(&m->frames, 1, 4096), FL_MISALIGNED);
    CHECK_REFUSED(m, fl_add(&m->frames, 4096, 1), FL_MISALIGNED);
    CHECK_REFUSED(m, fl_add(&m->frames, 4096, 4097), FL_MISALIGNED);
    CHECK_REFUSED(m, fl_add(&m->frames, 8 * GIB, 4096), FL_OUTSIDE_SPAN);
    CHECK_REFUSED(m, fl_add(&m->frames, 8 * GIB - 4096, 8192), FL_OUTSIDE_SPAN);
    CHECK_REFUSED(m, fl_add(&m->frames, 4096, UINT64_MAX - 8191), FL_OUTSIDE_SPAN);
    CHECK_REFUSED(m, fl_add(&m->frames, UINT64_MAX - 4095, 4096), FL_OUTSIDE_SPAN);
    // Twice; over its start, its end, all of it, and in it.
    CHECK_REFUSED(m, fl_add(&m->frames, 64 * MIB, 32 * MIB), FL_PRESENT);
    CHECK_REFUSED(m, fl_add(&m->frames, 60 * MIB, 4 * MIB + 4096), FL_PRESENT);
    CHECK_REFUSED(m, fl_add(&m->frames, 96 * MIB - 4096, 8192), FL_PRESENT);
    CHECK_REFUSED(m, fl_add(&m->frames, 0, 8 * GIB), FL_PRESENT);
    CHECK_REFUSED(m, fl_add(&m->frames, 80 * MIB, 4096), FL_PRESENT);
    CHECK_REFUSED(m, fl_adopt(&m->frames, 80 * MIB, 4096), FL_PRESENT);

    // More, after allocations began: before, behind, and beyond 4 GiB.
    uint64_t address;
    fl_request huge = {.order = FL_HUGE_ORDER};
    CHECK_CODE(fl_allocate(&m->frames, &huge, &address), FL_OK);
    CHECK_CODE(fl_add(&m->frames, 0, 64 * MIB), FL_OK);
    CHECK_CODE(fl_add(&m->frames, 96 * MIB, 4096), FL_OK);
    CHECK_CODE(fl_add(&m->frames, 4 * GIB - 4096, GIB + 8192), FL_OK);
    CHECK_NUMBER(count(m).free_frames, (96 * MIB + GIB) / 4096 + 1 + 2 - 512);
    CHECK_CODE(fl_free(&m->frames, address, FL_HUGE_ORDER), FL_OK);

    // More holes than there is space for: refused, and at last as many as were announced.
    uint64_t ranges = 0;
    fl_error error = FL_OK;
    for (uint64_t at = GIB; error == FL_OK && ranges < 100000; at += 8192) {
        fl_statistics before = count(m);
        error = fl_add(&m->frames, at, 4096);
        ranges += error == FL_OK;
        if (error != FL_OK)
            CHECK_NUMBER(count(m).free_frames, before.free_frames);
    }
    CHECK_CODE(error, FL_LIST_FULL);
    CHECK(ranges >= 25);
    // One that fills a hole is taken nevertheless.
    CHECK_CODE(fl_add(&m->frames, GIB + 4096, 4096), FL_OK);
    machine_delete(m);
}

void test_adopt(void) {
    struct machine *m = machine_new(8 * GIB);
    CHECK_CODE(fl_add(&m->frames, 16 * MIB, 16 * MIB), FL_OK);
    CHECK_REFUSED(m, fl_adopt(NULL, 0, 4096), FL_NULL);
    CHECK_REFUSED(m, fl_adopt(&m->frames, 0, 0), FL_MISALIGNED);
    CHECK_REFUSED(m, fl_adopt(&m->frames, 7, 4096), FL_MISALIGNED);
    CHECK_REFUSED(m, fl_adopt(&m->frames, 8 * GIB, 4096), FL_OUTSIDE_SPAN);
    CHECK_REFUSED(m, fl_adopt(&m->frames, UINT64_MAX - 4095, 8192), FL_OUTSIDE_SPAN);
    CHECK_REFUSED(m, fl_adopt(&m->frames, 32 * MIB - 4096, 8192), FL_PRESENT);

    // Never added: it can't be freed. Adopted: whole or in parts, and once.
    CHECK_REFUSED(m, fl_free(&m->frames, 40 * MIB, 0), FL_ABSENT);
    CHECK_REFUSED(m, fl_free_frames(&m->frames, 40 * MIB, 3), FL_ABSENT);
    CHECK_CODE(fl_adopt(&m->frames, 40 * MIB, 4 * 4096), FL_OK);
    CHECK_NUMBER(count(m).managed_frames, 16 * MIB / 4096 + 4);
    CHECK_NUMBER(count(m).free_frames, 16 * MIB / 4096);
    CHECK_REFUSED(m, fl_adopt(&m->frames, 40 * MIB, 4096), FL_PRESENT);
    CHECK_REFUSED(m, fl_add(&m->frames, 40 * MIB + 4096, 4096), FL_PRESENT);
    CHECK_REFUSED(m, fl_free_frames(&m->frames, 40 * MIB, 5), FL_ABSENT);
    CHECK_CODE(fl_free(&m->frames, 40 * MIB, 0), FL_OK);
    CHECK_CODE(fl_free_frames(&m->frames, 40 * MIB + 4096, 3), FL_OK);
    CHECK_REFUSED(m, fl_free(&m->frames, 40 * MIB, 0), FL_NOT_ALLOCATED);
    CHECK_NUMBER(count(m).free_frames, 16 * MIB / 4096 + 4);
    machine_delete(m);
}
