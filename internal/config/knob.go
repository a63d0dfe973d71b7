package config

import "fmt"

// Knob is one variable.
type Knob struct {
	Name  string
	Class Class
	// Doc is the meaning of an implemented knob, and for the others the reason of their class.
	Doc string
	// By is the program that reads it; empty for the engine.
	By string
	// Agreed knobs must be the same on all ranks: rank 0's value counts.
	Agreed bool
	// Secret values are never shown.
	Secret bool

	section section
	setting
	// check says what is wrong with the value of a variable that By reads; nil if any value is valid.
	check func(v string) error
}

// Class says what a variable does if it is set.
type Class int

const (
	Implemented Class = iota
	Meaningless       // accepted without effect, because there is nothing here that it could change
	Refused           // setting it to what asks for something is an error
)

func (c Class) String() string {
	switch c {
	case Implemented:
		return "implemented"
	case Meaningless:
		return "meaningless"
	case Refused:
		return "refused"
	}
	return fmt.Sprintf("Class(%d)", int(c))
}

// section is the place of an implemented knob in the documentation.
type section int

const (
	tuning section = iota
	reports
	placement // set by horovodrun for each rank
	elsewhere // read by horovodrun or Python
)

// setting reads and shows a knob. Both functions are nil for a knob that the engine does not read; show is nil for one
// without a field in Config.
type setting struct {
	// parse sets the field from text that is not empty. With a remark as error, it has set the field.
	parse func(c *Config, v string) error
	// show is the inverse: parse(c, show(c)) changes nothing. Empty text means that the field is not set; parse never
	// gets it.
	show func(c *Config) string
}

// remark is an error of parse about a value that works, but perhaps differently than its author meant.
type remark string

func (r remark) Error() string { return string(r) }

// isSet is shown instead of a secret.
const isSet = "set"

// Default is the value without the variable, empty for none.
func (k *Knob) Default() string {
	if k.show == nil {
		return ""
	}
	return k.show(defaults())
}

// Origin says who has set a value.
type Origin int

const (
	FromDefault Origin = iota
	FromEnvironment
	FromRankZero // adopted, since it differed here
)

func (o Origin) String() string {
	switch o {
	case FromDefault:
		return "default"
	case FromEnvironment:
		return "environment"
	case FromRankZero:
		return "rank 0"
	}
	return fmt.Sprintf("Origin(%d)", int(o))
}

// Setting is the value of one Knob in a Config.
type Setting struct {
	*Knob
	// Value is the value in effect, or the variable's value for a knob without effect; empty for none, "set" for a
	// secret.
	Value  string
	Origin Origin
	// Err says why the variable is invalid. It is part of Config.Err.
	Err error
}

// Settings lists all knobs, in the order of the table.
func (c *Config) Settings() []Setting {
	all := make([]Setting, len(Knobs))
	for i := range Knobs {
		k := &Knobs[i]
		s := Setting{Knob: k}
		r := c.readings[k.Name]
		if r != nil {
			s.Value, s.Origin, s.Err = r.text, FromEnvironment, r.err
			if r.adopted {
				s.Origin = FromRankZero
			}
		}
		if k.show != nil && s.Err == nil && !k.Secret {
			s.Value = printable(k.show(c))
		}
		all[i] = s
	}
	return all
}
