// Calls at the same time: threads, and a handler that interrupts calls of its own CPU.
#define _DEFAULT_SOURCE
#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/time.h>

// ---- Threads: a count per frame, which is never above 1.

enum { THREADS = 4, ROUNDS = 100000, HELD = 64 };

struct thread {
    struct machine *machine;
    uint32_t number;
    atomic_uchar *owners;
    uint64_t faults;
};

static uint64_t next(uint64_t *random) {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

static void own(struct thread *self, uint64_t address, uint64_t frames, int change) {
    for (uint64_t i = 0; i < frames; i++) {
        int old = atomic_fetch_add(&self->owners[(address - GIB) / 4096 + i], change);
        self->faults += old != (change == 1 ? 0 : 1);
    }
}

static void *work(void *argument) {
    struct thread *self = argument;
    fl_cpu *cpu = &self->machine->cpus[self->number];
    struct {
        uint64_t address, frames;
    } held[HELD] = {{0, 0}};
    uint64_t random = 88172645463325252 + self->number;
    self->faults += fl_cpu_init(cpu, &self->machine->frames, self->number, 0) != FL_OK;
    for (int round = 0; round < ROUNDS + HELD; round++) {
        int at = round < ROUNDS ? (int)(next(&random) % HELD) : round - ROUNDS;
        if (held[at].frames != 0) {
            own(self, held[at].address, held[at].frames, -1);
            self->faults += fl_cpu_free_frames(cpu, held[at].address, held[at].frames) != FL_OK;
            held[at].frames = 0;
        } else if (round < ROUNDS) {
            fl_request request = {.flags = next(&random) % 2 ? FL_MOVABLE : 0};
            held[at].frames = next(&random) % 4 ? 1 : 1 + next(&random) % 40;
            fl_error error = fl_cpu_allocate_frames(cpu, held[at].frames, 1, &request,
                                                    &held[at].address);
            self->faults += error != FL_OK;
            if (error == FL_OK)
                own(self, held[at].address, held[at].frames, 1);
            else
                held[at].frames = 0;
        }
        if (round % 8192 == 0) {
            // Memory comes while others allocate.
            uint64_t more = 2 * GIB + (self->number * 64 + (uint64_t)round / 8192) * MIB;
            self->faults += fl_add(&self->machine->frames, more, MIB) != FL_OK;
            self->faults += fl_add(&self->machine->frames, more, MIB) != FL_PRESENT;
        }
    }
    self->faults += fl_cpu_close(cpu) != FL_OK;
    return NULL;
}

void test_threads(void) {
    struct machine *m = machine_new(8 * GIB);
    CHECK_CODE(fl_add(&m->frames, GIB, 256 * MIB), FL_OK);
    atomic_uchar *owners = calloc(2 * GIB / 4096, sizeof *owners);
    if (owners == NULL)
        abort();
    struct thread threads[THREADS];
    pthread_t handles[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        threads[i] = (struct thread){m, i, owners, 0};
        if (pthread_create(&handles[i], NULL, work, &threads[i]) != 0)
            abort();
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(handles[i], NULL);
        CHECK_NUMBER(threads[i].faults, 0);
    }
    const uint64_t added = 256 + THREADS * (ROUNDS / 8192 + 1);
    CHECK_NUMBER(count(m).free_frames, added * MIB / 4096);
    free(owners);
    machine_delete(m);
}

// ---- A handler that allocates: refused if it interrupted a call, else served.

static struct machine *interrupted;
static volatile sig_atomic_t handler_refused, handler_served, handler_failed;

static void handler(int number) {
    (void)number;
    fl_cpu *cpu = &interrupted->cpus[0];
    fl_request page = {.order = 0};
    uint64_t address;
    fl_error error = fl_cpu_allocate(cpu, &page, &address);
    if (error == FL_IN_CALL) {
        handler_refused++;
        handler_failed += fl_cpu_free(cpu, GIB, 0) != FL_IN_CALL;
        handler_failed += fl_cpu_poll(cpu) != FL_IN_CALL;
        handler_failed += fl_cpu_close(cpu) != FL_IN_CALL;
    } else {
        handler_served++;
        handler_failed += error != FL_OK || fl_cpu_free(cpu, address, 0) != FL_OK;
    }
}

void test_interrupts(void) {
    struct machine *m = interrupted = machine_new(8 * GIB);
    CHECK_CODE(fl_add(&m->frames, GIB, GIB), FL_OK);
    CHECK_CODE(fl_cpu_init(&m->cpus[0], &m->frames, 0, 0), FL_OK);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    const struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    uint64_t faults = 0, rounds = 0;
    for (; rounds < UINT64_C(1) << 32 && (handler_refused < 20 || handler_served < 20); rounds++) {
        fl_request page = {.flags = rounds % 2 ? FL_MOVABLE : 0};
        uint64_t address;
        fl_error error = fl_cpu_allocate_frames(&m->cpus[0], 5, 1, &page, &address);
        faults += error != FL_OK || fl_cpu_free_frames(&m->cpus[0], address, 5) != FL_OK;
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(handler_refused >= 20);
    CHECK(handler_served >= 20);
    CHECK_NUMBER((uint64_t)handler_failed, 0);
    CHECK_NUMBER(faults, 0);
    CHECK_CODE(fl_cpu_close(&m->cpus[0]), FL_OK);
    CHECK_NUMBER(count(m).free_frames, GIB / 4096);
    machine_delete(m);
}
