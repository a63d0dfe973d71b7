package engine

import "strings"

// fact is part of a note: what a driver's decision depends on.
type fact struct {
	name  string
	value any
}

// spinNote is what spin has done, for a note.
func spinNote(again, gave bool) string {
	switch {
	case !again:
		return "rest"
	case gave:
		return "yield"
	}
	return "poll"
}

// noteLook notes what a look of a driver has found and how it goes on. The caller holds the role.
func (e *Engine) noteLook(actor string, worked bool, action string) {
	event := "nothing"
	if worked {
		event = "worked"
	} else if e.polled() {
		event += " polled"
	}
	if actor == "aside" {
		event += e.notes.facts(fact{"midway", e.midway()}, fact{"lazy", e.lazy()}, fact{"spinning", e.spinning()})
	}
	e.notes.add(actor, event, action)
}

// driverNote names who drives for en.
func driverNote(en *Entry) string {
	if en != nil {
		return "wait"
	}
	return "shutdown"
}

// noteSleep notes for how long a driver is going to sleep, and the facts.
func (e *Engine) noteSleep(actor, action string) {
	behind, observes := false, false
	for _, l := range *e.lanes.Load() {
		behind = behind || l.isBehind()
		observes = observes || l.observes()
	}
	e.notes.add(actor, strings.TrimSpace("rest"+e.notes.facts(fact{"polled", e.polled()}, fact{"behind", behind},
		fact{"observes", observes})), action)
}
