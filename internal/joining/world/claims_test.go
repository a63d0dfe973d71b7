package world

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/elastic"
	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/joining/bootstrap"
)

// All ranks refuse impossible places, in the same words. Two ranks with one local rank on one host may join, and rank 0
// warns of that.
func TestPlacesAreCheckedTogether(t *testing.T) {
	for said, says := range map[string]string{"4": "on host testhost HOROVOD_LOCAL_SIZE=4", "1": ""} {
		l := newLauncher(t, 2)
		var logs [2]strings.Builder
		each(2, func(r int) {
			local := map[string]string{"4": fmt.Sprint(r), "1": "0"}[said]
			values := map[string]string{"HOROVOD_RANK": fmt.Sprint(r), "HOROVOD_SIZE": "2",
				"HOROVOD_HOSTNAME": "testhost", "GOROVOD_RENDEZVOUS_ADDRS": l.addr,
				"HOROVOD_SECRET_KEY": fmt.Sprintf("%x", key), "HOROVOD_LOCAL_RANK": local, "HOROVOD_LOCAL_SIZE": said}
			c, err := config.Load(func(name string) (string, bool) { v, ok := values[name]; return v, ok })
			if err != nil {
				t.Error(err)
				return
			}
			o := quiet()
			o.Log = slog.New(slog.NewTextHandler(&logs[r], nil))
			w, err := join(context.Background(), c, 1, o)
			if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
				t.Errorf("HOROVOD_LOCAL_SIZE=%s, rank %d: %v", said, r, err)
			}
			if err == nil {
				w.Leave(limit)
			}
		})
		if warned := strings.Contains(logs[0].String(), "side by side"); warned != (says == "") ||
			strings.Contains(logs[1].String(), "side by side") {
			t.Errorf("HOROVOD_LOCAL_SIZE=%s: rank 0 says %s, rank 1 %s", said, &logs[0], &logs[1])
		}
	}
}

// The hosts of an elastic job may be one machine. The driver has chosen the places, so nobody warns of that.
func TestAssignedPlacesMayShareAHost(t *testing.T) {
	l := newLauncher(t, 2)
	var log strings.Builder
	each(2, func(r int) {
		c := l.config(r, 2, "auto")
		a := elastic.Assignment{Epoch: 1, Addrs: []string{l.addr},
			Place: membership.Place{Rank: r, Size: 2, LocalSize: 1, CrossRank: r, CrossSize: 2}}
		s := bootstrap.Assigned(c, key, a, time.Time{})
		s.Secret = key
		o := quiet()
		if r == 0 {
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
		}
		w, err := Join(t.Context(), s, c, o)
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
			return
		}
		w.Leave(limit)
	})
	if strings.Contains(log.String(), "side by side") {
		t.Errorf("rank 0 says %s", &log)
	}
}
