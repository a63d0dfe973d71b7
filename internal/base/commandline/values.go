package commandline

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
)

// misread is the error for an option whose value cannot be read: the option with the text before its value, what it
// got, and what it wants.
type misread struct{ option, got, want string }

func (m *misread) Error() string {
	got := shown(m.got)
	if got == "" || strings.Contains(got, " ") {
		got = strconv.Quote(m.got)
	}
	return fmt.Sprintf("%s%s: %s is needed", m.option, got, m.want)
}

// MissingValue is the error for an option that needs a value, and has none.
func MissingValue(option string) error { return fmt.Errorf("%s: a value is missing", option) }

// EmptyValue is the error for an option whose value is empty.
func EmptyValue(option string) error {
	return fmt.Errorf("%s: its value is empty: is a variable in the command not set?", option)
}

// Plain puts the error of a parser that has read args into plain words.
func Plain(err error, args []string) error {
	if m := (*misread)(nil); errors.As(err, &m) {
		return m
	}
	if err != nil && strings.HasPrefix(err.Error(), "bool value ") { // kong says so only of a negated switch
		for _, arg := range args {
			name, value, given := strings.Cut(arg, "=")
			if _, ok := truth(value); given && !ok && strings.HasPrefix(name, "--no-") {
				return &misread{name + "=", value, truths}
			}
		}
	}
	return err
}

// wants are the numbers that options want, by the name of the value, if the type does not say enough.
var wants = map[string]string{
	"SECONDS": "a whole number of seconds",
	"MS":      "a number of milliseconds",
	"MIB":     "a whole number of MiB",
	"PORT":    "the number of a port",
}

// numbers read values that are numbers or switches. Numbers are decimal: 010 is ten.
func numbers() []kong.Option {
	whole := reading("a whole number", func(text string, target reflect.Value) error {
		n, err := strconv.ParseInt(text, 10, target.Type().Bits())
		target.SetInt(n)
		return err
	})
	return []kong.Option{
		kong.KindMapper(reflect.Int, whole),
		kong.KindMapper(reflect.Float64, reading("a number", func(text string, target reflect.Value) error {
			x, err := strconv.ParseFloat(text, 64)
			if strings.ContainsAny(text, "xX_") {
				err = strconv.ErrSyntax
			}
			target.SetFloat(x)
			return err
		})),
		kong.KindMapper(reflect.Bool, toggle{}),
	}
}

// reading reads a value by a function; want is the function's input in words.
func reading(want string, read func(text string, target reflect.Value) error) kong.Mapper {
	return kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		text := ""
		var err error
		if next, ok := ctx.Scan.Peek().Value.(string); ok && negative(next) {
			text = next // kong takes it for an option
			ctx.Scan.Pop()
		} else {
			err = ctx.Scan.PopValueInto("value", &text)
		}
		if err == nil {
			err = read(text, target)
		}
		if err == nil {
			return nil
		}
		want := want
		if flag := ctx.Value.Flag; flag != nil && wants[flag.PlaceHolder] != "" {
			want = wants[flag.PlaceHolder]
		}
		if errors.Is(err, strconv.ErrRange) {
			want += " that is not so large"
		}
		return &misread{asTyped(ctx.Value) + " ", text, want}
	})
}

// negative reports whether text is a number below 0.
func negative(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	return strings.HasPrefix(text, "-") && err == nil
}

// toggle is an option that needs no value.
type toggle struct{}

// IsBool tells kong that the option needs no value.
func (toggle) IsBool() bool { return true }

// Decode sets the option to true, or to the value after its "=".
func (toggle) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	if ctx.Scan.Peek().Type != kong.FlagValueToken {
		target.SetBool(true)
		return nil
	}
	text := fmt.Sprint(ctx.Scan.Pop().Value)
	value, ok := truth(text)
	if !ok {
		return &misread{asTyped(ctx.Value) + "=", text, truths}
	}
	target.SetBool(value)
	return nil
}

const truths = "true or false"

func truth(text string) (value, ok bool) {
	switch strings.ToLower(text) {
	case "true", "1", "yes":
		return true, true
	case "false", "0", "no":
		return false, true
	}
	return false, false
}

// asTyped is the option in the form in which users type it.
func asTyped(v *kong.Value) string {
	if name := v.Tag.Get("onedash"); name != "" {
		return "-" + name
	}
	return "--" + v.Name
}
