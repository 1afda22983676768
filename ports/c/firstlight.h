// Firstlight's frame allocator, for kernels written in C11: gcc or clang.
//
// Generated from the library's source by `cargo run -p header`: do not edit.
// ports/c/README.md has a bring-up in 25 lines, and how to link.
//
// Storage is the caller's: fl_frames, fl_cpu and the memory for tables. Addresses and sizes of
// memory are physical, in bytes; counts are in frames of 4 KiB. The memory that is allocated is
// never touched. No function sleeps, takes a lock, or needs a C library but for memcpy, memmove,
// memset and memcmp, which the library for bare metal brings along.
//
// Every function checks its arguments. On an error it returns the code and changes nothing, the
// numbers behind its pointers neither; exceptions are FL_FREED_TWICE and fl_request.held_by_cpus.
// What it cannot see is the caller's duty: pointers point to what their types say, and no two CPUs
// use one fl_cpu.

#ifndef FIRSTLIGHT_H
#define FIRSTLIGHT_H

#include <stddef.h>
#include <stdint.h>

#define FL_ALIGNED(n) __attribute__((aligned(n)))

// The largest order: a block of 1 GiB.
#define FL_MAX_ORDER 18

// The order of a block of 2 MiB.
#define FL_HUGE_ORDER 9

// Bytes in a frame.
#define FL_FRAME_BYTES 4096

// Frames below 16 MiB.
#define FL_ZONE_DMA 0

// Frames from 16 MiB to 4 GiB.
#define FL_ZONE_DMA32 1

// Frames from 4 GiB up.
#define FL_ZONE_NORMAL 2

// Frames for content that can be moved; a span has none.
#define FL_ZONE_MOVABLE 3

// fl_request.node is preferred; then the others, by their distance from it.
#define FL_ON_NODE 1

// Only the preferred node will do; with FL_ON_NODE.
#define FL_THIS_NODE_ONLY 2

// fl_request.zone and those below it will do.
#define FL_UP_TO_ZONE 4

// Only fl_request.zone will do.
#define FL_ONLY_ZONE 8

// The content can be moved: it is kept apart from what can't be.
#define FL_MOVABLE 16

// Rather fail than drain CPUs' caches: for a large block that smaller ones can replace.
#define FL_NO_DRAIN 32

// 64-bit words of an fl_frames.
#define FL_FRAMES_WORDS 128

// 64-bit words of an fl_cpu.
#define FL_CPU_WORDS 8

// 64-bit words of an fl_drain.
#define FL_DRAIN_WORDS 4

// No further CPU.
#define FL_NO_CPU UINT32_MAX

// What a function returns: `FL_OK`, or why it changed nothing. Numbers stay as they are.
typedef enum {
    // Done.
    FL_OK = 0,
    // A pointer is NULL that must not be.
    FL_NULL = 1,
    // A pointer is not aligned as its type is.
    FL_UNALIGNED = 2,
    // The storage holds no allocator, or no CPU: create or initialise it first.
    FL_NOT_CREATED = 3,
    // The storage is in use, or was not zero.
    FL_ALREADY_CREATED = 4,
    // The span is empty, is not made of whole frames, or ends above 2^52.
    FL_BAD_SPAN = 5,
    // Too little memory for the tables: fl_bytes_for says how much they need.
    FL_NO_SPACE = 6,
    // More than an address space has.
    FL_TOO_LARGE = 7,
    // An address or a size is no multiple of a frame, or an address no multiple of its block.
    FL_MISALIGNED = 8,
    // Not all of the range lies in the span; or, of a block, in one zone.
    FL_OUTSIDE_SPAN = 9,
    // Some of the range was added or adopted before.
    FL_PRESENT = 10,
    // The range would split a hole, and the tables have no space for one hole more.
    FL_LIST_FULL = 11,
    // An order above FL_MAX_ORDER.
    FL_BAD_ORDER = 12,
    // Flags that do not exist or exclude each other, or a node or zone without its flag.
    FL_BAD_FLAGS = 13,
    // There is no such node.
    FL_NO_SUCH_NODE = 14,
    // There is no such zone.
    FL_NO_SUCH_ZONE = 15,
    // A request for no frames.
    FL_NO_FRAMES = 16,
    // An alignment that is not a power of two.
    FL_BAD_ALIGNMENT = 17,
    // No such frames are free, on no node and in no zone of the request. CPUs may cache some:
    // see fl_request.held_by_cpus and fl_request_drain.
    FL_OUT_OF_MEMORY = 18,
    // Some of it was neither added nor adopted: it can't be freed.
    FL_ABSENT = 19,
    // Freed, but not all of it was allocated: freed twice, or too much.
    FL_NOT_ALLOCATED = 20,
    // A frame freed earlier was found to be freed twice. This call did its own work.
    FL_FREED_TWICE = 21,
    // There is no CPU of that number: fl_create had fewer.
    FL_NO_SUCH_CPU = 22,
    // Another fl_cpu has that number.
    FL_CPU_TAKEN = 23,
    // The call interrupted another one of the same fl_cpu.
    FL_IN_CALL = 24,
    // The tables contradict each other: they were overwritten, or this library has a bug.
    FL_CORRUPT = 25,
    // A CPU can't start before there is memory.
    FL_NO_MEMORY = 26,
} fl_error;

