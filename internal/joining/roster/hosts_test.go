package roster

import (
	"fmt"
	"reflect"
	"testing"
)

// Ranks are on one host only if name, network and processes are equal.
func TestSupposedHosts(t *testing.T) {
	var members Members
	for _, m := range []string{"a 1 1", "b 1 1", "a 1 1", "a 2 1", "a 1 2", "b 1 1"} {
		var x Member
		fmt.Sscan(m, &x.Host, &x.Machine.Network, &x.Machine.Processes)
		members = append(members, x)
	}
	if got, want := members.SupposedHosts(), [][]int{{0, 2}, {1, 5}, {3}, {4}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
