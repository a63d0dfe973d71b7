package leak

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m) }

// failure records the errors of a Check.
type failure struct {
	testing.TB
	text string
}

func (f *failure) Helper()        {}
func (f *failure) Error(a ...any) { f.text = fmt.Sprint(a...) }

func blockedForTheTest(release chan struct{}) { <-release }

func TestAGoroutineThatStaysIsFound(t *testing.T) {
	release := make(chan struct{})
	go blockedForTheTest(release)
	defer func(d time.Duration) { patience = d }(patience)
	patience = 10 * time.Millisecond
	var f failure
	Check(&f)
	if !strings.HasPrefix(f.text, "1 goroutines are left:") || !strings.Contains(f.text, "blockedForTheTest") {
		t.Errorf("Check says %q", f.text)
	}
	known := Now()
	known.Check(t)
	close(release)
	Check(t)
}

func TestAGoroutineThatEndsIsWaitedFor(t *testing.T) {
	release := make(chan struct{})
	go blockedForTheTest(release)
	go close(release)
	Check(t)
}

// TestInsideASubtest: within a subtest, Check does not report the goroutines of the outer tests.
func TestInsideASubtest(t *testing.T) {
	t.Run("of", func(t *testing.T) { t.Run("another", func(t *testing.T) { Check(t) }) })
}
