package vitals

import (
	"testing"
	"time"

	"github.com/gorovod/gorovod/test/leak"
)

// TestTheMainThreadIsLookedAt checks that the looks begin with the first Ask and end with Close.
func TestTheMainThreadIsLookedAt(t *testing.T) {
	probe, err := openThread()
	if err != nil {
		t.Skip(err)
	}
	probe.close()
	before := leak.Now()
	w := &Watch{}
	if first := w.Ask(); first.Looks != 0 {
		t.Errorf("%+v before the first look", first)
	}
	deadline := time.Now().Add(time.Minute)
	now := w.Ask()
	for ; now.Looks < 3; now = w.Ask() {
		if time.Now().After(deadline) {
			t.Fatalf("%+v after a minute", now)
		}
		time.Sleep(time.Millisecond)
	}
	if now.Asleep+now.Reading+now.Locked > now.Looks {
		t.Errorf("%+v", now)
	}
	w.Close()
	w.Close()
	if later := w.Ask(); later.Looks < now.Looks {
		t.Errorf("%+v, then %+v", now, later)
	}
	before.Check(t)
}

func TestCloseWithoutAsking(t *testing.T) {
	w := &Watch{}
	w.Close()
	w.Ask()
}
