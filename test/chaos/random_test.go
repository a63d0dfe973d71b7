package chaos

import (
	"syscall"
	"testing"
	"time"
)

// TestChaos injects faults at random. One worker that holds the state is spared at any
// time, so that it is never lost.
func TestChaos(t *testing.T) {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", s)
	j := start(t, s, []string{"-np", "4", "--min-np", "1", "--max-np", "6", "--blacklist-cooldown-range", "1", "2"}, []string{"GOROVOD_HEARTBEAT_SECONDS=5"})
	j.await("the first commits", func() bool { return len(j.veterans()) >= 4 })
	for end := time.Now().Add(*duration); time.Now().Before(end); {
		time.Sleep(min(time.Duration(j.rng.ExpFloat64()*float64(*mean)), 5**mean))
		select {
		case <-j.done:
			t.Fatal("the job has ended")
		default:
			j.strike()
		}
	}
	j.hosts("127.0.0.1:4", "127.0.0.2:4")
	j.await("all six are together again", func() bool {
		together := 0
		for _, w := range j.veterans() {
			if w.size == 6 {
				together++
			}
		}
		return together >= 6
	})
	j.finish()
}

// veterans are the workers that live and hold a commit.
func (j *job) veterans() (list []journal) {
	for _, w := range j.journals() {
		if w.newest >= 0 && w.done == "" && alive(w.pid) {
			list = append(list, w)
		}
	}
	return list
}

// strike injects one fault.
func (j *job) strike() {
	veterans := j.veterans()
	if len(veterans) < 2 {
		return
	}
	spared := veterans[j.rng.IntN(len(veterans))]
	victim := func() *journal {
		i := j.rng.IntN(len(veterans))
		w := veterans[i]
		// Two failures on its host would cost the spared one's place.
		if w.pid == spared.pid || w.host == spared.host && time.Since(j.blamed[w.host]) < 4*time.Second {
			return nil
		}
		return &w
	}
	switch k := j.rng.IntN(10); {
	case k < 5:
		if w := victim(); w != nil {
			j.kill(w)
		}
	case k < 6: // several at once
		for range 3 {
			if w := victim(); w != nil {
				j.kill(w)
			}
		}
	case k < 8:
		if w := victim(); w != nil {
			pause := time.Duration(j.rng.ExpFloat64() * float64(time.Second))
			if pause > time.Second {
				pause += 6 * time.Second // and it is given up meanwhile
				j.blamed[w.host] = time.Now().Add(pause)
			}
			j.faults["stop"]++
			syscall.Kill(w.pid, syscall.SIGSTOP)
			pid := w.pid
			time.AfterFunc(pause, func() { syscall.Kill(pid, syscall.SIGCONT) })
		}
	case k < 9:
		j.faults["slots"]++
		if spared.host == "127.0.0.1" {
			j.hosts("127.0.0.1:4", "127.0.0.2:1")
		} else {
			j.hosts("127.0.0.2:4")
		}
	default:
		j.faults["all slots"]++
		j.hosts("127.0.0.1:4", "127.0.0.2:4")
	}
}

func (j *job) kill(w *journal) {
	if syscall.Kill(w.pid, syscall.SIGKILL) == nil {
		j.faults["kill"]++
		j.kills = append(j.kills, time.Now())
		j.blamed[w.host] = time.Now()
	}
}
