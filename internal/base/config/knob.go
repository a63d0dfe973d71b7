package config

import "fmt"

// Knob is one variable.
type Knob struct {
	Name  string
	Class Class
	// Doc is the meaning of an implemented knob; for other knobs, the reason for their class.
	Doc string
	// By is the program that reads the variable; empty for the engine.
	By string
	// Agreed: all ranks must have the same value, which is rank 0's.
	Agreed bool
	// Secret: the value is never shown.
	Secret bool

	section section
	setting
	// check says what is wrong with a value, for a variable that By reads; nil if any value is valid.
	check func(v string) error
}

// Class says what a variable does if it is set.
type Class int

const (
	Implemented Class = iota
	Meaningless       // accepted without effect, because there is nothing here for it to change; some warn of it
	Refused           // a value that asks for something is an error
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

// setting reads and shows a knob. Both functions are nil for a knob that the engine does not read; show is nil for a
// knob without a field in Config.
type setting struct {
	// parse sets the field from text that is not empty. If the error is a remark, parse has set the field.
	parse func(c *Config, v string) error
	// show is the inverse: parse(c, show(c)) changes nothing. Empty text means that the field is not set; parse never
	// gets empty text.
	show func(c *Config) string
}

// remark is parse's error for a value that works, but perhaps not as its author meant.
type remark string

func (r remark) Error() string { return string(r) }

// isSet is shown instead of a secret.
const isSet = "set"

// Default is the value if the variable is not set; empty for none.
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
	FromRankZero // adopted, because this rank had another value
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
	// Value is the value in effect; for a knob without effect, the variable's value. Empty for none, "set" for a
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
