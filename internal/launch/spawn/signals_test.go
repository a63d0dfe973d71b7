package spawn

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A program that signals a process and then its group has sent one signal. A signal of another number counts at once.
func TestEchoesOfSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		raw, out := make(chan os.Signal), make(chan os.Signal, 16)
		go withoutEchoes(raw, out)
		for _, s := range []struct {
			after time.Duration
			sig   syscall.Signal
		}{
			{0, syscall.SIGTERM}, {time.Millisecond, syscall.SIGTERM}, {time.Millisecond, syscall.SIGINT},
			{echoTime - 3*time.Millisecond, syscall.SIGTERM}, {2 * time.Millisecond, syscall.SIGTERM},
		} {
			time.Sleep(s.after)
			raw <- s.sig
		}
		close(raw)
		synctest.Wait()
		close(out)
		var got []os.Signal
		for s := range out {
			got = append(got, s)
		}
		if want := []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGTERM}; !slices.Equal(got, want) {
			t.Errorf("%v count, want %v", got, want)
		}
	})
}
