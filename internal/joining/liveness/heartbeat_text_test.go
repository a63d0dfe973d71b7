package liveness

import (
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/joining/rendezvous"
)

// TestSilenceBelowTheLimitIsExplained: a rank is lost after a silence that is shorter than the limit, and the message
// says which silence is meant.
func TestSilenceBelowTheLimitIsExplained(t *testing.T) {
	h := newHeartbeat(30 * time.Second)
	defer h.close()
	h.describe, h.reason = func(int) string { return "rank 1" }, func(int) string { return "" }
	lost := h.judge([]rendezvous.Silence{{Rank: 1, For: h.patience()}}, 0)
	if lost == nil {
		t.Fatalf("a silence of %v is no loss", h.patience())
	}
	want := "it has not answered for 23.0 s"
	also := "(GOROVOD_HEARTBEAT_SECONDS is 30: 23 s of silence, and the time to notice it)"
	if text := lost.Error(); !strings.Contains(text, want) || !strings.HasSuffix(text, also) {
		t.Errorf("%q lacks %q or %q", text, want, also)
	}
}
