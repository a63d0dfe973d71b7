package cuda

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// calls are those that load a library or start it. Such a call runs whatever is in that file, so it may hang or end the
// process, and others want to say which one it was.
var calls struct {
	sync.Mutex
	underway []*call
	tell     func(call string)
}

type call struct {
	what  string
	began time.Time
}

// Begin notes that this thread is about to make a call into a library, such as "cuInit of /usr/lib/libcuda.so.1", and
// end that the call has returned.
func Begin(function, file string) (end func()) {
	c := &call{function + " of " + file, time.Now()}
	calls.Lock()
	calls.underway = append(calls.underway, c)
	tell := calls.tell
	calls.Unlock()
	if tell != nil {
		tell(c.what)
	}
	return func() {
		calls.Lock()
		defer calls.Unlock()
		calls.underway = slices.DeleteFunc(calls.underway, func(other *call) bool { return other == c })
	}
}

// located adds to a library's name the file that LD_LIBRARY_PATH has, if any, since dlopen does not say which file it
// is about to load.
func located(name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	folders := strings.FieldsFunc(os.Getenv("LD_LIBRARY_PATH"), func(c rune) bool { return c == ':' || c == ';' })
	for _, folder := range folders {
		file := filepath.Join(folder, name)
		if info, err := os.Stat(file); err == nil && !info.IsDir() {
			return name + " (LD_LIBRARY_PATH has " + file + ")"
		}
	}
	return name
}

// Underway names the oldest call that Begin has noted and that has not returned, and says for how long; "" if there is
// none.
func Underway() (call string, since time.Duration) {
	calls.Lock()
	defer calls.Unlock()
	if len(calls.underway) == 0 {
		return "", 0
	}
	return calls.underway[0].what, time.Since(calls.underway[0].began)
}

// Tell has tell called with each later call, before it is made. nil ends that. There is one tell in a process.
func Tell(tell func(call string)) {
	calls.Lock()
	defer calls.Unlock()
	calls.tell = tell
}
