package drive

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/gorovod/gorovod/internal/elastic/membership"
)

// Version is the version of the lines, which the configuration names. It changes when the meaning of a line changes.
const Version = 1

// Types of requests. Config comes first, then Hosts, then the others in any order.
const (
	TypeConfig    = "config"    // Config's fields
	TypeHosts     = "hosts"     // Hosts: all that exist now. Workers of other hosts leave at the next commit
	TypeStarted   = "started"   // Worker, PID
	TypeEnded     = "ended"     // Worker; Code, Signal or Reason if the worker has failed; Host, PID, Stderr if known
	TypeGone      = "gone"      // Worker: none of its processes is left, so its slot is free
	TypeHostLost  = "host_lost" // Host: it cannot be reached any more
	TypeInterrupt = "interrupt" // Reason: end the job; a second one makes the driver kill every worker at once
)

// Request is a line of input.
type Request struct {
	Type   string
	Config *Config // of TypeConfig

	Hosts  []membership.Host
	Host   string
	Worker int
	PID    int
	Code   int
	Signal int
	Reason string
	Stderr string
}

// fields lists the fields of each type.
var fields = map[string]struct {
	needed, possible []string
}{
	TypeHosts:     {needed: []string{"hosts"}},
	TypeStarted:   {needed: []string{"worker", "pid"}},
	TypeEnded:     {[]string{"worker"}, []string{"host", "pid", "code", "signal", "reason", "stderr"}},
	TypeGone:      {needed: []string{"worker"}},
	TypeHostLost:  {needed: []string{"host"}},
	TypeInterrupt: {needed: []string{"reason"}},
}

const (
	maxWorker = 1 << 30
	maxSlots  = 1 << 20 // on all hosts together
	maxSignal = 64
)

// Parse reads one line. A field that the line's type does not have is an error, because the starter would believe that
// it has an effect.
func Parse(line []byte) (r Request, err error) {
	var given map[string]json.RawMessage
	if err := decode(line, &given, false); err != nil {
		return r, err
	}
	if err := json.Unmarshal(given["type"], &r.Type); err != nil {
		return r, errors.New(`"type" is missing, or no text`)
	}
	if r.Type == TypeConfig {
		r.Config, err = parseConfig(line)
		return r, err
	}
	known, ok := fields[r.Type]
	if !ok {
		return r, fmt.Errorf("there is no type %q", r.Type)
	}
	for _, name := range known.needed {
		if _, ok := given[name]; !ok {
			return r, fmt.Errorf("%s: %q is missing", r.Type, name)
		}
	}
	for name, value := range given {
		if string(value) == "null" {
			return r, fmt.Errorf("%s: %q is null", r.Type, name)
		}
		if name != "type" && !slices.Contains(known.needed, name) && !slices.Contains(known.possible, name) {
			return r, fmt.Errorf("%s: there is no field %q", r.Type, name)
		}
	}
	if err := decode(line, &r, true); err != nil {
		return r, fmt.Errorf("%s: %w", r.Type, err)
	}
	if err := r.check(); err != nil {
		return r, fmt.Errorf("%s: %w", r.Type, err)
	}
	// A host without slots is drained: the job leaves it, as if it were not there.
	r.Hosts = slices.DeleteFunc(r.Hosts, func(h membership.Host) bool { return h.Slots == 0 })
	return r, nil
}

// decode reads exactly one value of JSON.
func decode(line []byte, v any, strict bool) error {
	d := json.NewDecoder(bytes.NewReader(line))
	if strict {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("it is not what is needed in JSON: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something stands behind the value in JSON")
	}
	return nil
}

func (r *Request) check() error {
	switch {
	case r.Worker < 0 || r.Worker > maxWorker:
		return fmt.Errorf("there is no worker %d", r.Worker)
	case r.PID < 0:
		return fmt.Errorf("pid %d: it must be 0 or more", r.PID)
	case r.Code < 0 || r.Code > 255:
		return fmt.Errorf("code %d: it must be from 0 to 255", r.Code)
	case r.Signal < 0 || r.Signal > maxSignal:
		return fmt.Errorf("signal %d: it must be from 0 to %d", r.Signal, maxSignal)
	case r.Type == TypeHostLost && r.Host == "":
		return errors.New("host is empty")
	}
	slots := 0
	names := map[string]bool{}
	for _, h := range r.Hosts {
		switch slots += h.Slots; {
		case h.Name == "":
			return errors.New("a host has no name")
		case names[h.Name]:
			return fmt.Errorf("host %q is there twice", h.Name)
		case h.Slots < 0 || h.Slots > maxSlots || slots > maxSlots:
			return fmt.Errorf("host %q: a host has 0 slots or more, and all together at most %d", h.Name, maxSlots)
		}
		names[h.Name] = true
	}
	return nil
}
