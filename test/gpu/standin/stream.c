/*
 * Streams and events. A stream is a thread that delays its work at random.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device.h"
#include "driver.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;

void lock(void) { pthread_mutex_lock(&mutex); }
void unlock(void) { pthread_mutex_unlock(&mutex); }
void wait_change(void) { pthread_cond_wait(&change, &mutex); }
void changed(void) { pthread_cond_broadcast(&change); }

/* All handles are in one piece of memory, so that check_handle can tell a handle from any other number. */
enum { ARENA = 1 << 30, ALIGN = 64 };
static char *arena;
static size_t arena_used;
static int live[2]; /* streams, events */

void *new_handle(size_t size, enum kind kind) {
  if (arena == NULL)
    arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  size = (size + ALIGN - 1) / ALIGN * ALIGN;
  if (arena == MAP_FAILED || arena_used + size > ARENA) report("more handles than the stand-in has room for");
  struct handle *h = (struct handle *)(arena + arena_used);
  arena_used += size;
  h->kind = kind;
  return h;
}

static const char *name_of(enum kind kind) {
  return kind == STREAM ? "stream" : kind == EVENT ? "event" : "communicator";
}

void *check_handle(const char *call, void *handle, enum kind kind) {
  char *at = handle;
  struct handle *h = handle;
  if (arena == NULL || at < arena || at >= arena + arena_used || (at - arena) % ALIGN != 0 || h->kind != kind)
    report("%s: %p is no %s", call, handle, name_of(kind));
  if (h->dead) report("%s: use of %s %p after %s", call, name_of(kind), handle, h->killer);
  return handle;
}

/* Clocks. */

static struct clock host;
static uint64_t times[ACTORS];
static struct stream *owners[ACTORS];

static void join(struct clock *a, const struct clock *b) {
  for (int i = 0; i < ACTORS; i++)
    if (a->at[i] < b->at[i]) a->at[i] = b->at[i];
}

void host_learns(const struct clock *c) {
  join(&host, c);
  unguard();
}

bool host_knows(int actor, uint64_t time) { return host.at[actor] >= time; }

static int new_actor(struct stream *s) {
  for (int i = HOST + 1; i < ACTORS; i++) {
    struct stream *o = owners[i];
    if (o != NULL && !(o->handle.dead && o->done == o->issued)) continue;
    owners[i] = s;
    return i;
  }
  report("more than %d streams at a time", ACTORS - 1);
}

/* The default stream and the blocking ones of a device wait for each other. */
static void order_default(struct stream *s) {
  for (int i = HOST + 1; i < ACTORS; i++) {
    struct stream *o = owners[i];
    if (o == NULL || o == s || o->device != s->device || !o->blocking || s->is_default == o->is_default) continue;
    if (o->issued == 0) continue;
    join(&s->clock, &o->clock);
    if (o->done < o->issued) wait_for(s, o, o->issued);
  }
}

void begin(struct stream *s) {
  join(&s->clock, &host);
  if (s->blocking) order_default(s);
  s->clock.at[s->actor] = ++times[s->actor];
}

/* Work. */

static void *run_stream(void *argument) {
  struct stream *s = argument;
  lock();
  for (;;) {
    while (s->first == NULL && !s->handle.dead) wait_change();
    struct work *w = s->first;
    if (w == NULL) break;
    while (w->after != NULL && w->after->done < w->after_number) wait_change();
    unlock();
    if (w->run != NULL) {
      if (draw(2) == 0) usleep(draw(most_delay() + 1));
      if (w->delay > 0) usleep(w->delay);
      w->run(w);
    }
    lock();
    s->first = w->next;
    if (s->first == NULL) s->last = &s->first;
    free(w);
    s->done++;
    changed();
  }
  unlock();
  return NULL;
}

struct work *enqueue(struct stream *s, void (*run)(struct work *)) {
  struct work *w = calloc(1, sizeof *w);
  w->run = run;
  *s->last = w;
  s->last = &w->next;
  s->issued++;
  changed();
  return w;
}

