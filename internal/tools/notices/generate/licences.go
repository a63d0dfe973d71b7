package main

import (
	"fmt"
	"slices"
	"strings"
)

// known are the licences whose code may be linked, each with phrases of its text.
var known = []struct {
	id      string // its SPDX identifier
	phrases []string
	unless  string
}{
	{id: "MIT", phrases: []string{"permission is hereby granted, free of charge",
		"this permission notice shall be included"}},
	{id: "Apache-2.0", phrases: []string{"apache license", "version 2.0"}},
	{id: "BSD-3-Clause", phrases: []string{bsd, "names of its contributors"}},
	{id: "BSD-3-Clause", phrases: []string{bsd, "neither the name of"}},
	{id: "BSD-2-Clause", phrases: []string{bsd}, unless: "neither the name of"},
	{id: "ISC", phrases: []string{"permission to use, copy, modify, and/or distribute this software"}},
}

const bsd = "redistribution and use in source and binary forms"

// forbidden are phrases of licences that ask for more than a notice.
var forbidden = []string{"general public license", "mozilla public license", "business source license",
	"server side public license",
	"creative commons", "eclipse public license", "non-commercial"}

// judge finds the module's licences, and refuses a licence that is not known to be permissive.
func (m *module) judge() error {
	for _, t := range m.Texts {
		ids, err := identify(t.Content)
		if err != nil {
			return fmt.Errorf("%s %s, %s: %w", m.Path, m.Version, t.Name, err)
		}
		m.Licences = append(m.Licences, ids...)
	}
	slices.Sort(m.Licences)
	m.Licences = slices.Compact(m.Licences)
	if len(m.Licences) == 0 {
		return fmt.Errorf("%s %s: no licence that is known to be permissive; a lawyer or another module is needed",
			m.Path, m.Version)
	}
	return nil
}

// identify names the licences in a text.
func identify(content string) (ids []string, err error) {
	plain := strings.Join(strings.Fields(strings.ToLower(content)), " ")
	for _, phrase := range forbidden {
		if strings.Contains(plain, phrase) {
			return nil, fmt.Errorf("it speaks of a %q", phrase)
		}
	}
	for _, k := range known {
		has := func(phrase string) bool { return strings.Contains(plain, phrase) }
		lacks := func(phrase string) bool { return !has(phrase) }
		if slices.ContainsFunc(k.phrases, lacks) || k.unless != "" && has(k.unless) {
			continue
		}
		if !slices.Contains(ids, k.id) {
			ids = append(ids, k.id)
		}
	}
	return ids, nil
}

var rule = strings.Repeat("=", 100)

// notices is the file that is distributed with the programs.
func notices(modules []*module) string {
	var b strings.Builder
	b.WriteString("gorovod is under the Apache License 2.0. Its programs and libraries contain code of " +
		"others, under\n" +
		"the licences below.\n\n")
	for _, m := range modules {
		fmt.Fprintf(&b, "  %s: %s\n", m.name(), strings.Join(m.Licences, ", "))
	}
	for _, m := range modules {
		for _, t := range m.Texts {
			fmt.Fprintf(&b, "\n%s\n%s, %s\n%s\n\n%s\n", rule, m.name(), t.Name, rule, clean(t.Content))
		}
	}
	return b.String()
}

func (m *module) name() string {
	if m.Path == standard {
		return "Go's standard library"
	}
	return m.Path + " " + m.Version
}

// clean removes spaces at the ends of lines, and uses this system's line ends.
func clean(content string) string {
	lines := strings.Split(strings.ReplaceAll(content, "\r\n", "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " \t")
	}
	return strings.Join(lines, "\n")
}
