// Allocating and freeing without CPUs' caches.
#include "test.h"

#include <stdlib.h>
#include <string.h>

// 16 MiB below 16 MiB, 112 MiB below 4 GiB, and 4 GiB from there on.
static struct machine *small(void) {
    struct machine *m = machine_new(8 * GIB);
    CHECK_CODE(fl_add(&m->frames, 0, 128 * MIB), FL_OK);
    CHECK_CODE(fl_add(&m->frames, 4 * GIB, 4 * GIB), FL_OK);
    return m;
}

void test_allocate(void) {
    struct machine *m = small();
    const fl_statistics start = count(m);
    CHECK_NUMBER(start.free_frames, (128 * MIB + 4 * GIB) / 4096);
    CHECK_NUMBER(start.free_giants, 4);
    CHECK_NUMBER(start.free_huges, 64 + 2048);
    CHECK_NUMBER(start.partial_huges, 0);

    uint64_t blocks[FL_MAX_ORDER + 1];
    uint64_t frames = 0;
    for (uint32_t order = 0; order <= FL_MAX_ORDER; order++) {
        fl_request request = {.order = order, .flags = order % 2 ? FL_MOVABLE : 0};
        CHECK_CODE(fl_allocate(&m->frames, &request, &blocks[order]), FL_OK);
        CHECK_NUMBER(blocks[order] % (4096 << order), 0);
        frames += UINT64_C(1) << order;
        for (uint32_t other = 0; other < order; other++)
            CHECK(blocks[other] + (UINT64_C(4096) << other) <= blocks[order] ||
                  blocks[order] + (UINT64_C(4096) << order) <= blocks[other]);
    }
    CHECK_NUMBER(count(m).free_frames, start.free_frames - frames);
    CHECK_NUMBER(count(m).managed_frames, start.free_frames);
    CHECK_CODE(fl_validate(&m->frames), FL_OK);
    for (uint32_t order = 0; order <= FL_MAX_ORDER; order++) {
        CHECK_CODE(fl_free(&m->frames, blocks[order], order), FL_OK);
        CHECK_REFUSED(m, fl_free(&m->frames, blocks[order], order), FL_NOT_ALLOCATED);
    }
    CHECK_NUMBER(count(m).free_frames, start.free_frames);
    CHECK_NUMBER(count(m).free_giants, start.free_giants);

    // In parts.
    fl_request huge = {.order = FL_HUGE_ORDER};
    uint64_t block;
    CHECK_CODE(fl_allocate(&m->frames, &huge, &block), FL_OK);
    for (uint64_t part = 0; part < 512; part += 8)
        CHECK_CODE(fl_free(&m->frames, block + part * 4096, 3), FL_OK);
    CHECK_NUMBER(count(m).free_frames, start.free_frames);
    machine_delete(m);
}

void test_frames(void) {
    struct machine *m = small();
    const uint64_t free = count(m).free_frames;
    const uint64_t counts[] = {1, 3, 7, 64, 511, 513, 1000, 262145};
    const uint64_t aligns[] = {1, 2, 512, 262144};
    fl_request any = {0};
    uint64_t address;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        for (size_t j = 0; j < sizeof aligns / sizeof *aligns; j++) {
            CHECK_CODE(fl_allocate_frames(&m->frames, counts[i], aligns[j], &any, &address), FL_OK);
            CHECK_NUMBER(address / 4096 % aligns[j], 0);
            CHECK_NUMBER(count(m).free_frames, free - counts[i]);
            CHECK_REFUSED(m, fl_free_frames(&m->frames, address, counts[i] + (4 * GIB)),
                          FL_OUTSIDE_SPAN);
            CHECK_CODE(fl_free_frames(&m->frames, address, counts[i]), FL_OK);
            CHECK_REFUSED(m, fl_free_frames(&m->frames, address, counts[i]), FL_NOT_ALLOCATED);
        }
    }
    // The request's order is a least alignment.
    fl_request aligned = {.order = 4};
    CHECK_CODE(fl_allocate_frames(&m->frames, 3, 1, &aligned, &address), FL_OK);
    CHECK_NUMBER(address % (16 * 4096), 0);
    CHECK_CODE(fl_free_frames(&m->frames, address, 3), FL_OK);

    address = 42;
    CHECK_REFUSED(m, fl_allocate_frames(NULL, 1, 1, &any, &address), FL_NULL);
    CHECK_REFUSED(m, fl_allocate_frames(&m->frames, 1, 1, NULL, &address), FL_NULL);
    CHECK_REFUSED(m, fl_allocate_frames(&m->frames, 1, 1, &any, NULL), FL_NULL);
    CHECK_REFUSED(m, fl_allocate_frames(&m->frames, 0, 1, &any, &address), FL_NO_FRAMES);
    const uint64_t huge[] = {free + 1,       UINT64_C(1) << 40, UINT64_C(1) << 52,
                             UINT64_C(1) << 63, UINT64_MAX - 1,    UINT64_MAX};
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        CHECK_REFUSED(m, fl_allocate_frames(&m->frames, huge[i], 1, &any, &address),
                      FL_OUT_OF_MEMORY);
        fl_error error = i == 0 ? FL_NOT_ALLOCATED : FL_OUTSIDE_SPAN;
        CHECK_REFUSED(m, fl_free_frames(&m->frames, 0, huge[i]), error);
        CHECK_REFUSED(m, fl_free_frames(&m->frames, 4096, huge[i]), error);
    }
    const uint64_t bad[] = {0, 3, 6, UINT64_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_REFUSED(m, fl_allocate_frames(&m->frames, 1, bad[i], &any, &address),
                      FL_BAD_ALIGNMENT);
    CHECK_NUMBER(address, 42);
    machine_delete(m);
}

