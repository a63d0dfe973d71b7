package connect

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/base/reach"
)

// A rank's notice is read back unchanged, and addresses that doors share are sent once.
func TestNotice(t *testing.T) {
	at := func(addrs string) (addresses []reach.Address) {
		for _, a := range strings.Fields(addrs) {
			addresses = append(addresses, reach.Address{Addr: a, Bridge: strings.HasPrefix(a, "172.")})
		}
		return addresses
	}
	for _, c := range []struct {
		doors  []string
		shared int // doors for which only a port is sent
	}{
		{[]string{"10.0.0.1:5 [fd00::1]:5 172.17.0.1:5"}, 0},
		{[]string{"10.0.0.1:5 [fd00::1]:5 172.17.0.1:5", "10.0.0.1:6 [fd00::1]:6 172.17.0.1:6",
			"10.0.0.1:7 [fd00::1]:7 172.17.0.1:7"}, 2},
		{[]string{"10.0.0.1:5 10.1.0.1:5", "10.0.0.1:6"}, 0}, // an interface has disappeared between the two
		{[]string{"10.0.0.1:5", "10.0.0.1:6 10.1.0.1:7"}, 0},
	} {
		var n notice
		for _, d := range c.doors {
			n.add(at(d))
		}
		value, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		shared := 0
		for i, d := range c.doors {
			if n[i].Port != 0 {
				shared++
			}
			if got, err := readNotice(value, i); err != nil || !reflect.DeepEqual(got, at(d)) {
				t.Errorf("%v: door %d is at %v, %v", c.doors, i, got, err)
			}
		}
		if shared != c.shared {
			t.Errorf("%v: %s", c.doors, value)
		}
		if _, err := readNotice(value, len(c.doors)); err == nil {
			t.Errorf("%v: there is one more door", c.doors)
		}
	}
	for _, nonsense := range []string{"", "{}", `[{"p":5}]`, `[{"p":-1}]`} {
		if got, err := readNotice([]byte(nonsense), 0); err == nil {
			t.Errorf("%s is read as %v", nonsense, got)
		}
	}
	if got, err := readNotice([]byte(`[{"o":[{"a":"x"},{"a":"10.0.0.1:1"}]},{"p":7}]`), 1); err != nil ||
		!reflect.DeepEqual(got, at("10.0.0.1:7")) {
		t.Errorf("%v, %v", got, err)
	}
}
