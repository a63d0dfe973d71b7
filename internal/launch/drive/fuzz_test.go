package drive

import (
	"strings"
	"testing"
)

// Every line from the starter is understood, and its values are within bounds, or it is refused with words.
func FuzzParse(f *testing.F) {
	for _, line := range []string{
		`{"type":"config","version":1,"key":"` + key + `","np":4,"min":2,"max":8,"reset_limit":3,"timeout":60,
			"heartbeat":0,"cooldown":[1,10],"whole_hosts":true,"resumable":true,"grace":1,"address":"10.0.0.1",
			"interfaces":["eth0"],"verbose":true}`,
		`{"type":"hosts","hosts":[{"name":"a","slots":2},{"name":"b","slots":1048576}]}`,
		`{"type":"started","worker":0,"pid":7}`,
		`{"type":"ended","worker":1,"host":"a","pid":7,"signal":9}`,
		`{"type":"ended","worker":1,"reason":"was preempted","stderr":"x"}`,
		`{"type":"gone","worker":99999999999999999999}`,
		`{"type":"host_lost","host":""}`,
		`{"type":"interrupt","reason":null}`,
		`{"type":"start"} {}`, `[]`, `null`, "", "\x00",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		r, err := Parse([]byte(line))
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Errorf("%q is refused without a word", line)
			}
			return
		}
		slots := 0
		for _, h := range r.Hosts {
			slots += h.Slots
		}
		_, known := fields[r.Type]
		switch {
		case r.Type == TypeConfig:
			o := r.Config.options()
			if o.NP < 1 || o.Min < 1 || o.Min > o.NP || o.Timeout <= 0 || o.Patience <= 0 ||
				o.Grace < 0 || len(o.Key) < 16 {
				t.Errorf("%q: %+v", line, o)
			}
		case !known || r.Worker < 0 || r.PID < 0 || r.Signal > maxSignal || slots > maxSlots:
			t.Errorf("%q: %+v", line, r)
		}
	})
}

// A host with 0 slots is drained, and counts as gone.
func TestHostsWithoutSlots(t *testing.T) {
	r, err := Parse([]byte(`{"type":"hosts","hosts":[{"name":"a","slots":0},{"name":"b","slots":2}]}`))
	if err != nil || len(r.Hosts) != 1 || r.Hosts[0].Name != "b" || r.Hosts[0].Slots != 2 {
		t.Errorf("%v, %v", r.Hosts, err)
	}
	if r, err := Parse([]byte(`{"type":"hosts","hosts":[{"name":"a","slots":-1}]}`)); err == nil {
		t.Errorf("accepted as %v", r.Hosts)
	}
}
