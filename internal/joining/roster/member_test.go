package roster

import (
	"reflect"
	"testing"
)

func FuzzMember(f *testing.F) {
	neighbour := Member{Host: "node1", Machine: Machine{"n", "p"}}
	for _, m := range []Member{
		{MPIRank: -1},
		{Host: "node1", PID: 7, LocalSize: 4, Claim: Claim{3, 4, 1, 2}, Machine: Machine{"n", "q"}, MPIRank: 3,
			Rails: 2},
		{Host: "node2", PID: 1 << 22, LocalSize: 1, Machine: Machine{"m", "p"}, Knobs: map[string]string{"A": "1",
			"B": ""}, MPIRank: -1},
	} {
		b := m.Encode()
		var back Member
		if err := back.decode(b, &neighbour); err != nil || !reflect.DeepEqual(back, m) {
			f.Fatalf("%+v became %+v, %v", m, back, err)
		}
		for n := range b {
			if err := new(Member).decode(b[:n], &neighbour); err == nil {
				f.Errorf("%d bytes of %d are taken for a whole", n, len(b))
			}
		}
		f.Add(b)
	}
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\xff\xff\x03")) // more knobs than bytes
	f.Fuzz(func(t *testing.T, in []byte) {
		var m, back Member
		if m.decode(in, &neighbour) != nil {
			return
		}
		if err := back.decode(m.Encode(), &neighbour); err != nil || !reflect.DeepEqual(back, m) {
			t.Fatalf("%+v became %+v, %v", m, back, err)
		}
	})
}
