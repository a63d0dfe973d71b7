package world

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/config"
)

// parsePlaces makes members of words like a:0/2,1/2, which is a rank on host a with local
// rank 0 of 2 and cross rank 1 of 2; - stands for what has not been told.
func parsePlaces(t *testing.T, text string) (members []member) {
	t.Helper()
	for _, word := range strings.Fields(text) {
		host, places, _ := strings.Cut(word, ":")
		local, cross, _ := strings.Cut(places, ",")
		m := member{Host: host}
		if _, err := fmt.Sscanf(local, "%d/%d", &m.Place.LocalRank, &m.Place.LocalSize); err != nil && local != "-" {
			t.Fatal(word, err)
		}
		if _, err := fmt.Sscanf(cross, "%d/%d", &m.Place.CrossRank, &m.Place.CrossSize); err != nil && cross != "-" {
			t.Fatal(word, err)
		}
		members = append(members, m)
	}
	return members
}

// What ranks can be told of their places, by whatever launcher, is taken; what cannot be
// is refused, with the host, the ranks and the values.
func TestPlaces(t *testing.T) {
	for _, c := range []struct{ name, places, says string }{
		{"as usual: two hosts", "a:0/2,0/2 a:1/2,0/2 b:0/2,1/2 b:1/2,1/2", ""},
		{"as usual: of different sizes", "a:0/2,0/2 a:1/2,0/1 b:0/1,1/2", ""},
		{"of different sizes, cross ranks number the hosts", "a:0/1,0/3 b:0/3,1/3 b:1/3,1/3 b:2/3,1/3 c:0/2,2/3 c:1/2,2/3", ""},
		{"in any order", "b:1/2,1/2 a:1/2,0/2 b:0/2,1/2 a:0/2,0/2", ""},
		{"as usual: two hosts without names", "localhost:0/2,0/2 localhost:1/2,0/2 localhost:0/2,1/2 localhost:1/2,1/2", ""},
		{"as usual: of different sizes without names", "localhost:0/1,0/2 localhost:0/2,1/2 localhost:1/2,0/1", ""},
		{"as usual: each rank a host", "a:0/1,0/2 a:0/1,1/2", ""},
		{"each rank a world", "a:0/1,0/1 b:0/1,0/1", ""},
		{"nothing is told", "a:-,- a:-,-", ""},
		{"not to all", "a:3/4,- a:-,-", ""},
		{"of one's host alone", "a:0/2,- a:1/2,-", ""},

		{"the host is smaller", "a:0/4,- a:1/4,-", "on host a HOROVOD_LOCAL_SIZE=4 is told to rank 0 (HOROVOD_LOCAL_RANK=0), rank 1 (HOROVOD_LOCAL_RANK=1), where there must be local ranks 0 to 3: correct"},
		{"one local rank twice", "a:0/2,- a:0/2,-", "on host a HOROVOD_LOCAL_SIZE=2 is told to rank 0 (HOROVOD_LOCAL_RANK=0), rank 1 (HOROVOD_LOCAL_RANK=0)"},
		{"the second host", "a:0/1,- b:0/1,- b:1/3,- b:2/3,-", "on host b HOROVOD_LOCAL_SIZE=3 is told to rank 2 (HOROVOD_LOCAL_RANK=1), rank 3 (HOROVOD_LOCAL_RANK=2),"},
		{"the world's size for the host's", "a:0/4,- a:1/4,- b:2/4,- b:3/4,-", "on host a HOROVOD_LOCAL_SIZE=4"},
		{"a name that is wrong", "a:0/4,- a:1/4,- b:2/4,- a:3/4,-", "on host a HOROVOD_LOCAL_SIZE=4 is told to rank 0 (HOROVOD_LOCAL_RANK=0), rank 1 (HOROVOD_LOCAL_RANK=1), rank 3 (HOROVOD_LOCAL_RANK=3), where there must be local ranks 0 to 3; nor is all there beside rank 2 (HOROVOD_LOCAL_RANK=2) on host b with HOROVOD_LOCAL_SIZE=4: correct"},
		{"a size that is wrong", "a:0/2,- a:1/3,-", "told to rank 0 (HOROVOD_LOCAL_RANK=0), where there must be local ranks 0 to 1; nor is all there beside rank 1 (HOROVOD_LOCAL_RANK=1) on host a with HOROVOD_LOCAL_SIZE=3: correct"},
		{"one too many", "a:0/2,- a:1/2,- a:1/2,-", "rank 2 (HOROVOD_LOCAL_RANK=1)"},
		{"a size beyond reason", "a:0/2147483647,- a:1/2147483647,-", "HOROVOD_LOCAL_SIZE=2147483647"},
		{"more hosts than there are", "a:0/1,0/7 b:0/1,1/7", "with HOROVOD_LOCAL_RANK=0, HOROVOD_CROSS_SIZE=7 is told to rank 0 (HOROVOD_CROSS_RANK=0), rank 1 (HOROVOD_CROSS_RANK=1), where there must be cross ranks 0 to 6: correct"},
		{"one cross rank on all", "a:0/1,0/2 b:0/1,0/2", "HOROVOD_CROSS_SIZE=2"},
		{"of one local rank", "a:0/2,0/2 a:1/2,0/2 b:0/2,1/2 b:1/2,0/2", "with HOROVOD_LOCAL_RANK=1, HOROVOD_CROSS_SIZE=2 is told to rank 1 (HOROVOD_CROSS_RANK=0), rank 3 (HOROVOD_CROSS_RANK=0)"},
	} {
		members := parsePlaces(t, c.places)
		err := checkPlaces(members)
		if usual := usualPlaces(members); usual && err != nil || usual != strings.HasPrefix(c.name, "as usual: ") {
			t.Errorf("%s: usual is %v", c.name, usual)
		}
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
	many := parsePlaces(t, strings.Repeat("a:0/4,- ", 40))
	if err := checkPlaces(many); err == nil || !strings.Contains(err.Error(), "rank 15 (HOROVOD_LOCAL_RANK=0) and 24 more,") {
		t.Errorf("of many ranks: %v", err)
	}
}

// Two ranks of one host with one place are found, those of two machines are not.
func TestSharedPlaces(t *testing.T) {
	for text, want := range map[string][2]int{
		"a:0/1,- a:0/1,-":                 {0, 1},
		"a:0/2,- a:1/2,- a:0/2,- a:1/2,-": {0, 2},
		"a:0/2,- a:1/2,-":                 {},
		"a:0/1,- b:0/1,-":                 {},
		"a:-,- a:-,-":                     {},
	} {
		members := parsePlaces(t, text)
		if a, b := sharedPlace(members); [2]int{a, b} != want {
			t.Errorf("%s: ranks %d and %d", text, a, b)
		}
		for i := range members {
			members[i].Machine.Network = fmt.Sprint(i)
		}
		if a, b := sharedPlace(members); b > 0 {
			t.Errorf("%s: ranks %d and %d, of two machines", text, a, b)
		}
	}
}

// A place counts only if Horovod's own variables have told it.
func TestToldPlaces(t *testing.T) {
	for text, want := range map[string]place{
		"HOROVOD_RANK=1 HOROVOD_SIZE=4 HOROVOD_LOCAL_RANK=1 HOROVOD_LOCAL_SIZE=2 HOROVOD_CROSS_RANK=0 HOROVOD_CROSS_SIZE=2": {1, 2, 0, 2},
		"HOROVOD_RANK=1 HOROVOD_SIZE=4 HOROVOD_LOCAL_SIZE=2":                                                                {0, 2, 0, 0},
		"HOROVOD_RANK=1 HOROVOD_SIZE=4":                                                                                     {},
		"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2":           {},
	} {
		values := map[string]string{"HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT": "9", "HOROVOD_SECRET_KEY": strings.Repeat("00", 16)}
		if strings.HasPrefix(text, "OMPI") {
			clear(values)
		}
		for _, v := range strings.Fields(text) {
			name, value, _ := strings.Cut(v, "=")
			values[name] = value
		}
		c, err := config.Load(func(name string) (string, bool) { v, ok := values[name]; return v, ok })
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := toldPlace(c); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

// All ranks refuse places that cannot be, in the same words; two with one local rank on one
// host join, and rank 0 says so.
func TestPlacesAreCheckedTogether(t *testing.T) {
	for said, says := range map[string]string{"4": "on host testhost HOROVOD_LOCAL_SIZE=4", "1": ""} {
		l := newLauncher(t, 2)
		var logs [2]strings.Builder
		each(2, func(r int) {
			local := map[string]string{"4": fmt.Sprint(r), "1": "0"}[said]
			values := map[string]string{"HOROVOD_RANK": fmt.Sprint(r), "HOROVOD_SIZE": "2", "HOROVOD_HOSTNAME": "testhost", "GOROVOD_RENDEZVOUS_ADDRS": l.addr, "HOROVOD_SECRET_KEY": fmt.Sprintf("%x", key),
				"HOROVOD_LOCAL_RANK": local, "HOROVOD_LOCAL_SIZE": said}
			c, err := config.Load(func(name string) (string, bool) { v, ok := values[name]; return v, ok })
			if err != nil {
				t.Error(err)
				return
			}
			o := quiet()
			o.Log = slog.New(slog.NewTextHandler(&logs[r], nil))
			w, err := Join(context.Background(), c, 1, o)
			if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
				t.Errorf("HOROVOD_LOCAL_SIZE=%s, rank %d: %v", said, r, err)
			}
			if err == nil {
				w.Leave(limit)
			}
		})
		if warned := strings.Contains(logs[0].String(), "side by side"); warned != (says == "") || strings.Contains(logs[1].String(), "side by side") {
			t.Errorf("HOROVOD_LOCAL_SIZE=%s: rank 0 says %s, rank 1 %s", said, &logs[0], &logs[1])
		}
	}
}
