package flags

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/base/config"
	"github.com/gorovod/gorovod/internal/base/environment"
	"github.com/gorovod/gorovod/internal/elastic/membership"
	"github.com/gorovod/gorovod/internal/launch/discovery"
	"github.com/gorovod/gorovod/internal/launch/driver"
	"github.com/gorovod/gorovod/internal/launch/placement"
)

const (
	defaultElasticTimeout = 600 * time.Second
)

// IsElastic reports whether the job is elastic.
func (f *Flags) IsElastic() bool {
	return f.DiscoveryScript != "" || f.MinNP != nil || f.Place != nil && f.Place.Elastic
}

// checkElastic checks the options and the variables of elastic jobs.
func (f *Flags) checkElastic() error {
	if f.IsElastic() {
		if err := secondsFrom("HOROVOD_ELASTIC_TIMEOUT", &f.ElasticTimeout); err != nil {
			return err
		}
	}
	if err := f.checkElasticNumbers(); err != nil || !f.IsElastic() {
		return err
	}
	return config.Check(blacklistVariable, os.Getenv(blacklistVariable))
}

// checkElasticNumbers checks the options of elastic jobs.
func (f *Flags) checkElasticNumbers() error {
	if !f.IsElastic() {
		for _, o := range []struct {
			name  string
			given bool
		}{{"--max-np", f.MaxNP != nil}, {"--slots-per-host", f.SlotsPerHost != nil},
			{"--elastic-timeout", f.ElasticTimeout != nil},
			{"--reset-limit", f.ResetLimit != nil}, {cooldownOption, f.BlacklistCooldown != nil}} {
			if o.given {
				return fmt.Errorf("%s is for elastic jobs: give --min-np, --host-discovery-script or --nnodes "+
					"MIN:MAX, too", o.name)
			}
		}
		return nil
	}
	for _, v := range []struct {
		name  string
		value *int
		least int
	}{{"min-np", f.MinNP, 1}, {"max-np", f.MaxNP, 1}, {"slots-per-host", f.SlotsPerHost, 1},
		{"elastic-timeout", f.ElasticTimeout, 1}, {"reset-limit", f.ResetLimit, 0}} {
		if v.value != nil && (*v.value < v.least || *v.value > placement.MaxSlots) {
			return fmt.Errorf("--%s %d: a number from %d to %d is needed", v.name, *v.value, v.least,
				placement.MaxSlots)
		}
	}
	counted := f.NumProc > 0 // with --nnodes the nodes' slots decide, not -np
	if counted && f.MinNP != nil && *f.MinNP > f.NumProc {
		return fmt.Errorf("--min-np %d is above -np %d", *f.MinNP, f.NumProc)
	}
	if f.MaxNP != nil && f.MinNP != nil && *f.MaxNP < *f.MinNP {
		return fmt.Errorf("--max-np %d is below --min-np %d", *f.MaxNP, *f.MinNP)
	}
	if counted && f.MaxNP != nil && *f.MaxNP < f.NumProc {
		return fmt.Errorf("--max-np %d is below -np %d", *f.MaxNP, f.NumProc)
	}
	if c := f.BlacklistCooldown; c != nil && (len(c) != 2 || c[0] < 1 || c[1] < c[0] || c[1] > 3600) {
		return fmt.Errorf("%s %s: two numbers of seconds are needed, from 1 to 3600, the lesser first", cooldownOption,
			strings.Trim(fmt.Sprint(c), "[]"))
	}
	return nil
}

// blacklistVariable says what a failure costs: "host" excludes the whole host, anything else one slot.
const blacklistVariable = "GOROVOD_ELASTIC_BLACKLIST"

// Membership are the rules of an elastic job.
func (f *Flags) Membership(env []string) membership.Config {
	c := membership.Config{NP: f.NumProc, Min: f.NumProc, ResetLimit: -1, Timeout: defaultElasticTimeout,
		Patience:   patience(environment.Get(env, "GOROVOD_HEARTBEAT_SECONDS")),
		WholeHosts: os.Getenv(blacklistVariable) == "host", Fixed: f.DiscoveryScript == "",
		Resumable: environment.Get(env, "GOROVOD_CHECKPOINT_DIR") != "",
		Random:    rand.Float64}
	for _, o := range []struct {
		value *int
		to    *int
	}{{f.MinNP, &c.Min}, {f.MaxNP, &c.Max}, {f.ResetLimit, &c.ResetLimit}} {
		if o.value != nil {
			*o.to = *o.value
		}
	}
	if f.ElasticTimeout != nil {
		c.Timeout = time.Duration(*f.ElasticTimeout) * time.Second
	}
	c.Cooldown = f.cooldown()
	return c
}

// cooldown is how long failed slots and hosts stay excluded.
func (f *Flags) cooldown() (c membership.Cooldown) {
	if r := f.BlacklistCooldown; r != nil {
		c.Min, c.Max = time.Duration(r[0])*time.Second, time.Duration(r[1])*time.Second
	}
	return c
}

// FirstDiscovery is the limit of the first discovery, for which the job's start waits.
func (f *Flags) FirstDiscovery() driver.Limit {
	limit := driver.Limit{Limit: discovery.Limit, Option: "--start-timeout"}
	if f.StartTimeout != nil {
		limit.Limit = f.ConnectTimeout()
	}
	if t := f.ElasticTimeout; t != nil && time.Duration(*t)*time.Second < limit.Limit {
		limit = driver.Limit{Limit: time.Duration(*t) * time.Second, Option: "--elastic-timeout"}
	}
	return limit
}

// patience is how long a worker may be silent before the driver gives it up: as long as the ranks wait for one another.
func patience(heartbeat string) time.Duration {
	seconds, err := strconv.ParseFloat(heartbeat, 64)
	switch {
	case err != nil || seconds < 0:
		return 30 * time.Second
	case seconds == 0 || seconds > 1e6:
		return 1e6 * time.Second
	}
	return time.Duration(seconds * float64(time.Second))
}

// ElasticHosts are the hosts of an elastic job that has no discovery script.
func (f *Flags) ElasticHosts() ([]membership.Host, error) {
	hosts, err := f.HostList()
	if err != nil {
		return nil, err
	}
	if f.Hosts == "" && f.Hostfile == "" && f.MaxNP != nil {
		hosts[0].Slots = *f.MaxNP
	}
	var merged []membership.Host
	index := map[string]int{} // a host that is named twice counts as one host
	total := 0
	for _, h := range hosts {
		total += h.Slots
		i, found := index[h.Name]
		if !found {
			i = len(merged)
			index[h.Name] = i
			merged = append(merged, membership.Host{Name: h.Name})
		}
		merged[i].Slots += h.Slots
	}
	if total < f.NumProc {
		return nil, placement.TooFewSlots(hosts, f.NumProc, total)
	}
	if total > placement.MaxSlots {
		return nil, errors.New("the hosts have too many slots")
	}
	return merged, nil
}
