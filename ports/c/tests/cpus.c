// CPUs with caches: what they keep, their arguments, drains.
#include "test.h"

#include <stdlib.h>
#include <string.h>

static struct machine *with_cpus(uint64_t bytes) {
    struct machine *m = machine_new(8 * GIB);
    CHECK_CODE(fl_add(&m->frames, GIB, bytes), FL_OK);
    for (uint32_t cpu = 0; cpu < 4; cpu++)
        CHECK_CODE(fl_cpu_init(&m->cpus[cpu], &m->frames, cpu, 0), FL_OK);
    return m;
}

static void close_cpus(struct machine *m, uint64_t free_frames) {
    for (uint32_t cpu = 0; cpu < 4; cpu++)
        CHECK_CODE(fl_cpu_close(&m->cpus[cpu]), FL_OK);
    CHECK_NUMBER(count(m).free_frames, free_frames);
    machine_delete(m);
}

static uint64_t cached(fl_cpu *cpu) {
    uint64_t frames = 0;
    CHECK_CODE(fl_cpu_cached_frames(cpu, &frames), FL_OK);
    return frames;
}

void test_cpus(void) {
    struct machine *m = with_cpus(GIB);
    fl_cpu *cpu = &m->cpus[0];
    uint64_t first, again;
    fl_request page = {0};
    CHECK_CODE(fl_cpu_allocate(cpu, &page, &first), FL_OK);
    CHECK_CODE(fl_cpu_free(cpu, first, 0), FL_OK);
    CHECK_CODE(fl_cpu_allocate(cpu, &page, &again), FL_OK);
    CHECK_NUMBER(again, first);
    // Freed on another CPU.
    CHECK_CODE(fl_cpu_free(&m->cpus[1], again, 0), FL_OK);
    CHECK(cached(&m->cpus[1]) > 0);
    CHECK_NUMBER(count(m).cached_frames, cached(cpu) + cached(&m->cpus[1]));
    CHECK_NUMBER(count(m).free_frames + count(m).cached_frames, GIB / 4096);
    CHECK_NUMBER(count(m).managed_frames, GIB / 4096);
    for (uint32_t order = 0; order <= 12; order++) {
        fl_request request = {.order = order, .flags = order % 2 ? FL_MOVABLE : 0};
        CHECK_CODE(fl_cpu_allocate(cpu, &request, &first), FL_OK);
        CHECK_NUMBER(first % (UINT64_C(4096) << order), 0);
        CHECK_CODE(fl_cpu_free(cpu, first, order), FL_OK);
    }
    for (uint64_t frames = 1; frames < 2000; frames += 37) {
        CHECK_CODE(fl_cpu_allocate_frames(cpu, frames, 4, &page, &first), FL_OK);
        CHECK_NUMBER(first % (4 * 4096), 0);
        CHECK_CODE(fl_cpu_free_frames(cpu, first, frames), FL_OK);
    }
    CHECK_CODE(fl_cpu_drain(cpu), FL_OK);
    CHECK_NUMBER(cached(cpu), 0);

    // Closed, it may start again, also with another number that is free.
    CHECK_CODE(fl_cpu_close(cpu), FL_OK);
    CHECK_CODE(fl_cpu_allocate(cpu, &page, &first), FL_NOT_CREATED);
    CHECK_CODE(fl_cpu_close(cpu), FL_NOT_CREATED);
    CHECK_CODE(fl_cpu_init(cpu, &m->frames, 0, 0), FL_OK);

    // A page freed twice into caches is found when they are drained.
    CHECK_CODE(fl_cpu_allocate(cpu, &page, &first), FL_OK);
    CHECK_CODE(fl_cpu_free(cpu, first, 0), FL_OK);
    CHECK_CODE(fl_cpu_free(&m->cpus[1], first, 0), FL_OK);
    CHECK_CODE(fl_cpu_drain(cpu), FL_OK);
    CHECK_CODE(fl_cpu_drain(&m->cpus[1]), FL_FREED_TWICE);
    CHECK_CODE(fl_cpu_drain(&m->cpus[1]), FL_OK);

    // Or when the CPU is closed, which it is nevertheless.
    CHECK_CODE(fl_cpu_allocate(cpu, &page, &first), FL_OK);
    CHECK_CODE(fl_cpu_free(cpu, first, 0), FL_OK);
    CHECK_CODE(fl_cpu_free(&m->cpus[1], first, 0), FL_OK);
    CHECK_CODE(fl_cpu_drain(cpu), FL_OK);
    CHECK_CODE(fl_cpu_close(&m->cpus[1]), FL_FREED_TWICE);
    CHECK_CODE(fl_cpu_poll(&m->cpus[1]), FL_NOT_CREATED);
    CHECK_CODE(fl_cpu_init(&m->cpus[1], &m->frames, 1, 0), FL_OK);
    close_cpus(m, GIB / 4096);
}