// An allocator of page frames, in storage of the caller: a static, or other memory that stays
// where it is for as long as frames are allocated. All zero before fl_create; to start anew,
// make it zero again once nothing uses it.
//
// Addresses and sizes of memory are physical, in bytes; counts are in frames of 4 KiB. The memory
// itself is never read or written.
typedef struct FL_ALIGNED(64) {
    uint64_t opaque[FL_FRAMES_WORDS];
} fl_frames;

// Which block is wanted. All zero is one frame from the CPU's own node, in zone Normal or below.
typedef struct {
    // The block has 2^order frames and is aligned to its size. Where the number of frames is an
    // argument, the least alignment.
    uint32_t order;
    // The sum of flags FL_ON_NODE to FL_NO_DRAIN.
    uint32_t flags;
    // With FL_ON_NODE; else 0.
    uint32_t node;
    // With FL_UP_TO_ZONE or FL_ONLY_ZONE; else 0.
    uint32_t zone;
    // NULL, or where FL_OUT_OF_MEMORY stores the number of frames that other CPUs cache and
    // whose drain is pending: if it is not 0, another attempt may succeed.
    uint64_t *held_by_cpus;
} fl_request;

// A CPU's own frames: what was freed on it is the next that it allocates, without a write that
// other CPUs see. In storage of the caller; what it caches lies in the memory of fl_create. All
// zero before fl_cpu_init.
//
// All calls with it come from its CPU, with preemption off, and with interrupts off where their
// handlers make some, too. A call that interrupted another one is refused with FL_IN_CALL.
typedef struct FL_ALIGNED(64) {
    uint64_t opaque[FL_CPU_WORDS];
} fl_cpu;

// A request to CPUs to free what they cache, see fl_request_drain.
typedef struct {
    uint64_t opaque[FL_DRAIN_WORDS];
} fl_drain;

// How much memory there is, and what of it is free. Exact while no other call is being made; then
// managed_frames = free_frames + cached_frames + what is allocated.
typedef struct {
    // Frames that were added or adopted.
    uint64_t managed_frames;
    // Frames that CPUs cache; 0 in the count of a zone, which counts them as allocated.
    uint64_t cached_frames;
    // Frames that can be allocated now by every CPU.
    uint64_t free_frames;
    // Blocks of 1 GiB that are free as a whole.
    uint64_t free_giants;
    // Blocks of 2 MiB that are free as a whole, those in free blocks of 1 GiB among them.
    uint64_t free_huges;
    // Blocks of 2 MiB of which some frames are free.
    uint64_t partial_huges;
} fl_statistics;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// What a code means, as English text without a full stop. Never NULL: a number that is no code
// has a text, too. Any CPU, any handler, at any time.
const char *fl_error_string(int32_t error);

// Bytes of memory that fl_create needs for a span of `span_bytes` from `span_start` on, both in
// bytes and multiples of a frame, if memory comes with at most `holes` holes at a time (before,
// between and after what was added or adopted), and for `cpus` CPUs: stored in `bytes`. About
// 34 bytes for each MiB of the span, of which little is written before that MiB is used, and
// 12 KiB for each CPU.
//
// FL_NULL, FL_UNALIGNED, FL_BAD_SPAN, FL_TOO_LARGE. Any CPU, any handler, at any time.
fl_error fl_bytes_for(uint64_t span_start,
                      uint64_t span_bytes,
                      uint32_t holes,
                      uint32_t cpus,
                      uint64_t *bytes);

