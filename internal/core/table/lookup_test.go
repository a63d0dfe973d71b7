package table

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/gorovod/gorovod/internal/core/slots"
)

// FuzzLookup compares lookups with maps. One Lookup serves all batches, as in a program.
func FuzzLookup(f *testing.F) {
	f.Add([]byte("abcdefghabcdefgh12345678"), uint8(2), true)
	f.Add([]byte{}, uint8(0), false)
	f.Add(make([]byte, 800), uint8(5), false)
	var l Lookup
	f.Fuzz(func(t *testing.T, p []byte, members uint8, padded bool) {
		owners := slots.Assign(int(members)%9 + 1)
		var keys []int64
		for len(p) >= 8 {
			keys, p = append(keys, int64(binary.LittleEndian.Uint64(p))), p[8:]
		}
		padding := Padding{}
		if padded && len(keys) > 0 {
			padding = Padding{true, keys[len(keys)/2]}
		}
		for range 2 {
			if err := l.Fill(&Options{}, owners, keys, padding); err != nil {
				t.Fatal(err)
			}
			checkLookup(t, &l, owners, keys, padding)
			keys = keys[:len(keys)/2]
		}
	})
}

func checkLookup(t *testing.T, l *Lookup, owners *slots.Map, keys []int64, padding Padding) {
	distinct := map[int64]bool{}
	for i, key := range keys {
		if padding.Set && key == padding.Key {
			if l.Index[i] != int64(len(l.Keys)) {
				t.Fatalf("the padding at %d is at %d of %d", i, l.Index[i], len(l.Keys))
			}
			continue
		}
		distinct[key] = true
		if l.Keys[l.Index[i]] != key {
			t.Fatalf("key %d is at %d, where key %d is", key, l.Index[i], l.Keys[l.Index[i]])
		}
	}
	if len(l.Keys) != len(distinct) || len(l.Index) != len(keys) || len(l.Counts) != owners.Size() {
		t.Fatalf("%d keys, %d of them distinct, %d owners: there are %d, %d and %d", len(keys), len(distinct),
			owners.Size(), len(l.Index), len(l.Keys), len(l.Counts))
	}
	at := 0
	for owner, n := range l.Counts {
		for range n {
			if got := owners.OwnerOf(slots.Hash(l.Keys[at])); got != owner {
				t.Fatalf("key %d of member %d is among those of member %d", l.Keys[at], got, owner)
			}
			at++
		}
	}
	if at != len(l.Keys) {
		t.Fatalf("the members own %d of %d keys", at, len(l.Keys))
	}
}

func TestKeysOutOfRange(t *testing.T) {
	var l Lookup
	owners := slots.Assign(2)
	for _, c := range []struct {
		keys    []int64
		padding Padding
		says    string
	}{
		{[]int64{0, 99}, Padding{}, ""},
		{[]int64{0, 100, 5}, Padding{}, "key 100 at position 1 is not one of 0 to 99"},
		{[]int64{-1}, Padding{}, "key -1 at position 0"},
		{[]int64{-1}, Padding{true, -1}, ""},
	} {
		err := l.Fill(&Options{Keys: 100}, owners, c.keys, c.padding)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v", c.keys, err)
		}
	}
}

func TestOptions(t *testing.T) {
	for says, change := range map[string]func(o *Options){
		"":                            func(*Options) {},
		"the name has 0 bytes":        func(o *Options) { o.Name = "" },
		"dim is 0":                    func(o *Options) { o.Dim = 0 },
		"dim is 65537":                func(o *Options) { o.Dim = MaxDim + 1 },
		"num_embeddings is -1":        func(o *Options) { o.Keys = -1 },
		`init is "ones"`:              func(o *Options) { o.Init = "ones" },
		`optimizer is "adamw"; possi`: func(o *Options) { o.Optimizer = "adamw" },
		"lr is -1":                    func(o *Options) { o.Rate = -1 },
		"beta1 is 1; it must be a number from 0 on, below 1": func(o *Options) { o.Beta1 = 1 },
		"ftrl divides by it": func(o *Options) { o.Optimizer, o.Rate = FTRL, 0 },
	} {
		o := options(Adam, 4)
		change(&o)
		if err := o.Check(); (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("want %q: %v", says, err)
		}
	}
	a, b := options(Adam, 4), options(Adam, 4)
	if name, _, _ := a.Difference(&b); name != "" {
		t.Errorf("equal options differ in %s", name)
	}
	b.Beta2 = 0.5
	if name, own, others := a.Difference(&b); name != "beta2" || own != float32(0.999) || others != float32(0.5) {
		t.Errorf("they differ in %s: %v, %v", name, own, others)
	}
	b.Dim = 5
	if name, own, others := a.Difference(&b); name != "dim" || own != 4 || others != 5 {
		t.Errorf("they differ in %s: %v, %v", name, own, others)
	}
}