void wait_for(struct stream *s, struct stream *other, uint64_t number) {
  struct work *w = enqueue(s, NULL);
  w->after = other;
  w->after_number = number;
}

void host_waits(struct stream *s, uint64_t number) {
  struct clock then = s->clock;
  while (s->done < number) wait_change();
  host_learns(&then);
}

void device_waits(const struct device *d) {
  uint64_t numbers[ACTORS] = {0};
  struct stream *streams[ACTORS] = {NULL};
  for (int i = HOST + 1; i < ACTORS; i++) {
    struct stream *s = owners[i];
    if (s != NULL && s->device == d) streams[i] = s, numbers[i] = s->issued;
  }
  for (int i = HOST + 1; i < ACTORS; i++)
    while (streams[i] != NULL && streams[i]->done < numbers[i]) wait_change();
}

bool stream_knows(const struct stream *s, int actor, uint64_t time) { return s->clock.at[actor] >= time; }

struct stream *make_stream(struct device *d, bool blocking, bool is_default) {
  struct stream *s = new_handle(sizeof *s, STREAM);
  s->device = d;
  s->blocking = blocking;
  s->is_default = is_default;
  s->last = &s->first;
  s->actor = new_actor(s);
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* signals belong to the program's threads */
  if (pthread_create(&thread, NULL, run_stream, s) != 0) report("a thread for a stream cannot be made");
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_detach(thread);
  return s;
}

struct stream *stream_of(const char *call, CUstream stream) {
  struct device *d = current_device();
  if ((uintptr_t)stream > 2) return check_handle(call, stream, STREAM);
  if (d == NULL) return NULL;
  if (d->default_stream == NULL) d->default_stream = make_stream(d, true, true);
  return d->default_stream;
}

/* The interface. */

API CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority) {
  ENTER(cuStreamCreateWithPriority);
  (void)priority; /* like the real driver, accept any */
  struct device *d = current_device();
  if (d == NULL) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
  if (flags > 1) LEAVE(CUDA_ERROR_INVALID_VALUE);
  *stream = make_stream(d, flags == 0, false);
  live[0]++;
  LEAVE(0);
}

API CUresult cuStreamCreate(CUstream *stream, unsigned int flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

API CUresult cuStreamDestroy_v2(CUstream stream) {
  ENTER(cuStreamDestroy_v2);
  struct stream *s = check_handle("cuStreamDestroy", stream, STREAM);
  if (s->is_default) LEAVE(CUDA_ERROR_INVALID_HANDLE);
  s->handle.dead = true; /* the thread ends with the last work */
  s->handle.killer = "cuStreamDestroy";
  live[0]--;
  changed();
  LEAVE(0);
}

static bool answers_late(void) { return most_delay() > 0 && draw(4) == 0; }

API CUresult cuStreamQuery(CUstream stream) {
  ENTER(cuStreamQuery);
  struct stream *s = stream_of("cuStreamQuery", stream);
  if (s == NULL) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
  if (s->done < s->issued || answers_late()) LEAVE(CUDA_ERROR_NOT_READY);
  host_learns(&s->clock);
  LEAVE(0);
}

API CUresult cuStreamSynchronize(CUstream stream) {
  ENTER(cuStreamSynchronize);
  struct stream *s = stream_of("cuStreamSynchronize", stream);
  if (s == NULL) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
  host_waits(s, s->issued);
  LEAVE(0);
}

API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  ENTER(cuStreamWaitEvent);
  (void)flags;
  struct stream *s = stream_of("cuStreamWaitEvent", stream);
  struct event *e = check_handle("cuStreamWaitEvent", event, EVENT);
  if (s == NULL) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
  if (s->capturing) LEAVE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  if (e->stream == NULL) LEAVE(0); /* never recorded: it counts as reached */
  join(&s->clock, &e->clock);
  wait_for(s, e->stream, e->number);
  LEAVE(0);
}