void test_cpu_arguments(void) {
    struct machine *m = with_cpus(GIB);
    fl_cpu *cpu = &m->cpus[0], *odd = (fl_cpu *)(void *)((char *)cpu + 8);
    uint64_t address = 42;
    fl_request page = {0};
    fl_cpu *fresh = aligned_alloc(64, sizeof *fresh);
    if (fresh == NULL)
        abort();
    memset(fresh, 0, sizeof *fresh);

    CHECK_REFUSED(m, fl_cpu_init(NULL, &m->frames, 0, 0), FL_NULL);
    CHECK_REFUSED(m, fl_cpu_init(odd, &m->frames, 0, 0), FL_UNALIGNED);
    CHECK_REFUSED(m, fl_cpu_init(fresh, NULL, 0, 0), FL_NULL);
    CHECK_REFUSED(m, fl_cpu_init(cpu, &m->frames, 0, 0), FL_ALREADY_CREATED);
    CHECK_REFUSED(m, fl_cpu_init(fresh, &m->frames, 0, 0), FL_CPU_TAKEN);
    CHECK_REFUSED(m, fl_cpu_init(fresh, &m->frames, 3, 0), FL_CPU_TAKEN);
    CHECK_REFUSED(m, fl_cpu_init(fresh, &m->frames, 4, 0), FL_NO_SUCH_CPU);
    CHECK_REFUSED(m, fl_cpu_init(fresh, &m->frames, UINT32_MAX, 0), FL_NO_SUCH_CPU);
    CHECK_REFUSED(m, fl_cpu_init(fresh, &m->frames, 0, 1), FL_NO_SUCH_NODE);
    CHECK_REFUSED(m, fl_cpu_init(fresh, &m->frames, 0, 65536), FL_NO_SUCH_NODE);
    const struct {
        fl_cpu *cpu;
        fl_error error;
    } none[] = {{NULL, FL_NULL}, {odd, FL_UNALIGNED}, {fresh, FL_NOT_CREATED}};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        fl_cpu *bad = none[i].cpu;
        fl_error error = none[i].error;
        CHECK_REFUSED(m, fl_cpu_allocate(bad, &page, &address), error);
        CHECK_REFUSED(m, fl_cpu_allocate_frames(bad, 3, 1, &page, &address), error);
        CHECK_REFUSED(m, fl_cpu_free(bad, 0, 0), error);
        CHECK_REFUSED(m, fl_cpu_free_frames(bad, 0, 1), error);
        CHECK_REFUSED(m, fl_cpu_poll(bad), error);
        CHECK_REFUSED(m, fl_cpu_drain(bad), error);
        CHECK_REFUSED(m, fl_cpu_close(bad), error);
        CHECK_REFUSED(m, fl_cpu_cached_frames(bad, &address), error);
    }
    CHECK_REFUSED(m, fl_cpu_allocate(cpu, NULL, &address), FL_NULL);
    CHECK_REFUSED(m, fl_cpu_allocate(cpu, &page, NULL), FL_NULL);
    CHECK_REFUSED(m, fl_cpu_allocate_frames(cpu, 1, 1, NULL, &address), FL_NULL);
    CHECK_REFUSED(m, fl_cpu_allocate_frames(cpu, 1, 1, &page, NULL), FL_NULL);
    CHECK_REFUSED(m, fl_cpu_allocate_frames(cpu, 0, 1, &page, &address), FL_NO_FRAMES);
    CHECK_REFUSED(m, fl_cpu_allocate_frames(cpu, 1, 5, &page, &address), FL_BAD_ALIGNMENT);
    CHECK_REFUSED(m, fl_cpu_allocate_frames(cpu, UINT64_MAX, 1, &page, &address), FL_OUT_OF_MEMORY);
    CHECK_REFUSED(m, fl_cpu_allocate_frames(cpu, 1, UINT64_C(1) << 63, &page, &address),
                  FL_OUT_OF_MEMORY);
    CHECK_REFUSED(m, fl_cpu_cached_frames(cpu, NULL), FL_NULL);
    fl_request absurd = {.order = 200};
    CHECK_REFUSED(m, fl_cpu_allocate(cpu, &absurd, &address), FL_BAD_ORDER);
    absurd = (fl_request){.flags = 1 << 20};
    CHECK_REFUSED(m, fl_cpu_allocate(cpu, &absurd, &address), FL_BAD_FLAGS);
    absurd = (fl_request){.flags = FL_ON_NODE, .node = 9};
    CHECK_REFUSED(m, fl_cpu_allocate(cpu, &absurd, &address), FL_NO_SUCH_NODE);
    CHECK_REFUSED(m, fl_cpu_free(cpu, GIB, 200), FL_BAD_ORDER);
    CHECK_REFUSED(m, fl_cpu_free(cpu, GIB + 1, 0), FL_MISALIGNED);
    CHECK_REFUSED(m, fl_cpu_free(cpu, GIB, 0), FL_NOT_ALLOCATED);
    CHECK_REFUSED(m, fl_cpu_free(cpu, 3 * GIB, 0), FL_ABSENT);
    CHECK_REFUSED(m, fl_cpu_free(cpu, UINT64_MAX - 4095, 0), FL_OUTSIDE_SPAN);
    CHECK_REFUSED(m, fl_cpu_free_frames(cpu, GIB, 0), FL_NO_FRAMES);
    CHECK_REFUSED(m, fl_cpu_free_frames(cpu, GIB, 7), FL_NOT_ALLOCATED);
    CHECK_REFUSED(m, fl_cpu_free_frames(cpu, GIB, UINT64_MAX), FL_OUTSIDE_SPAN);
    CHECK_NUMBER(address, 42);
    free(fresh);
    close_cpus(m, GIB / 4096);
}

