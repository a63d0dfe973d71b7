package cuda

import (
	"slices"
	"sync"
)

// calls are those that load a library or start it. Such a call runs whatever is in that file, so it may hang or end the
// process, and others want to say which one it was.
var calls struct {
	sync.Mutex
	underway []*string
	tell     func(call string)
}

// Begin notes that this thread is about to make a call into a library, such as "cuInit of /usr/lib/libcuda.so.1", and
// end that the call has returned.
func Begin(function, file string) (end func()) {
	call := function + " of " + file
	calls.Lock()
	defer calls.Unlock()
	calls.underway = append(calls.underway, &call)
	if calls.tell != nil {
		calls.tell(call)
	}
	return func() {
		calls.Lock()
		defer calls.Unlock()
		calls.underway = slices.DeleteFunc(calls.underway, func(c *string) bool { return c == &call })
	}
}

// Underway names the oldest call that Begin has noted and that has not returned; "" if there is none.
func Underway() string {
	calls.Lock()
	defer calls.Unlock()
	if len(calls.underway) == 0 {
		return ""
	}
	return *calls.underway[0]
}

// Tell has tell called with each later call, before it is made. nil ends that.
func Tell(tell func(call string)) {
	calls.Lock()
	defer calls.Unlock()
	calls.tell = tell
}
