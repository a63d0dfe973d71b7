package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTheNoticesAreThoseOfWhatIsLinked(t *testing.T) {
	modules, err := linked()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../THIRD_PARTY_NOTICES.txt")
	if err != nil {
		t.Fatal(err)
	}
	if want := notices(modules); string(got) != want {
		t.Error("THIRD_PARTY_NOTICES.txt is not what is linked; rewrite it with: go generate ./internal/tools/notices")
	}
	for _, says := range []string{"Permission is hereby granted, free of charge", "Copyright 2009 The Go Authors",
		"Bigelow & Holmes"} {
		if !strings.Contains(string(got), says) {
			t.Errorf("it has no %q", says)
		}
	}
}

func TestIdentify(t *testing.T) {
	for _, c := range []struct{ text, ids, err string }{
		{"Permission is hereby\nGRANTED, free of charge … this permission notice shall be included", "MIT", ""},
		{"Apache License\n   Version 2.0", "Apache-2.0", ""},
		{bsd + " … neither the name of", "BSD-3-Clause", ""},
		{bsd + " … names of its contributors … neither the name of", "BSD-3-Clause", ""},
		{bsd, "BSD-2-Clause", ""},
		{"All rights reserved.", "", ""},
		{"GNU Lesser General\nPublic License", "", `it speaks of a "general public license"`},
		{bsd + ", under the Mozilla Public License", "", `it speaks of a "mozilla public license"`},
	} {
		ids, err := identify(c.text)
		if err == nil {
			err = errors.New("")
		}
		if got := strings.Join(ids, " "); got != c.ids || err.Error() != c.err {
			t.Errorf("%q: %q, %v", c.text, got, err)
		}
	}
	if err := (&module{Path: "a", Texts: []text{{"LICENSE", "All rights reserved."}}}).judge(); err == nil {
		t.Error("a module without a permissive licence is taken")
	}
}

// The bill of a real program has the modules in it, and no others, with their licences.
func TestBill(t *testing.T) {
	program := filepath.Join(t.TempDir(), "generate")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program,
		"../../../../cmd/gorovod") // built as make build does
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	other, err := exec.LookPath("true") // a program without Go
	if err != nil {
		t.Fatal(err)
	}
	modules, err := linked()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	bills := [2]string{}
	for i := range bills {
		if bills[i], err = bill(modules, []string{program, other}); err != nil {
			t.Fatal(err)
		}
	}
	if bills[0] != bills[1] {
		t.Error("the same files give two bills")
	}
	var d document
	if err := json.Unmarshal([]byte(bills[0]), &d); err != nil {
		t.Fatal(err)
	}
	if d.Metadata.Timestamp != "2023-11-14T22:13:20Z" {
		t.Errorf("time %s", d.Metadata.Timestamp)
	}
	var names []string
	for _, c := range d.Components {
		names = append(names, c.Name)
		if len(c.Licences) == 0 {
			t.Errorf("%s has no licence", c.Name)
		}
	}
	for _, name := range []string{"generate", "true", "std", "github.com/alecthomas/kong"} {
		if !slices.Contains(names, name) {
			t.Errorf("no %s in %v", name, names)
		}
	}
	if slices.Contains(names, "pgregory.net/rapid") {
		t.Error("a module of the tests alone is in it")
	}
	if _, err := bill(modules[:1], []string{program}); err == nil {
		t.Error("a program with modules that nobody has judged is taken")
	}
}
