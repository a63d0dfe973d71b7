package spawn

import (
	"os"
	"os/signal"
	"time"
)

// echoTime is how long after a signal another one of the same number counts as the same signal: timeout(1), for
// example, signals a process, and then the process's group.
const echoTime = 150 * time.Millisecond

// Notify is signal.Notify for all of the outs, without signals that are an echo (see echoTime), until stop is called. A
// signal for which an out has no room is lost there.
func Notify(wanted []os.Signal, outs ...chan<- os.Signal) (stop func()) {
	raw, done := make(chan os.Signal, 16), make(chan struct{})
	signal.Notify(raw, wanted...)
	go func() {
		defer close(done)
		withoutEchoes(raw, outs...)
	}()
	return func() {
		signal.Stop(raw)
		close(raw)
		<-done
	}
}

// withoutEchoes passes signals from raw on until that is closed.
func withoutEchoes(raw <-chan os.Signal, outs ...chan<- os.Signal) {
	counted := map[os.Signal]time.Time{}
	for s := range raw {
		if at, before := counted[s]; before && time.Since(at) < echoTime {
			continue
		}
		counted[s] = time.Now()
		for _, out := range outs {
			select {
			case out <- s:
			default:
			}
		}
	}
}
