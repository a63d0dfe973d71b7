//go:build cgo && linux

package main

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

static int (*launch)(int, unsigned long long, unsigned long long, size_t, int, unsigned, void *);
static void (*faults)(const char *);
static void (*nothing)(void);
static int (*met)(void);
static unsigned long long (*calls)(const char *);

static int find(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == NULL) return 0;
  *(void **)&launch = dlsym(library, "standinLaunch");
  *(void **)&faults = dlsym(library, "standinFaults");
  *(void **)&nothing = dlsym(library, "standinExpectNothing");
  *(void **)&met = dlsym(library, "standinFaultsMet");
  *(void **)&calls = dlsym(library, "standinCalls");
  return launch != NULL && faults != NULL && nothing != NULL && met != NULL && calls != NULL;
}

static int copy(uintptr_t context, uintptr_t to, uintptr_t from, size_t size, unsigned delay, uintptr_t stream) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *popped;
  int (*push)(void *) = (int (*)(void *))dlsym(library, "cuCtxPushCurrent_v2");
  int (*pop)(void **) = (int (*)(void **))dlsym(library, "cuCtxPopCurrent_v2");
  int code = push((void *)context);
  if (code != 0) return code;
  code = launch(1, to, from, size, 0, delay, (void *)stream);
  pop(&popped);
  return code;
}

static void set_faults(char *text) { faults(text); }
static void expect_nothing(void) {
  if (nothing != NULL) nothing();
}
static int faults_met(void) { return met(); }
static unsigned long long calls_of(char *function) { return calls(function); }
*/
import "C"

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/gorovod/gorovod/internal/carriers/cuda"
)

// findStandIn reports whether the driver that this process has open is the stand-in, and not a real one.
func findStandIn() bool { return C.find() != 0 }

// copySlowly makes a stream of the stand-in copy memory, after some time.
func copySlowly(c *cuda.Context, to, from cuda.Address, size int, takes time.Duration, s cuda.Stream) error {
	code := C.copy(C.uintptr_t(c.Handle()), C.uintptr_t(to), C.uintptr_t(from), C.size_t(size),
		C.unsigned(takes.Microseconds()), C.uintptr_t(s))
	if code != 0 {
		return fmt.Errorf("a kernel: %d", code)
	}
	return nil
}

// setFaults makes calls fail from now on.
func setFaults(faults string) {
	text := C.CString(faults)
	defer C.free(unsafe.Pointer(text))
	C.set_faults(text)
}

// expectNothing ends the process with a report if any stream, event, memory or communicator of the stand-in is left.
func expectNothing() { C.expect_nothing() }

// calls returns the number of calls of a function that this process has made.
func calls(function string) int {
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	return int(C.calls_of(name))
}

// exit ends the process as a return of C's main does: destructors run, while other threads go on.
func exit() { C.exit(0) }

// faultsMet returns the number of calls that have met a fault since setFaults.
func faultsMet() int { return int(C.faults_met()) }
