/* An allocator that can fail, and that counts: preloaded by tests/allocator.py.

   Only calls from the watched ranges of code are counted, or fail. It serves one thread. */

#include <malloc.h>
#include <stddef.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *block, size_t size);
void __libc_free(void *block);

enum { RANGES = 64, CHUNK_HEADER = 8 };

static char *watched[RANGES][2];
static int n_watched;
static int armed;
static long left = -1; /* calls until one fails; -1: none does */
static int fails_on;   /* whether all that follow fail too */
static long failed, blocks, bytes, peak;

void allocator_watch(char *start, char *end) {
  if (n_watched < RANGES) {
    watched[n_watched][0] = start;
    watched[n_watched][1] = end;
    n_watched++;
  }
}

void allocator_fail(long after, int on) {
  left = after;
  fails_on = on;
  failed = 0;
}

void allocator_stop(void) { left = -1; }
void allocator_arm(int on) { armed = on; }

long allocator_failed(void) { return failed; }
long allocator_blocks(void) { return blocks; }
long allocator_bytes(void) { return bytes; }

/* The most bytes since this was last asked. */
long allocator_peak(void) {
  long most = peak;
  peak = bytes;
  return most;
}

static int is_watched(const char *caller) {
  for (int i = 0; i < n_watched; i++)
    if (watched[i][0] <= caller && caller < watched[i][1]) return 1;
  return 0;
}

static int fails(int counts) {
  if (!counts || !armed || left < 0) return 0;
  if (left > 0) {
    left--;
    return 0;
  }
  if (!fails_on) left = -1;
  failed++;
  return 1;
}

static void *made(void *block, int counts) {
  if (block && counts) {
    blocks++;
    bytes += (long)malloc_usable_size(block) + CHUNK_HEADER;
    if (bytes > peak) peak = bytes;
  }
  return block;
}

static void gone(void *block, int counts) {
  if (block && counts) {
    blocks--;
    bytes -= (long)malloc_usable_size(block) + CHUNK_HEADER;
  }
}

#define CALLER is_watched((char *)__builtin_return_address(0))

void *malloc(size_t size) {
  int counts = CALLER;
  return fails(counts) ? NULL : made(__libc_malloc(size), counts);
}

void *calloc(size_t n, size_t size) {
  int counts = CALLER;
  return fails(counts) ? NULL : made(__libc_calloc(n, size), counts);
}

void *realloc(void *block, size_t size) {
  int counts = CALLER;
  if (fails(counts)) return NULL;
  gone(block, counts);
  return made(__libc_realloc(block, size), counts);
}

void free(void *block) {
  gone(block, CALLER);
  __libc_free(block);
}
