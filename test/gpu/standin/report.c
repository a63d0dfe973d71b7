/*
 * Reports, random numbers and injected faults.
 *
 *   STANDIN_REPORT  the file to which reports are appended; they go to standard error, too
 *   STANDIN_SEED    the seed of delays and of all other random choices; 1 if unset
 *   STANDIN_DELAY   the longest random delay, in microseconds; 200 if unset. 0: queries of events are never late, too
 *   STANDIN_FAULTS  FUNCTION:K:WHAT, separated by commas. K is the number of a call of the function in this process, from
 *                   1; or * for each call; or ~N for about one call of N, which the seed decides. WHAT is one of
 *
 *     CODE        the call returns this code, such as 2 of cuMemAlloc_v2 (out of memory)
 *     hang        a call of NCCL hangs until ncclCommAbort, and a call of CUDA for ever
 *     stuck       the call's work on the device, or the making of the communicator, hangs until ncclCommAbort
 *     async=CODE  like stuck, and the communicator gets this error
 *     wrong       the group's first result is wrong
 *     skip        the call, of the driver, does nothing, and returns success
 *     die         the process kills itself
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the state below */

static void say(int fd, const char *text, size_t size) {
  while (size > 0) {
    ssize_t n = write(fd, text, size);
    if (n <= 0) return;
    text += n;
    size -= n;
  }
}

void report(const char *format, ...) {
  char text[4096];
  int n = snprintf(text, sizeof text, "GPU stand-in, process %d: ", (int)getpid());
  va_list arguments;
  va_start(arguments, format);
  n += vsnprintf(text + n, sizeof text - n - 1, format, arguments);
  va_end(arguments);
  if (n > (int)sizeof text - 2) n = sizeof text - 2;
  text[n++] = '\n';
  say(STDERR_FILENO, text, n);
  const char *path = getenv("STANDIN_REPORT");
  if (path != NULL) {
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd >= 0) say(fd, text, n);
  }
  _exit(99);
}

static uint64_t number_of(const char *name, uint64_t otherwise) {
  const char *text = getenv(name);
  return text != NULL && *text ? strtoull(text, NULL, 10) : otherwise;
}

uint64_t draw(uint64_t below) {
  static uint64_t state, begun;
  pthread_mutex_lock(&mutex);
  if (!begun) begun = 1, state = number_of("STANDIN_SEED", 1);
  uint64_t z = state += 0x9e3779b97f4a7c15;
  pthread_mutex_unlock(&mutex);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  z ^= z >> 31;
  return below == 0 ? 0 : z % below;
}

unsigned most_delay(void) {
  static int delay = -1;
  if (delay < 0) delay = number_of("STANDIN_DELAY", 200);
  return delay;
}

static struct injected {
  char function[64];
  uint64_t when;  /* the number of the call; 0: each call */
  uint64_t of;    /* if not 0, in place of when: about one call of this many */
  int what;
  uint64_t calls;
} faults[32];
static int fault_count = -1;
static const int die = -5;
static int met;

static int what_of(const char *text) {
  if (strcmp(text, "hang") == 0) return FAULT_HANG;
  if (strcmp(text, "stuck") == 0) return FAULT_STUCK;
  if (strcmp(text, "wrong") == 0) return FAULT_WRONG;
  if (strcmp(text, "skip") == 0) return FAULT_SKIP;
  if (strcmp(text, "die") == 0) return die;
  if (strncmp(text, "async=", 6) == 0) return FAULT_ASYNC - atoi(text + 6);
  return atoi(text);
}

static void read_faults(const char *text) {
  fault_count = 0;
  while (text != NULL && *text && fault_count < 32) {
    char when[32], what[32];
    memset(&faults[fault_count], 0, sizeof faults[0]);
    if (sscanf(text, "%63[^:,]:%31[^:,]:%31[^,]", faults[fault_count].function, when, what) != 3)
      report("STANDIN_FAULTS has %s, which is not FUNCTION:K:WHAT", text);
    if (when[0] == '~') faults[fault_count].of = strtoull(when + 1, NULL, 10);
    else faults[fault_count].when = when[0] == '*' ? 0 : strtoull(when, NULL, 10);
    faults[fault_count].what = what_of(what);
    fault_count++;
    text = strchr(text, ',');
    if (text != NULL) text++;
  }
}

API void standinFaults(const char *text) {
  pthread_mutex_lock(&mutex);
  read_faults(text);
  met = 0;
  pthread_mutex_unlock(&mutex);
}

API int standinFaultsMet(void) {
  pthread_mutex_lock(&mutex);
  int count = met;
  pthread_mutex_unlock(&mutex);
  return count;
}

static struct {
  const char *function;
  unsigned long long count;
} calls[128];

/* The mutex is held. */
static void count_call(const char *function) {
  int i = 0;
  while (calls[i].function != NULL && strcmp(calls[i].function, function) != 0)
    if (++i == 128) report("more than 128 functions are called");
  calls[i].function = function;
  calls[i].count++;
}

API unsigned long long standinCalls(const char *function) {
  unsigned long long count = 0;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < 128 && calls[i].function != NULL; i++)
    if (strcmp(calls[i].function, function) == 0) count = calls[i].count;
  pthread_mutex_unlock(&mutex);
  return count;
}

/* Whether a call meets a fault of ~N. That depends only on the seed and the call's number, so it is the same in each
 * run. */
static bool chosen(const struct injected *f) {
  uint64_t z = (number_of("STANDIN_SEED", 1) + f->calls) * 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  return (z ^ z >> 27) % f->of == 0;
}

int fault(const char *function) {
  static pid_t user;
  int what = 0;
  pthread_mutex_lock(&mutex);
  if (user == 0) user = getpid();
  if (user != getpid()) report("%s is called in a forked child: CUDA does not survive a fork", function);
  count_call(function);
  if (fault_count < 0) read_faults(getenv("STANDIN_FAULTS"));
  for (int i = 0; i < fault_count; i++) {
    if (strcmp(faults[i].function, function) != 0) continue;
    faults[i].calls++;
    bool now = faults[i].of != 0 ? chosen(&faults[i]) : faults[i].when == 0 || faults[i].when == faults[i].calls;
    if (now) what = faults[i].what;
  }
  met += what != 0;
  pthread_mutex_unlock(&mutex);
  if (what == die) kill(getpid(), SIGKILL);
  return what;
}