// Creates an allocator for the `span_bytes` from `span_start` on: where memory may be. There is
// none yet: fl_add and fl_adopt say where it is. Its tables lie in the `memory_bytes` from
// `memory` on (fl_bytes_for; any alignment, any content), which belong to the allocator from then
// on; they may be a part of the span that is never added. CPUs 0 to `cpus` - 1 can have caches
// (fl_cpu_init). One node, 0, with zones by address.
//
// FL_NULL, FL_UNALIGNED, FL_ALREADY_CREATED, FL_BAD_SPAN, FL_NO_SPACE, FL_TOO_LARGE. Once for an
// fl_frames; other calls with it come after.
fl_error fl_create(fl_frames *frames,
                   uint64_t span_start,
                   uint64_t span_bytes,
                   uint32_t cpus,
                   void *memory,
                   size_t memory_bytes);

// Adds the `bytes` bytes of memory from `start` on, both multiples of a frame: all of it is free
// from now on. What of it is in use is left out, or adopted.
//
// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED, FL_MISALIGNED, FL_OUTSIDE_SPAN, FL_PRESENT, FL_LIST_FULL;
// FL_NOT_ALLOCATED if another call freed some of it, which was absent, at that moment. Any CPU, at
// any time, also while others allocate.
fl_error fl_add(fl_frames *frames, uint64_t start, uint64_t bytes);

// Adds memory that is in use already, for instance the page tables of the boot loader: it is
// allocated from now on, so that it can be freed, whole or in parts.
//
// Errors and callers as of fl_add.
fl_error fl_adopt(fl_frames *frames, uint64_t start, uint64_t bytes);

// Allocates the block of `request` and stores its address in `address`; fl_free frees it.
//
// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED, FL_BAD_ORDER, FL_BAD_FLAGS, FL_NO_SUCH_NODE,
// FL_NO_SUCH_ZONE, FL_OUT_OF_MEMORY. Any CPU; a handler of interrupts only if it cannot have
// interrupted, on its CPU, any call that allocates, frees, adds or counts. It takes no lock and
// does not sleep. fl_cpu_allocate is faster.
fl_error fl_allocate(fl_frames *frames, const fl_request *request, uint64_t *address);

// Frees a block of 2^order frames from `address` on: one that was allocated or adopted, any
// aligned part of it, or several that make up an aligned whole.
//
// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED, FL_BAD_ORDER, FL_MISALIGNED, FL_OUTSIDE_SPAN,
// FL_ABSENT, FL_NOT_ALLOCATED. Callers as of fl_allocate.
fl_error fl_free(fl_frames *frames, uint64_t address, uint32_t order);

// Allocates `count` contiguous frames, any number of them, the first a multiple of `align_frames`
// frames (a power of two; 1 is any frame), and stores the address in `address`. Nothing is
// rounded up. `request` says where, and its order is a least alignment; fl_free_frames frees
// them, whole or in parts.
//
// Errors of fl_allocate, FL_NO_FRAMES, FL_BAD_ALIGNMENT. Callers as of fl_allocate.
fl_error fl_allocate_frames(fl_frames *frames,
                            uint64_t count,
                            uint64_t align_frames,
                            const fl_request *request,
                            uint64_t *address);

// Frees `count` frames from `address` on, however they were allocated: all of them or none.
//
// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED, FL_NO_FRAMES, FL_MISALIGNED, FL_OUTSIDE_SPAN,
// FL_ABSENT, FL_NOT_ALLOCATED. Callers as of fl_allocate.
fl_error fl_free_frames(fl_frames *frames, uint64_t address, uint64_t count);

// Makes `cpu` the cache of CPU number `number`, which is on node `node_number` (0 where there is
// one).
//
// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED, FL_ALREADY_CREATED, FL_NO_SUCH_CPU, FL_CPU_TAKEN,
// FL_NO_SUCH_NODE, FL_NO_MEMORY. On that CPU, once memory was added.
fl_error fl_cpu_init(fl_cpu *cpu, fl_frames *frames, uint32_t number, uint32_t node_number);

// Allocates the block of `request` for this CPU and stores its address in `address`; fl_cpu_free
// frees it, on any CPU. Without FL_ON_NODE from the CPU's own node.
//
// Errors of fl_allocate, and FL_IN_CALL. Before FL_OUT_OF_MEMORY this CPU's cache is drained, and
// a drain of all others is requested, unless the request has FL_NO_DRAIN. On the CPU of `cpu`.
fl_error fl_cpu_allocate(fl_cpu *cpu, const fl_request *request, uint64_t *address);