void test_drain(void) {
    struct machine *m = with_cpus(GIB);
    fl_request page = {0};
    uint64_t address, held = 0;
    fl_drain drain = {{0}};
    CHECK_CODE(fl_request_drain(NULL, &drain), FL_NULL);
    CHECK_CODE(fl_request_drain(&m->frames, NULL), FL_NULL);
    CHECK_CODE(fl_drain_pending_frames(NULL, &held), FL_NULL);
    CHECK_CODE(fl_drain_pending_frames(&drain, &held), FL_NOT_CREATED);
    CHECK_NUMBER(fl_drain_next_cpu(&drain, 0), FL_NO_CPU);
    CHECK_NUMBER(fl_drain_next_cpu(NULL, 0), FL_NO_CPU);

    // CPUs 1 and 2 cache some; CPU 0 allocates all else, and then that as well.
    for (uint32_t cpu = 1; cpu <= 2; cpu++) {
        CHECK_CODE(fl_cpu_allocate(&m->cpus[cpu], &page, &address), FL_OK);
        CHECK_CODE(fl_cpu_free(&m->cpus[cpu], address, 0), FL_OK);
    }
    const uint64_t others = cached(&m->cpus[1]) + cached(&m->cpus[2]);
    CHECK(others > 0);
    page.held_by_cpus = &held;

    // A request that may not drain leaves caches as they are.
    fl_request giant = {.order = FL_MAX_ORDER, .flags = FL_NO_DRAIN};
    CHECK_CODE(fl_cpu_allocate(&m->cpus[0], &giant, &address), FL_OUT_OF_MEMORY);
    for (uint32_t cpu = 1; cpu <= 3; cpu++)
        CHECK_CODE(fl_cpu_poll(&m->cpus[cpu]), FL_OK);
    CHECK_NUMBER(cached(&m->cpus[1]) + cached(&m->cpus[2]), others);

    uint64_t *taken = calloc(GIB / 4096, sizeof *taken), got = 0;
    if (taken == NULL)
        abort();
    fl_error error;
    while ((error = fl_cpu_allocate(&m->cpus[0], &page, &taken[got])) == FL_OK)
        got++;
    CHECK_CODE(error, FL_OUT_OF_MEMORY);
    CHECK_NUMBER(held, others);
    CHECK_NUMBER(got + others, GIB / 4096);

    CHECK_CODE(fl_request_drain(&m->frames, &drain), FL_OK);
    CHECK_CODE(fl_drain_pending_frames(&drain, NULL), FL_NULL);
    const uint32_t next[] = {1, 1, 2, FL_NO_CPU, FL_NO_CPU};
    for (uint32_t from = 0; from < 5; from++)
        CHECK_NUMBER(fl_drain_next_cpu(&drain, from), next[from]);
    CHECK_NUMBER(fl_drain_next_cpu(&drain, UINT32_MAX), FL_NO_CPU);
    CHECK_CODE(fl_drain_pending_frames(&drain, &held), FL_OK);
    CHECK_NUMBER(held, others);
    CHECK_CODE(fl_cpu_poll(&m->cpus[1]), FL_OK);
    CHECK_NUMBER(cached(&m->cpus[1]), 0);
    CHECK_CODE(fl_drain_pending_frames(&drain, &held), FL_OK);
    CHECK_NUMBER(held, cached(&m->cpus[2]));
    CHECK_CODE(fl_cpu_poll(&m->cpus[2]), FL_OK);
    CHECK_CODE(fl_drain_pending_frames(&drain, &held), FL_OK);
    CHECK_NUMBER(held, 0);
    CHECK_NUMBER(fl_drain_next_cpu(&drain, 0), FL_NO_CPU);
    while (fl_cpu_allocate(&m->cpus[0], &page, &taken[got]) == FL_OK)
        got++;
    CHECK_NUMBER(got, GIB / 4096);
    bool freed = true;
    for (uint64_t i = 0; i < got; i++)
        freed &= fl_cpu_free(&m->cpus[0], taken[i], 0) == FL_OK;
    CHECK(freed);
    free(taken);
    close_cpus(m, GIB / 4096);
}