void test_places(void) {
    struct machine *m = small();
    uint64_t address;
    // Each zone, alone and with those below it.
    const struct {
        uint32_t zone;
        uint64_t start, end;
    } zones[] = {{FL_ZONE_DMA, 0, 16 * MIB},
                 {FL_ZONE_DMA32, 16 * MIB, 4 * GIB},
                 {FL_ZONE_NORMAL, 4 * GIB, 8 * GIB}};
    uint64_t all = 0;
    for (size_t i = 0; i < 3; i++) {
        fl_request only = {.flags = FL_ONLY_ZONE, .zone = zones[i].zone};
        CHECK_CODE(fl_allocate(&m->frames, &only, &address), FL_OK);
        CHECK(zones[i].start <= address && address < zones[i].end);
        fl_request below = {.flags = FL_UP_TO_ZONE, .zone = zones[i].zone};
        uint64_t other;
        CHECK_CODE(fl_allocate(&m->frames, &below, &other), FL_OK);
        CHECK(other < zones[i].end);
        CHECK_CODE(fl_free(&m->frames, other, 0), FL_OK);
        CHECK_CODE(fl_free(&m->frames, address, 0), FL_OK);
        fl_statistics zone;
        CHECK_CODE(fl_count_zone(&m->frames, 0, zones[i].zone, &zone), FL_OK);
        all += zone.free_frames;
    }
    CHECK_NUMBER(all, count(m).free_frames);

    // A zone that is used up: alone it fails, with those below it does not.
    fl_request dma32 = {.flags = FL_ONLY_ZONE, .zone = FL_ZONE_DMA32};
    uint64_t start;
    CHECK_CODE(fl_allocate_frames(&m->frames, 112 * MIB / 4096, 1, &dma32, &start), FL_OK);
    CHECK_NUMBER(start, 16 * MIB);
    CHECK_REFUSED(m, fl_allocate(&m->frames, &dma32, &address), FL_OUT_OF_MEMORY);
    dma32.flags = FL_UP_TO_ZONE;
    CHECK_CODE(fl_allocate(&m->frames, &dma32, &address), FL_OK);
    CHECK(address < 16 * MIB);
    CHECK_CODE(fl_free(&m->frames, address, 0), FL_OK);
    CHECK_CODE(fl_free_frames(&m->frames, start, 112 * MIB / 4096), FL_OK);

    // Movable and unmovable pages keep to blocks of 2 MiB of their own.
    uint64_t kept, moved;
    fl_request page = {0}, movable = {.flags = FL_MOVABLE};
    CHECK_CODE(fl_allocate(&m->frames, &page, &kept), FL_OK);
    CHECK_CODE(fl_allocate(&m->frames, &movable, &moved), FL_OK);
    CHECK(kept / (2 * MIB) != moved / (2 * MIB));
    CHECK_CODE(fl_free(&m->frames, kept, 0), FL_OK);
    CHECK_CODE(fl_free(&m->frames, moved, 0), FL_OK);

    // One node.
    fl_request here = {.flags = FL_ON_NODE | FL_THIS_NODE_ONLY, .node = 0};
    CHECK_CODE(fl_allocate(&m->frames, &here, &address), FL_OK);
    CHECK_CODE(fl_free(&m->frames, address, 0), FL_OK);
    const uint32_t nodes[] = {1, 7, 65535, 65536, UINT32_MAX};
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        fl_request there = {.flags = FL_ON_NODE, .node = nodes[i]};
        CHECK_REFUSED(m, fl_allocate(&m->frames, &there, &address), FL_NO_SUCH_NODE);
        there.flags |= FL_THIS_NODE_ONLY;
        CHECK_REFUSED(m, fl_allocate(&m->frames, &there, &address), FL_NO_SUCH_NODE);
    }
    fl_request nowhere = {.flags = FL_THIS_NODE_ONLY};
    CHECK_REFUSED(m, fl_allocate(&m->frames, &nowhere, &address), FL_BAD_FLAGS);
    fl_statistics counted = {.free_frames = 42};
    CHECK_REFUSED(m, fl_count_zone(&m->frames, 65536, 0, &counted), FL_NO_SUCH_NODE);
    CHECK_REFUSED(m, fl_count_zone(&m->frames, 0, 4, &counted), FL_NO_SUCH_ZONE);
    CHECK_REFUSED(m, fl_count_zone(&m->frames, 0, UINT32_MAX, &counted), FL_NO_SUCH_ZONE);
    CHECK_REFUSED(m, fl_count_zone(&m->frames, 0, 0, NULL), FL_NULL);
    CHECK_REFUSED(m, fl_count_zone(NULL, 0, 0, &counted), FL_NULL);
    CHECK_REFUSED(m, fl_count(&m->frames, NULL), FL_NULL);
    CHECK_REFUSED(m, fl_count(NULL, &counted), FL_NULL);
    CHECK_REFUSED(m, fl_validate(NULL), FL_NULL);
    CHECK_NUMBER(counted.free_frames, 42);
    machine_delete(m);
}

