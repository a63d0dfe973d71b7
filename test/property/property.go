// Package property runs a test on random cases, and shrinks a case that fails.
//
//	property.Check(t, func(t *property.T) {
//		n := t.Int("n", 0, 100)
//		...
//	})
//
// A draw is a number below a bound. A case is the list of its draws. So Check can replay a case that fails, and shrink
// it without knowing what the numbers mean: it tries shorter lists and smaller numbers as long as the test still fails.
// Draw so that small numbers mean simple things.
package property

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"testing"
)

var (
	checks = flag.Int("property.checks", 100, "how many cases to draw; a fifth of them with -short")
	seed   = flag.Uint64("property.seed", 0, "draw only the case of this seed")
)

// Check runs a property on many cases. If one fails, t fails with the smallest case that Check finds, and its seed.
func Check(t *testing.T, property func(*T)) {
	t.Helper()
	n, first := *checks, rand.Uint64()
	if testing.Short() {
		n = max(1, n/5)
	}
	if *seed != 0 {
		n, first = 1, *seed
	}
	for i := range n {
		if report := check(property, first+uint64(i)); report != "" {
			t.Fatal(report)
		}
	}
}

// check runs the case of a seed. It returns a report if the case fails.
func check(property func(*T), seed uint64) string {
	again := fmt.Sprintf("-property.seed=%d draws this case again", seed)
	ended := false
	defer func() {
		if !ended { // the property has ended its goroutine through another *testing.T
			fmt.Println(again)
		}
	}()
	c := &T{random: rand.New(rand.NewPCG(seed, 0))}
	run(property, c)
	ended = true
	if !c.Failed() {
		return ""
	}
	play := func(draws []uint64) *T {
		c := &T{replay: draws}
		run(property, c)
		return c
	}
	replayed := play(c.drawn)
	if !replayed.Failed() {
		return fmt.Sprintf("a case fails, but not each time (%s):\n%s", again, strings.Join(c.lines, "\n"))
	}
	small, tries := shrink(replayed, play)
	return fmt.Sprintf("a case fails (%s); made smaller in %d tries:\n%s", again, tries,
		strings.Join(small.lines, "\n"))
}

// run calls the property. A panic is a failure of the case.
func run(property func(*T), c *T) {
	defer func() {
		if p := recover(); p != nil && p != any(c) {
			c.fail("panic: %v\n%s", p, debug.Stack())
		}
	}()
	property(c)
}
