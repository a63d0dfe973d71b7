package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorovod/gorovod/internal/base/version"
)

// The parts of a bill in CycloneDX 1.6 that this program uses.
type (
	document struct {
		Schema       string       `json:"$schema"`
		Format       string       `json:"bomFormat"`
		SpecVersion  string       `json:"specVersion"`
		Serial       string       `json:"serialNumber"`
		Version      int          `json:"version"`
		Metadata     metadata     `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}
	metadata struct {
		Timestamp string    `json:"timestamp,omitempty"`
		Component component `json:"component"`
	}
	component struct {
		Type     string     `json:"type"`
		Ref      string     `json:"bom-ref"`
		Name     string     `json:"name"`
		Version  string     `json:"version,omitempty"`
		Hashes   []hash     `json:"hashes,omitempty"`
		Licences []licence  `json:"licenses,omitempty"`
		PURL     string     `json:"purl,omitempty"`
		Facts    []property `json:"properties,omitempty"`
	}
	hash struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	}
	licence struct {
		Licence struct {
			ID string `json:"id"`
		} `json:"license"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	dependency struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn"`
	}
)

// bill describes files, programs and libraries, and the modules in them, as Go has noted there. It is the same for the
// same files; its time is SOURCE_DATE_EPOCH, if that is set.
func bill(modules []*module, files []string) (string, error) {
	d := document{Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX",
		SpecVersion: "1.6", Version: 1}
	d.Metadata.Component = component{Type: "application", Ref: "gorovod", Name: "gorovod", Version: version.Version,
		Licences: licences("Apache-2.0"), PURL: "pkg:pypi/gorovod@" + version.Version}
	if epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
		d.Metadata.Timestamp = time.Unix(epoch, 0).UTC().Format(time.RFC3339)
	}
	top := dependency{Ref: "gorovod"}
	parts := map[string]component{}
	all := sha256.New()
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		sum := sha256.Sum256(content)
		all.Write(sum[:])
		name := filepath.Base(file)
		c := component{Type: "file", Ref: "file:" + name, Name: name, Licences: licences("Apache-2.0"),
			Hashes: []hash{{"SHA-256", hex.EncodeToString(sum[:])}}}
		in, err := linkedInto(file, modules)
		if err != nil {
			return "", err
		}
		for _, p := range in {
			parts[p.Ref] = p
		}
		d.Components = append(d.Components, c)
		d.Dependencies = append(d.Dependencies, dependency{c.Ref, refs(in)})
		top.DependsOn = append(top.DependsOn, c.Ref)
	}
	for _, ref := range slices.Sorted(maps.Keys(parts)) {
		d.Components = append(d.Components, parts[ref])
		d.Dependencies = append(d.Dependencies, dependency{ref, []string{}})
	}
	d.Dependencies = append(d.Dependencies, top)
	id := all.Sum(nil)
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // a UUID of our own scheme (RFC 9562, version 8)
	d.Serial = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:16])
	text, err := json.MarshalIndent(d, "", "  ")
	return string(text) + "\n", err
}

// linkedInto lists the modules in a file that Go has built; none for other files.
func linkedInto(file string, modules []*module) (all []component, err error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		if strings.Contains(err.Error(), "not a Go executable") {
			return nil, nil
		}
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	find := func(path string) *module {
		if i := slices.IndexFunc(modules, func(m *module) bool { return m.Path == path }); i >= 0 {
			return modules[i]
		}
		return nil
	}
	std := find(standard)
	if std == nil {
		return nil, errors.New("the standard library is not there")
	}
	number := strings.TrimPrefix(info.GoVersion, "go")
	all = append(all, component{Type: "library", Ref: "pkg:golang/std@" + number, Name: "std", Version: number,
		Licences: licences(std.Licences...), PURL: "pkg:golang/std@" + number})
	for _, dep := range info.Deps {
		m := find(dep.Path)
		if m == nil || m.Version != dep.Version {
			return nil, fmt.Errorf("%s has %s %s, which this checkout has not: build it again", file, dep.Path,
				dep.Version)
		}
		purl := "pkg:golang/" + dep.Path + "@" + dep.Version
		all = append(all, component{Type: "library", Ref: purl, Name: dep.Path, Version: dep.Version,
			Licences: licences(m.Licences...),
			PURL:     purl, Facts: []property{{"go:sum", dep.Sum}}})
	}
	return all, nil
}

func licences(ids ...string) (all []licence) {
	for _, id := range ids {
		var l licence
		l.Licence.ID = id
		all = append(all, l)
	}
	return all
}

func refs(of []component) []string {
	all := []string{}
	for _, c := range of {
		all = append(all, c.Ref)
	}
	return all
}