void test_requests(void) {
    struct machine *m = small();
    uint64_t address = 42;
    fl_request page = {0};
    CHECK_REFUSED(m, fl_allocate(NULL, &page, &address), FL_NULL);
    CHECK_REFUSED(m, fl_allocate(&m->frames, NULL, &address), FL_NULL);
    CHECK_REFUSED(m, fl_allocate(&m->frames, &page, NULL), FL_NULL);
    union {
        fl_request requests[2];
        unsigned char bytes[2 * sizeof(fl_request)];
    } odd = {.bytes = {0}};
    CHECK_REFUSED(m, fl_allocate(&m->frames, (fl_request *)(void *)(odd.bytes + 1), &address),
                  FL_UNALIGNED);
    CHECK_REFUSED(m, fl_allocate(&m->frames, &page, (uint64_t *)(void *)(odd.bytes + 1)),
                  FL_UNALIGNED);
    fl_frames *misplaced = (fl_frames *)(void *)((char *)&m->frames + 32);
    CHECK_REFUSED(m, fl_allocate(misplaced, &page, &address), FL_UNALIGNED);

    const uint32_t orders[] = {19, 63, 64, 200, 255, 256, 265, UINT32_MAX};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        fl_request request = {.order = orders[i]};
        CHECK_REFUSED(m, fl_allocate(&m->frames, &request, &address), FL_BAD_ORDER);
        CHECK_REFUSED(m, fl_allocate_frames(&m->frames, 1, 1, &request, &address), FL_BAD_ORDER);
        CHECK_REFUSED(m, fl_free(&m->frames, 0, orders[i]), FL_BAD_ORDER);
    }
    const struct {
        fl_request request;
        fl_error error;
    } bad[] = {
        {{.flags = UINT32_MAX}, FL_BAD_FLAGS},
        {{.flags = UINT32_C(1) << 31}, FL_BAD_FLAGS},
        {{.flags = FL_UP_TO_ZONE | FL_ONLY_ZONE}, FL_BAD_FLAGS},
        {{.node = 1}, FL_BAD_FLAGS},
        {{.zone = FL_ZONE_DMA32}, FL_BAD_FLAGS},
        {{.flags = FL_ONLY_ZONE, .zone = 4}, FL_NO_SUCH_ZONE},
        {{.flags = FL_UP_TO_ZONE, .zone = UINT32_MAX}, FL_NO_SUCH_ZONE},
        {{.flags = FL_ONLY_ZONE, .zone = FL_ZONE_MOVABLE}, FL_OUT_OF_MEMORY},
        {{.held_by_cpus = (uint64_t *)(void *)(odd.bytes + 4 + 1)}, FL_UNALIGNED},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_REFUSED(m, fl_allocate(&m->frames, &bad[i].request, &address), bad[i].error);
    CHECK_NUMBER(address, 42);

    uint64_t held = 42;
    fl_request giant = {.order = FL_MAX_ORDER, .held_by_cpus = &held};
    uint64_t giants[4];
    for (int i = 0; i < 4; i++)
        CHECK_CODE(fl_allocate(&m->frames, &giant, &giants[i]), FL_OK);
    CHECK_NUMBER(held, 42);
    CHECK_REFUSED(m, fl_allocate(&m->frames, &giant, &address), FL_OUT_OF_MEMORY);
    CHECK_NUMBER(held, 0);
    giant.flags = FL_NO_DRAIN;
    CHECK_REFUSED(m, fl_allocate(&m->frames, &giant, &address), FL_OUT_OF_MEMORY);
    for (int i = 0; i < 4; i++)
        CHECK_CODE(fl_free(&m->frames, giants[i], FL_MAX_ORDER), FL_OK);
    machine_delete(m);
}

