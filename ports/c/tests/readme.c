// The code of README.md, with what it leaves to the kernel.
#include "test.h"

#include <stdlib.h>
#include <string.h>

static uint32_t this_cpu(void) { return 1; }

static void *boot_allocate(uint64_t bytes) { return malloc(bytes); }

#include "readme.h"

void test_readme(void) {
    const struct range map[] = {{MIB, 63 * MIB}, {2 * GIB, GIB}};
    CHECK(memory_init(map, 2, 2));
    CHECK(cpu_memory_init(1));
    CHECK(!cpu_memory_init(1));
    uint64_t page = page_allocate();
    CHECK(page != 0);
    memory_came(GIB, MIB);
    page_free(page);
    CHECK_CODE(fl_cpu_close(&cpus[1]), FL_OK);
    fl_statistics counted;
    CHECK_CODE(fl_count(&frames, &counted), FL_OK);
    CHECK_NUMBER(counted.free_frames, (63 * MIB + GIB + MIB) / 4096);
}
