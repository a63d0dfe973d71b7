package main

import "testing"

// Neither the traffic on a leader's link nor the number of the coordinator's decisions depends on how many ranks a host
// has. Cached tensors cost the coordinator nothing.
func TestALinkDoesNotGrowWithTheRanksOfAHost(t *testing.T) {
	for _, cached := range []bool{false, true} {
		one, err := simulate(shape{hosts: 12, perHost: 1, tensors: 20, cached: cached})
		if err != nil {
			t.Fatal(err)
		}
		many, err := simulate(shape{hosts: 12, perHost: 6, tensors: 20, cached: cached})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("cached %v: one rank a host %+v, six %+v", cached, one, many)
		// How many tensors share a frame varies by chance, and each further frame costs a byte.
		if slack := 20 * 1; one.linkUp == 0 || many.linkUp > one.linkUp+slack {
			t.Errorf("cached %v: %d bytes up with one rank on a host, %d with six", cached, one.linkUp, many.linkUp)
		}
		if cached && many.requests != 0 {
			t.Errorf("%d requests although all is cached", many.requests)
		}
		if !cached && many.requests-one.requests > 5*20 { // the members of the root's own host arrive one by one
			t.Errorf("%d requests with one rank on a host, %d with six", one.requests, many.requests)
		}
	}
}

func TestCommandLine(t *testing.T) {
	for _, o := range []options{{ranks: 0}, {ranks: -5}, {ranks: 15}, {ranks: 16, only: []string{"smal"}}} {
		if o.check(nil) == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	o := options{ranks: 16, only: parts}
	if o.check([]string{"512"}) == nil {
		t.Error("an argument is taken")
	}
	if err := o.check(nil); err != nil {
		t.Error(err)
	}
}
