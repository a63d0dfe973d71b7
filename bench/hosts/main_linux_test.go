package main

import (
	"errors"
	"flag"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// Without options the cells are the default cells; what is not given is as in the first of them.
func TestCellsAreAllCombinations(t *testing.T) {
	for _, c := range []struct {
		args string
		want []cell
	}{
		{"", defaults},
		{"-hosts= -ranks= -rate= -delay=", defaults}, // as make calls it without variables
		{"-hosts 8", []cell{{8, 1, 1e9, 0}}},
		{"-hosts 4 -ranks 1 -rate 1gbit -delay 0", []cell{{4, 1, 1e9, 0}}},
		{"-hosts 2,4 -ranks 1,2", []cell{{2, 1, 1e9, 0}, {2, 2, 1e9, 0}, {4, 1, 1e9, 0}, {4, 2, 1e9, 0}}},
		{"-rate 0,100mbit,2.5gbit -delay 200us", []cell{{4, 1, 0, 200e3}, {4, 1, 100e6, 200e3}, {4, 1, 25e8, 200e3}}},
		{"-delay 0,2ms", []cell{{4, 1, 1e9, 0}, {4, 1, 1e9, 2 * time.Millisecond}}},
	} {
		o, err := parse(strings.Fields(c.args))
		if err != nil || !reflect.DeepEqual(o.cells, c.want) {
			t.Errorf("%s: %v, %v, want %v", c.args, o, err, c.want)
		}
	}
	o, err := parse(strings.Fields("-hosts 2,4,8 -ranks 1,2 -rate 1gbit,10gbit -delay 0,200us,2ms"))
	if err != nil || len(o.cells) != 36 {
		t.Errorf("%d cells, %v", len(o.cells), err)
	}
}

// All contenders take part that have what they need; those of another checkout need it.
func TestPeers(t *testing.T) {
	for _, c := range []struct {
		args string
		want []string
	}{
		{"", []string{peerPython, peerAgain, peerGo, peerGloo, peerOpenMPI}},
		{"-base /other", allPeers},
		{"-peers go,gloo", []string{peerGo, peerGloo}},
		{"-peers base,go -base /other", []string{peerBase, peerGo}},
	} {
		o, err := parse(strings.Fields(c.args))
		if err != nil || !slices.Equal(o.peers, c.want) {
			t.Errorf("%s: %v, %v, want %v", c.args, o, err, c.want)
			continue
		}
		for _, p := range allPeers {
			if o.wants(p) != slices.Contains(c.want, p) {
				t.Errorf("%s: wants %s is %v", c.args, p, o.wants(p))
			}
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for args, want := range map[string]string{
		"-hosts 1":                    "-hosts 1: a number from 2 to 64",
		"-hosts 65":                   "-hosts 65: a number from 2 to 64",
		"-hosts 2,x":                  "-hosts x: a number",
		"-ranks 0":                    "-ranks 0: a number from 1 to 64",
		"-rate 10":                    "-rate 10: a rate such as",
		"-rate fastgbit":              "-rate fastgbit: a rate",
		"-rate -1gbit":                "-rate -1gbit: a rate",
		"-rate 2000gbit":              "-rate 2000gbit: a rate",
		"-rate 0.1mbit":               "-rate 0.1mbit: a rate",
		"-delay 5":                    "-delay 5: a time",
		"-delay 2s":                   "-delay 2s: a time from 0 to 1s",
		"-delay=-1ms":                 "-delay -1ms: a time",
		"-peers go,nccl":              `-peers: "nccl" is none of python, again`,
		"-peers base":                 "-peers base: -base says which checkout",
		"-peers base-go":              "-peers base-go: -base says which checkout",
		"-rounds 0":                   "-rounds and -max-size need at least 1",
		"-max-size 0":                 "-rounds and -max-size need at least 1",
		"-works 4,7":                  `-works: "7" is neither a size`,
		"-works 2KB":                  `-works: "2KB" is neither`,
		"-works 2Mi":                  `-works: "2Mi" is neither`,
		"-works 2GiB":                 `-works: "2GiB" is neither`,
		"-works 1025MiB":              `-works: "1025MiB" is neither`,
		"-works -4":                   `-works: "-4" is neither`,
		"-works resnet":               `-works: "resnet" is neither a size, such as 4, 64KiB or 16MiB, of whole floats`,
		"-works resnet50 -plot a.svg": "-plot draws the times of single tensors: -works has none",
		"4":                           `unexpected argument "4"`,
		"-rounds=1 -turn x":           "-turn",
	} {
		if _, err := parse(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	if _, err := parse([]string{"-help"}); !errors.Is(err, flag.ErrHelp) {
		t.Error(err)
	}
	o, err := parse([]string{"-max-size", "2", "-json", "a", "-page", "b", "-plot", "c", "-time", "1m", "-rounds", "3"})
	if err != nil || len(o.works) != 9 || o.json != "a" || o.page != "b" || o.plot != "c" || o.time != time.Minute ||
		o.rounds != 3 {
		t.Errorf("%+v, %v", o, err)
	}
	if code := run([]string{"-hosts", "1"}); code != 2 {
		t.Errorf("code %d", code)
	}
}

// The default works grow, and -max-size leaves out those above it.
func TestWorks(t *testing.T) {
	all := defaultWorks()
	for _, w := range all {
		if w.Inner < 1 || w.Bytes() < 4 || w.List != (len(w.Sizes) > 1) {
			t.Errorf("%+v", w)
		}
	}
	if len(all) != 12 || all[8].Bytes() != 64<<20 || all[11].Bytes() != 4*25557032 {
		t.Errorf("%d works", len(all))
	}
	for args, want := range map[string]string{
		"-max-size 1": "4 B, in a loop; 4 B after a barrier; 1 KiB; 4 KiB; 16 KiB; 64 KiB; 1 MiB; " +
			"200 tensors of 1 KiB; 1,000 tensors of 4 B",
		"-works 64KiB,4,barrier": "64 KiB; 4 B, in a loop; 4 B after a barrier",
		"-works 8,256KiB,16MiB,resnet50,1000x4B,200x1KiB -max-size 1": "8 B; 256 KiB; 16 MiB; ResNet-50's " +
			"gradients; 1,000 tensors of 4 B; 200 tensors of 1 KiB",
	} {
		o, err := parse(strings.Fields(args))
		if err != nil {
			t.Error(err)
			continue
		}
		var names []string
		for _, w := range o.works {
			names = append(names, w.Name)
		}
		if got := strings.Join(names, "; "); got != want {
			t.Errorf("%s: %s", args, got)
		}
	}
	for bytes, want := range map[int]int{4: 32, 1 << 10: 16, 4 << 10: 16, 16 << 10: 8, 64 << 10: 8, 256 << 10: 2,
		1 << 20: 1, 64 << 20: 1} {
		if w := oneTensor(bytes); w.Inner != want || w.Bytes() != bytes {
			t.Errorf("%+v for %d bytes", w, bytes)
		}
	}
}