API CUresult cuStreamIsCapturing(CUstream stream, int *status) {
  ENTER(cuStreamIsCapturing);
  struct stream *s = stream_of("cuStreamIsCapturing", stream);
  if (s == NULL) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
  *status = s->capturing;
  LEAVE(0);
}

_Thread_local int capture_mode;

/* Captures of global mode that are under way. */
static int captures;

/* cuStreamIsCapturing is simulated, and that a question about an event breaks another thread's capture, unless the
 * thread that asks has a relaxed mode. Work on a stream that captures is an error. */
API CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
  ENTER(cuStreamBeginCapture_v2);
  struct stream *s = stream_of("cuStreamBeginCapture", stream);
  if (s == NULL || s->is_default || s->capturing) LEAVE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  s->capturing = 1;
  s->captures_globally = mode == 0;
  captures += s->captures_globally;
  LEAVE(0);
}

API CUresult cuStreamEndCapture(CUstream stream, void **graph) {
  ENTER(cuStreamEndCapture);
  struct stream *s = stream_of("cuStreamEndCapture", stream);
  if (s == NULL || !s->capturing) LEAVE(CUDA_ERROR_INVALID_VALUE);
  s->capturing = 0;
  captures -= s->captures_globally;
  *graph = NULL;
  LEAVE(0);
}

API CUresult cuEventCreate(CUevent *event, unsigned int flags) {
  ENTER(cuEventCreate);
  struct device *d = current_device();
  if (d == NULL) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
  if (flags > 7) LEAVE(CUDA_ERROR_INVALID_VALUE);
  *event = new_handle(sizeof **event, EVENT);
  (*event)->device = d;
  live[1]++;
  LEAVE(0);
}

API CUresult cuEventDestroy_v2(CUevent event) {
  ENTER(cuEventDestroy_v2);
  struct event *e = check_handle("cuEventDestroy", event, EVENT);
  e->handle.dead = true;
  e->handle.killer = "cuEventDestroy";
  live[1]--;
  LEAVE(0);
}

API CUresult cuEventRecord(CUevent event, CUstream stream) {
  ENTER(cuEventRecord);
  struct stream *s = stream_of("cuEventRecord", stream);
  struct event *e = check_handle("cuEventRecord", event, EVENT);
  if (s == NULL) LEAVE(CUDA_ERROR_INVALID_CONTEXT);
  if (s->device != e->device) LEAVE(CUDA_ERROR_INVALID_HANDLE);
  if (s->capturing) LEAVE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  begin(s);
  enqueue(s, NULL);
  e->stream = s;
  e->number = s->issued;
  e->clock = s->clock;
  LEAVE(0);
}

API CUresult cuEventQuery(CUevent event) {
  ENTER(cuEventQuery);
  struct event *e = check_handle("cuEventQuery", event, EVENT);
  if (captures > 0 && capture_mode == 0)
    report("cuEventQuery breaks a capture: the thread that asks has the capture mode that forbids it");
  if (e->stream == NULL) LEAVE(0);
  if (e->stream->done < e->number || answers_late()) LEAVE(CUDA_ERROR_NOT_READY);
  host_learns(&e->clock);
  LEAVE(0);
}

API CUresult cuEventSynchronize(CUevent event) {
  ENTER(cuEventSynchronize);
  struct event *e = check_handle("cuEventSynchronize", event, EVENT);
  if (e->stream == NULL) LEAVE(0);
  struct clock then = e->clock;
  struct stream *s = e->stream;
  for (uint64_t number = e->number; s->done < number;) wait_change();
  host_learns(&then);
  LEAVE(0);
}

void expect_no_streams(void) {
  if (live[0] != 0) report("leak: %d streams have not been destroyed", live[0]);
  if (live[1] != 0) report("leak: %d events have not been destroyed", live[1]);
}