void test_free(void) {
    struct machine *m = small();
    CHECK_REFUSED(m, fl_free(NULL, 0, 0), FL_NULL);
    CHECK_REFUSED(m, fl_free(&m->frames, 1, 0), FL_MISALIGNED);
    CHECK_REFUSED(m, fl_free(&m->frames, 4096, 1), FL_MISALIGNED);
    CHECK_REFUSED(m, fl_free(&m->frames, 4096, 0), FL_NOT_ALLOCATED);
    CHECK_REFUSED(m, fl_free(&m->frames, 128 * MIB, 0), FL_ABSENT);
    CHECK_REFUSED(m, fl_free(&m->frames, 0, 16), FL_OUTSIDE_SPAN);
    CHECK_REFUSED(m, fl_free(&m->frames, 8 * GIB, 0), FL_OUTSIDE_SPAN);
    CHECK_REFUSED(m, fl_free(&m->frames, UINT64_C(1) << 52, 0), FL_OUTSIDE_SPAN);
    CHECK_REFUSED(m, fl_free(&m->frames, UINT64_MAX - 4095, 0), FL_OUTSIDE_SPAN);
    CHECK_REFUSED(m, fl_free_frames(NULL, 0, 1), FL_NULL);
    CHECK_REFUSED(m, fl_free_frames(&m->frames, 0, 0), FL_NO_FRAMES);
    CHECK_REFUSED(m, fl_free_frames(&m->frames, 5, 1), FL_MISALIGNED);
    CHECK_REFUSED(m, fl_free_frames(&m->frames, 4096, 1), FL_NOT_ALLOCATED);
    CHECK_REFUSED(m, fl_free_frames(&m->frames, UINT64_MAX - 4095, UINT64_MAX), FL_OUTSIDE_SPAN);

    // Too much, and the wrong part.
    fl_request four = {.order = 2};
    uint64_t block;
    CHECK_CODE(fl_allocate(&m->frames, &four, &block), FL_OK);
    CHECK_REFUSED(m, fl_free(&m->frames, block & ~UINT64_C(0x7fff), 3), FL_NOT_ALLOCATED);
    CHECK_REFUSED(m, fl_free_frames(&m->frames, block, 5), FL_NOT_ALLOCATED);
    CHECK_CODE(fl_free(&m->frames, block + 4096, 0), FL_OK);
    CHECK_REFUSED(m, fl_free(&m->frames, block, 2), FL_NOT_ALLOCATED);
    CHECK_CODE(fl_free(&m->frames, block, 0), FL_OK);
    CHECK_CODE(fl_free(&m->frames, block + 8192, 1), FL_OK);
    machine_delete(m);
}

// An allocation of 2 MiB writes its own state and a count. Each byte of it is taken back alone:
// without one of them the tables contradict each other.
void test_validate(void) {
    struct machine *m = small();
    fl_request huge = {.order = FL_HUGE_ORDER};
    uint64_t first, second;
    CHECK_CODE(fl_allocate(&m->frames, &huge, &first), FL_OK);
    unsigned char *before = malloc(m->bytes);
    if (before == NULL)
        abort();
    unsigned char *tables = machine_memory(m);
    memcpy(before, tables, m->bytes);
    CHECK_CODE(fl_allocate(&m->frames, &huge, &second), FL_OK);
    unsigned found = 0;
    for (uint64_t i = 0; i < m->bytes; i++) {
        unsigned char now = tables[i];
        if (now == before[i])
            continue;
        tables[i] = before[i];
        found += fl_validate(&m->frames) == FL_CORRUPT;
        tables[i] = now;
        CHECK_CODE(fl_validate(&m->frames), FL_OK);
    }
    CHECK(found > 0);
    free(before);
    machine_delete(m);
}
