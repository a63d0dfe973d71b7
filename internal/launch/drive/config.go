package drive

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/launch/driver"
)

// Config is the first request. Times are in seconds. A missing field has horovodrun's default.
type Config struct {
	Type    string `json:"type"`
	Version int    `json:"version"`
	// Key is the job's secret, in hexadecimal: every worker needs it as HOROVOD_SECRET_KEY. No event has it.
	Key string `json:"key"`
	// NP is how many slots the job needs to start. Min is how many workers it needs to go on (default: NP). Max is how
	// many workers it takes (default: as many as there are slots).
	NP  int `json:"np"`
	Min int `json:"min"`
	Max int `json:"max"`
	// ResetLimit is how often the job may be formed anew. Default: any number of times.
	ResetLimit *int `json:"reset_limit"`
	// Timeout bounds each wait for slots or workers.
	Timeout *float64 `json:"timeout"`
	// Heartbeat is how long a worker may be silent while others wait for it; 0: for ever.
	Heartbeat *float64 `json:"heartbeat"`
	// Cooldown is the range of times for which a failed slot or host stays out of use. Default: for ever.
	Cooldown *[2]float64 `json:"cooldown"`
	// WholeHosts: a failed worker costs its whole host and not just its slot.
	WholeHosts bool `json:"whole_hosts"`
	// Resumable: new workers can take the state from a disk.
	Resumable bool `json:"resumable"`
	// Grace is how long a process may take to end after SIGTERM.
	Grace *float64 `json:"grace"`
	// Address is the address of this host as workers on other hosts see it. Interfaces are the interfaces to use. By
	// default the driver offers all addresses except loopback's. With an address of loopback no other host can take
	// part.
	Address    string   `json:"address"`
	Interfaces []string `json:"interfaces"`
	// Terms are the names of these settings for the starter's users, in messages. Default: horovodrun's options.
	Terms struct {
		Min      string `json:"min"`
		Timeout  string `json:"timeout"`
		Cooldown string `json:"cooldown"`
	} `json:"terms"`
	// Verbose asks for debug events.
	Verbose bool `json:"verbose"`
}

const (
	defaultTimeout   = 600
	defaultHeartbeat = 30
	defaultGrace     = 5
	maxSeconds       = 1e6
)

func parseConfig(line []byte) (*Config, error) {
	timeout, heartbeat, grace := float64(defaultTimeout), float64(defaultHeartbeat), float64(defaultGrace)
	c := &Config{Timeout: &timeout, Heartbeat: &heartbeat, Grace: &grace}
	if err := decode(line, c, true); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if c.Min == 0 {
		c.Min = c.NP
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return c, nil
}

func (c *Config) check() error {
	if c.Version != Version {
		return fmt.Errorf("version %d: this is version %d", c.Version, Version)
	}
	if _, err := config.ParseKey(c.Key); err != nil {
		return fmt.Errorf("key: %w", err)
	}
	switch {
	case c.NP < 1 || c.NP > maxSlots:
		return fmt.Errorf("np %d: a number from 1 to %d is needed", c.NP, maxSlots)
	case c.Min < 1 || c.Min > c.NP:
		return fmt.Errorf("min %d: a number from 1 to np, which is %d, is needed", c.Min, c.NP)
	case c.Max != 0 && (c.Max < c.NP || c.Max > maxSlots):
		return fmt.Errorf("max %d: a number from np, which is %d, to %d is needed", c.Max, c.NP, maxSlots)
	case c.ResetLimit != nil && *c.ResetLimit < 0:
		return fmt.Errorf("reset_limit %d: a number from 0 on is needed", *c.ResetLimit)
	case c.Cooldown != nil && (c.Cooldown[0] <= 0 || c.Cooldown[1] < c.Cooldown[0] || c.Cooldown[1] > maxSeconds):
		return fmt.Errorf("cooldown %v: two times above 0 are needed, the lesser first", *c.Cooldown)
	}
	for _, t := range []struct {
		name  string
		value *float64
		least float64
	}{{"timeout", c.Timeout, 0.001}, {"heartbeat", c.Heartbeat, 0}, {"grace", c.Grace, 0}} {
		if t.value == nil || *t.value < t.least || *t.value > maxSeconds {
			return fmt.Errorf("%s: a number of seconds from %v to %v is needed", t.name, t.least, maxSeconds)
		}
	}
	for _, name := range c.Interfaces {
		if name == "" {
			return errors.New("interfaces: one has no name")
		}
	}
	return nil
}

// options are the driver's options, without the hosts and the functions that the driver calls.
func (c *Config) options() driver.Options {
	key, err := config.ParseKey(c.Key)
	if err != nil {
		panic(err) // check has refused a bad key
	}
	m := membership.Config{NP: c.NP, Min: c.Min, Max: c.Max, ResetLimit: -1, Timeout: seconds(*c.Timeout),
		Patience: seconds(*c.Heartbeat), WholeHosts: c.WholeHosts, Resumable: c.Resumable, Random: rand.Float64,
		Terms: membership.Terms{Min: c.Terms.Min, Timeout: c.Terms.Timeout, Cooldown: c.Terms.Cooldown}}
	if *c.Heartbeat == 0 {
		m.Patience = seconds(maxSeconds)
	}
	if c.ResetLimit != nil {
		m.ResetLimit = *c.ResetLimit
	}
	if c.Cooldown != nil {
		m.Cooldown = membership.Cooldown{Min: seconds(c.Cooldown[0]), Max: seconds(c.Cooldown[1])}
	}
	return driver.Options{Config: m, Key: key, Grace: seconds(*c.Grace)}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
