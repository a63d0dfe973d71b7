package config

import (
	"strings"
	"testing"
)

func env(pairs ...string) func(string) (string, bool) {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) (string, bool) { v, ok := m[name]; return v, ok }
}

func TestDefaults(t *testing.T) {
	c, err := Load(env())
	if err != nil {
		t.Fatal(err)
	}
	if c.Rank != 0 || c.Size != 1 || c.FusionThreshold != 128<<20 || c.CacheCapacity != 1024 || c.Timeout.Seconds() != 30 || c.Transport != "auto" || c.RendezvousAddr != "" {
		t.Errorf("%+v", c)
	}
}

func TestLoad(t *testing.T) {
	c, err := Load(env("HOROVOD_RANK", "2", "HOROVOD_SIZE", "4", "HOROVOD_LOCAL_RANK", "2", "HOROVOD_LOCAL_SIZE", "4", "HOROVOD_HOSTNAME", "h",
		"HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT", "4711", "HOROVOD_SECRET_KEY", "00ff", "HOROVOD_FUSION_THRESHOLD", "0",
		"HOROVOD_LOG_LEVEL", "nonsense", "HOROVOD_TIMELINE", "/tmp/x", "HOROVOD_AUTOTUNE", "0"))
	if err != nil {
		t.Fatal(err)
	}
	if c.RendezvousAddr != "127.0.0.1:4711" || len(c.Key) != 2 || c.FusionThreshold != 0 || c.LogLevel != 4 || len(c.Ignored) != 1 || c.Ignored[0] != "HOROVOD_TIMELINE" {
		t.Errorf("%+v", c)
	}
}

// Each error names the variable, the value and what is wrong.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want []string
	}{
		{[]string{"HOROVOD_RANK", "x"}, []string{"HOROVOD_RANK=x", "whole number"}},
		{[]string{"HOROVOD_RANK", "1"}, []string{"HOROVOD_RANK=1 is not below HOROVOD_SIZE=1"}},
		{[]string{"HOROVOD_LOCAL_RANK", "3", "HOROVOD_LOCAL_SIZE", "2"}, []string{"HOROVOD_LOCAL_RANK=3 is not below HOROVOD_LOCAL_SIZE=2"}},
		{[]string{"HOROVOD_SIZE", "4"}, []string{"HOROVOD_GLOO_RENDEZVOUS_ADDR", "horovodrun -np 4"}},
		{[]string{"HOROVOD_SIZE", "2", "HOROVOD_GLOO_RENDEZVOUS_ADDR", "a", "HOROVOD_GLOO_RENDEZVOUS_PORT", "1"}, []string{"HOROVOD_SECRET_KEY is not set"}},
		{[]string{"HOROVOD_GLOO_RENDEZVOUS_ADDR", "a"}, []string{"without HOROVOD_GLOO_RENDEZVOUS_PORT"}},
		{[]string{"HOROVOD_GLOO_RENDEZVOUS_PORT", "1"}, []string{"without HOROVOD_GLOO_RENDEZVOUS_ADDR"}},
		{[]string{"HOROVOD_GLOO_RENDEZVOUS_PORT", "70000"}, []string{"port"}},
		{[]string{"HOROVOD_FUSION_THRESHOLD", "-1"}, []string{"HOROVOD_FUSION_THRESHOLD=-1", "bytes"}},
		{[]string{"HOROVOD_CACHE_CAPACITY", "99999999"}, []string{"HOROVOD_CACHE_CAPACITY=99999999", "65536"}},
		{[]string{"HOROVOD_GLOO_TIMEOUT_SECONDS", "0"}, []string{"seconds above 0"}},
		{[]string{"GOROVOD_TRANSPORT", "udp"}, []string{"GOROVOD_TRANSPORT=udp", "auto, shm or tcp"}},
	} {
		_, err := Load(env(c.env...))
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: error %v, want %q in it", c.env, err, want)
			}
		}
	}
}

func TestSecretIsNotInTheError(t *testing.T) {
	if _, err := Load(env("HOROVOD_SECRET_KEY", "hunter2")); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error %v", err)
	}
}

func TestRankZerosKnobsAreAdopted(t *testing.T) {
	zero, _ := Load(env("HOROVOD_FUSION_THRESHOLD", "77", "HOROVOD_LOG_LEVEL", "info"))
	mine, _ := Load(env("HOROVOD_CACHE_CAPACITY", "5"))
	differed, err := mine.Adopt(zero.Agreed())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(differed, " ") != "HOROVOD_FUSION_THRESHOLD HOROVOD_CACHE_CAPACITY" || mine.FusionThreshold != 77 || mine.CacheCapacity != 1024 || mine.LogLevel != 4 {
		t.Errorf("differed %v, now %+v", differed, mine)
	}
	if _, err := mine.Adopt(map[string]string{"GOROVOD_TRANSPORT": "pigeon"}); err == nil {
		t.Error("nonsense was adopted")
	}
}
