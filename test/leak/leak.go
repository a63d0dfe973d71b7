// Package leak finds goroutines that a test leaves behind.
//
// Call Main in TestMain to check a whole package after its last test. Call Check to check at one place in a
// test. Both wait up to five seconds for goroutines that are about to end.
package leak

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// Main runs the tests of a package, and ends the process. The package fails if a goroutine is left.
func Main(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if left := wait(nil); len(left) > 0 {
			fmt.Fprintln(os.Stderr, describe(left))
			code = 1
		}
	}
	os.Exit(code)
}

// Check fails the test if goroutines are left. No other test may run at the same time.
func Check(t testing.TB) {
	t.Helper()
	Goroutines(nil).Check(t)
}

// Goroutines are the stacks of the goroutines that run at one time, by their ids.
type Goroutines map[string]string

// Now returns the goroutines that run now, so that a later Check accepts them.
func Now() Goroutines { return snapshot() }

// Check fails the test if goroutines are left that did not run when Now returned g.
func (g Goroutines) Check(t testing.TB) {
	t.Helper()
	if left := wait(g); len(left) > 0 {
		t.Error(describe(left))
	}
}

// patience is the longest time for a goroutine to end.
var patience = 5 * time.Second

// wait returns the stacks of the goroutines that do not end in time.
func wait(except Goroutines) []string {
	deadline := time.Now().Add(patience)
	for pause := time.Millisecond; ; pause *= 2 {
		now := snapshot()
		maps.DeleteFunc(now, func(id, _ string) bool { _, known := except[id]; return known })
		if len(now) == 0 || time.Now().After(deadline) {
			return slices.Sorted(maps.Values(now))
		}
		time.Sleep(pause)
	}
}

func describe(left []string) string {
	return fmt.Sprintf("%d goroutines are left:\n\n%s", len(left), strings.Join(left, "\n\n"))
}

// ours are functions in the stacks of the goroutines of the testing package and the runtime.
var ours = []string{
	"testing.(*M).", "testing.(*T).Run(", "testing.(*F).Fuzz(", "testing.tRunner.func", "testing.runFuzzing(",
	"testing.runTests(",
	"os/signal.signal_recv(", "os/signal.loop(", "runtime.ensureSigM(", "runtime.ReadTrace(",
	"runtime/pprof.profileWriter(",
}

// snapshot returns the stacks of all goroutines but the caller's and the testing package's.
func snapshot() Goroutines {
	text := make([]byte, 1<<16)
	for {
		n := runtime.Stack(text, true)
		if n < len(text) {
			text = text[:n]
			break
		}
		text = make([]byte, 2*len(text))
	}
	found := Goroutines{}
	stacks := strings.Split(strings.TrimSpace(string(text)), "\n\n")
	for _, stack := range stacks[1:] { // the first is the caller's
		id, _, _ := strings.Cut(strings.TrimPrefix(stack, "goroutine "), " ")
		if !slices.ContainsFunc(ours, func(f string) bool { return strings.Contains(stack, "\n"+f) }) {
			found[id] = stack
		}
	}
	return found
}
