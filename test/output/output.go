// Package output collects what processes and goroutines of a test say while they run.
package output

import (
	"bytes"
	"sync"
	"testing"
	"time"
)

// Buffer is what has been written so far. Its zero value is empty. Its methods are safe while others write.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds p. It never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String is a copy of what has been written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Await waits until passes accepts the text. The test fails at once if that takes longer than a minute; what says what
// was awaited.
func (b *Buffer) Await(t testing.TB, what string, passes func(text string) bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !passes(b.String()); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute: %q", what, b.String())
		}
	}
}