// Frees a block of 2^order frames from `address` on, as fl_free does. What is free is refused at
// once; what CPUs cache was freed twice when a cache that has it is drained: FL_FREED_TWICE.
//
// Errors of fl_free, FL_IN_CALL, FL_FREED_TWICE. On the CPU of `cpu`.
fl_error fl_cpu_free(fl_cpu *cpu, uint64_t address, uint32_t order);

// Allocates `count` contiguous frames for this CPU, as fl_allocate_frames does.
//
// Errors of fl_allocate_frames, and FL_IN_CALL. On the CPU of `cpu`.
fl_error fl_cpu_allocate_frames(fl_cpu *cpu,
                                uint64_t count,
                                uint64_t align_frames,
                                const fl_request *request,
                                uint64_t *address);

// Frees `count` frames from `address` on, as fl_free_frames does.
//
// Errors of fl_free_frames, FL_IN_CALL. On the CPU of `cpu`.
fl_error fl_cpu_free_frames(fl_cpu *cpu, uint64_t address, uint64_t count);

// Frees all that this CPU caches if another CPU has requested it; each other call does so, too.
// For a handler of interrupts, or an idle loop.
//
// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED, FL_IN_CALL: the call that was interrupted, or the next
// one, does it then. On the CPU of `cpu`.
fl_error fl_cpu_poll(fl_cpu *cpu);

// Frees all that this CPU caches, before it is idle for long.
//
// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED, FL_IN_CALL; FL_FREED_TWICE, and all is freed. On the
// CPU of `cpu`.
fl_error fl_cpu_drain(fl_cpu *cpu);

// Frees all that this CPU caches, and its number; `cpu` may be initialised again. Errors of
// fl_cpu_drain; after FL_FREED_TWICE it is closed. On the CPU of `cpu`.
fl_error fl_cpu_close(fl_cpu *cpu);

// Stores how many frames this CPU caches in `frames`.
//
// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED, FL_IN_CALL. On the CPU of `cpu`.
fl_error fl_cpu_cached_frames(fl_cpu *cpu, uint64_t *frames);

// Requests that all CPUs that cache something free it, and stores the request in `drain`. After
// FL_OUT_OF_MEMORY with frames held by CPUs: each CPU frees them at its next call, or when it
// calls fl_cpu_poll, to which the caller interrupts those that fl_drain_next_cpu names. Then it
// waits until fl_drain_pending_frames is 0, for a bounded time, and tries again.
//
// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED. Any CPU, outside of locks and with interrupts on, for
// else two CPUs that wait for each other wait for ever; this CPU's own cache is one of them.
fl_error fl_request_drain(fl_frames *frames, fl_drain *drain);

// Stores the frames that CPUs cache whose drain is pending in `pending_frames`: 0 once all have
// drained.
//
// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED. Any CPU, at any time after fl_request_drain.
fl_error fl_drain_pending_frames(const fl_drain *drain, uint64_t *pending_frames);

// The first CPU from number `from` on whose drain is pending, or FL_NO_CPU; also a CPU that
// caches nothing, for in the middle of a call it may do so in a moment. FL_NO_CPU where `drain`
// is NULL, not aligned, or holds no request. Any CPU, at any time after fl_request_drain.
uint32_t fl_drain_next_cpu(const fl_drain *drain, uint32_t from);

// Stores what is free of all memory in `statistics`.
//
// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED. Callers as of fl_allocate.
fl_error fl_count(const fl_frames *frames, fl_statistics *statistics);

// Stores what is free of zone `zone_number` of node `node_number` in `statistics`.
//
// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED, FL_NO_SUCH_NODE, FL_NO_SUCH_ZONE. Callers as of
// fl_allocate.
fl_error fl_count_zone(const fl_frames *frames,
                       uint32_t node_number,
                       uint32_t zone_number,
                       fl_statistics *statistics);

// Recounts all that is kept twice: for tests and diagnosis. FL_CORRUPT if it differs.
//
// FL_NULL, FL_UNALIGNED, FL_NOT_CREATED, FL_CORRUPT. Any CPU, while no other call is being made:
// it would find faults that do not exist.
fl_error fl_validate(const fl_frames *frames);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FIRSTLIGHT_H */
