package roster

import (
	"fmt"
	"strings"
	"testing"
)

// parsePlaces makes members from words like a:0/2,1/2, a rank on host a with local rank 0 of 2 and cross rank 1 of 2; -
// stands for an unset value.
func parsePlaces(t *testing.T, text string) (members Members) {
	t.Helper()
	for _, word := range strings.Fields(text) {
		host, places, _ := strings.Cut(word, ":")
		local, cross, _ := strings.Cut(places, ",")
		m := Member{Host: host}
		if _, err := fmt.Sscanf(local, "%d/%d", &m.Claim.LocalRank, &m.Claim.LocalSize); err != nil && local != "-" {
			t.Fatal(word, err)
		}
		if _, err := fmt.Sscanf(cross, "%d/%d", &m.Claim.CrossRank, &m.Claim.CrossSize); err != nil && cross != "-" {
			t.Fatal(word, err)
		}
		members = append(members, m)
	}
	return members
}

// Places that some launcher can give are accepted. Impossible places are refused, with the host, the ranks and the
// values.
func TestPlaces(t *testing.T) {
	for _, c := range []struct{ name, places, says string }{
		{"as usual: two hosts", "a:0/2,0/2 a:1/2,0/2 b:0/2,1/2 b:1/2,1/2", ""},
		{"as usual: of different sizes", "a:0/2,0/2 a:1/2,0/1 b:0/1,1/2", ""},
		{"of different sizes, cross ranks number the hosts",
			"a:0/1,0/3 b:0/3,1/3 b:1/3,1/3 b:2/3,1/3 c:0/2,2/3 c:1/2,2/3", ""},
		{"in any order", "b:1/2,1/2 a:1/2,0/2 b:0/2,1/2 a:0/2,0/2", ""},
		{"as usual: two hosts without names", "localhost:0/2,0/2 localhost:1/2,0/2 localhost:0/2,1/2 localhost:1/2,1/2",
			""},
		{"as usual: of different sizes without names", "localhost:0/1,0/2 localhost:0/2,1/2 localhost:1/2,0/1", ""},
		{"as usual: each rank a host", "a:0/1,0/2 a:0/1,1/2", ""},
		{"each rank a world", "a:0/1,0/1 b:0/1,0/1", ""},
		{"nothing is told", "a:-,- a:-,-", ""},
		{"not to all", "a:3/4,- a:-,-", ""},
		{"of one's host alone", "a:0/2,- a:1/2,-", ""},

		{"the host is smaller", "a:0/4,- a:1/4,-", "on host a HOROVOD_LOCAL_SIZE=4 is set for rank 0 " +
			"(HOROVOD_LOCAL_RANK=0), rank 1 (HOROVOD_LOCAL_RANK=1), so there must be local ranks 0 to 3: correct"},
		{"one local rank twice", "a:0/2,- a:0/2,-", "on host a HOROVOD_LOCAL_SIZE=2 is set for rank 0 " +
			"(HOROVOD_LOCAL_RANK=0), rank 1 (HOROVOD_LOCAL_RANK=0)"},
		{"the second host", "a:0/1,- b:0/1,- b:1/3,- b:2/3,-", "on host b HOROVOD_LOCAL_SIZE=3 is set for rank 2 " +
			"(HOROVOD_LOCAL_RANK=1), rank 3 (HOROVOD_LOCAL_RANK=2),"},
		{"the world's size for the host's", "a:0/4,- a:1/4,- b:2/4,- b:3/4,-", "on host a HOROVOD_LOCAL_SIZE=4"},
		{"a name that is wrong", "a:0/4,- a:1/4,- b:2/4,- a:3/4,-", "on host a HOROVOD_LOCAL_SIZE=4 is set for rank " +
			"0 (HOROVOD_LOCAL_RANK=0), rank 1 (HOROVOD_LOCAL_RANK=1), rank 3 (HOROVOD_LOCAL_RANK=3), so there must " +
			"be local ranks 0 to 3; ranks are also missing beside rank 2 (HOROVOD_LOCAL_RANK=2) on host b with " +
			"HOROVOD_LOCAL_SIZE=4: correct"},
		{"a size that is wrong", "a:0/2,- a:1/3,-", "for rank 0 (HOROVOD_LOCAL_RANK=0), so there must be local ranks " +
			"0 to 1; ranks are also missing beside rank 1 (HOROVOD_LOCAL_RANK=1) on host a with " +
			"HOROVOD_LOCAL_SIZE=3: correct"},
		{"one too many", "a:0/2,- a:1/2,- a:1/2,-", "rank 2 (HOROVOD_LOCAL_RANK=1)"},
		{"a size beyond reason", "a:0/2147483647,- a:1/2147483647,-", "HOROVOD_LOCAL_SIZE=2147483647"},
		{"more hosts than there are", "a:0/1,0/7 b:0/1,1/7", "with HOROVOD_LOCAL_RANK=0, HOROVOD_CROSS_SIZE=7 is set " +
			"for rank 0 (HOROVOD_CROSS_RANK=0), rank 1 (HOROVOD_CROSS_RANK=1), so there must be cross ranks 0 " +
			"to 6: correct"},
		{"one cross rank on all", "a:0/1,0/2 b:0/1,0/2", "HOROVOD_CROSS_SIZE=2"},
		{"of one local rank", "a:0/2,0/2 a:1/2,0/2 b:0/2,1/2 b:1/2,0/2",
			"with HOROVOD_LOCAL_RANK=1, HOROVOD_CROSS_SIZE=2 is set for rank 1 (HOROVOD_CROSS_RANK=0), rank 3 " +
				"(HOROVOD_CROSS_RANK=0)"},
	} {
		members := parsePlaces(t, c.places)
		err := members.CheckClaims()
		if usual := members.usualClaims(); usual && err != nil || usual != strings.HasPrefix(c.name, "as usual: ") {
			t.Errorf("%s: usual is %v", c.name, usual)
		}
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
	many := parsePlaces(t, strings.Repeat("a:0/4,- ", 40))
	if err := many.CheckClaims(); err == nil || !strings.Contains(err.Error(),
		"rank 15 (HOROVOD_LOCAL_RANK=0) and 24 more,") {
		t.Errorf("of many ranks: %v", err)
	}
}

// Two ranks of one host with the same place are found; ranks of two machines are not.
func TestSharedPlaces(t *testing.T) {
	for text, want := range map[string][2]int{
		"a:0/1,- a:0/1,-":                 {0, 1},
		"a:0/2,- a:1/2,- a:0/2,- a:1/2,-": {0, 2},
		"a:0/2,- a:1/2,-":                 {},
		"a:0/1,- b:0/1,-":                 {},
		"a:-,- a:-,-":                     {},
	} {
		members := parsePlaces(t, text)
		if a, b := members.SharedPlace(); [2]int{a, b} != want {
			t.Errorf("%s: ranks %d and %d", text, a, b)
		}
		for i := range members {
			members[i].Machine.Network = fmt.Sprint(i)
		}
		if a, b := members.SharedPlace(); b > 0 {
			t.Errorf("%s: ranks %d and %d, of two machines", text, a, b)
		}
	}
}
