package notice

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	// azurePath is where Azure's machines find what is planned for them. The answer is a list, at all times.
	azurePath = "/metadata/scheduledevents"
	// machinePath is where they find their own name, as the list has it.
	machinePath    = "/metadata/instance/compute/name"
	machineVersion = "2021-02-01"
	// azureTimeout is how long a request may take: Azure begins to plan for a machine's programs when one of them asks
	// for the first time, and may take two minutes to answer.
	azureTimeout = 130 * time.Second
)

// azureEnds are the types of events after which a machine, or all that runs on it, is gone. A Freeze only pauses it.
var azureEnds = []string{"Preempt", "Terminate", "Reboot", "Redeploy"}

// azureEvents is the list. It has the events of all machines of a scale set.
type azureEvents struct {
	Events *[]struct {
		EventType, NotBefore string
		Resources            []string // names of machines
	}
}

// azure reports whether the URL is that of Azure's list.
func (b *board) azure() bool {
	u, err := url.Parse(b.url)
	return err == nil && strings.EqualFold(strings.TrimSuffix(u.Path, "/"), azurePath)
}

// scheduled looks in Azure's list for an event that ends this machine.
func (b *board) scheduled(list string) (text string, there bool, err error) {
	var answer azureEvents
	if err := json.Unmarshal([]byte(list), &answer); err != nil || answer.Events == nil {
		return "", false, fmt.Errorf("%s answers no list of events, but %q", b.url, clip(list))
	}
	for _, e := range *answer.Events {
		mine := slices.ContainsFunc(e.Resources, func(name string) bool { return strings.EqualFold(name, b.machine) })
		if !mine || !slices.Contains(azureEnds, e.EventType) {
			continue
		}
		when := ""
		if e.NotBefore != "" { // empty once the event has begun
			when = ", not before " + e.NotBefore
		}
		return fmt.Sprintf("%q", fmt.Sprintf("%s of %s%s", e.EventType, b.machine, when)), true, nil
	}
	return "", false, nil
}

// fetchMachine gets this machine's name from Azure's service.
func (b *board) fetchMachine() (string, error) {
	u, err := url.Parse(b.url)
	if err != nil {
		return "", err
	}
	at := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: machinePath,
		RawQuery: url.Values{"api-version": {machineVersion}, "format": {"text"}}.Encode()}).String()
	code, name, err := b.ask(http.MethodGet, at, map[string]string{"Metadata": "true"})
	if err == nil && (code != http.StatusOK || name == "") {
		err = unanswered(at, code, name)
	}
	if err != nil {
		return "", fmt.Errorf("the events are those of several machines, and the name of this one is not to be "+
			"had: %w", err)
	}
	return name, nil
}
