package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/gorovod/gorovod/internal/base/logging"
)

// whole is a whole number in a range.
func whole(field func(*Config) *int, least, most int) setting {
	return setting{
		parse: func(c *Config, v string) error {
			n, err := strconv.Atoi(strings.TrimSpace(v))
			if err != nil || n < least || n > most {
				return fmt.Errorf("a whole number from %d to %d is needed", least, most)
			}
			*field(c) = n
			return nil
		},
		show: func(c *Config) string { return strconv.Itoa(*field(c)) },
	}
}

// size is a number of bytes.
func size(field func(*Config) *int64) setting {
	return setting{
		parse: func(c *Config, v string) error {
			n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			if err != nil || n < 0 {
				return fmt.Errorf("a number of bytes, 0 or more, is needed")
			}
			*field(c) = n
			return nil
		},
		show: func(c *Config) string { return strconv.FormatInt(*field(c), 10) },
	}
}

// fraction is a number from 0 to 1.
func fraction(field func(*Config) *float64) setting {
	return setting{
		parse: func(c *Config, v string) error {
			f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
			if err != nil || !(f >= 0 && f <= 1) {
				return fmt.Errorf("a number from 0 to 1 is needed")
			}
			*field(c) = f
			return nil
		},
		show: func(c *Config) string { return strconv.FormatFloat(*field(c), 'g', -1, 64) },
	}
}

// duration is a number of units, which may have decimals. zero: it may be 0. need is the error's text for other
// numbers.
func duration(field func(*Config) *time.Duration, unit time.Duration, most float64, zero bool, need string) setting {
	return setting{
		parse: func(c *Config, v string) error {
			f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
			if d := math.Round(f * float64(unit)); err == nil && f >= 0 && f <= most && (d > 0 || zero) {
				*field(c) = time.Duration(d)
				return nil
			}
			return fmt.Errorf("%s is needed", need)
		},
		show: func(c *Config) string { return units(*field(c), unit) },
	}
}

// units returns d as a number of units, exact enough to get d back from it.
func units(d, unit time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(unit), 'f', -1, 64)
}

func seconds(d time.Duration) string { return units(d, time.Second) }

func text(field func(*Config) *string) setting {
	return setting{
		parse: func(c *Config, v string) error { *field(c) = v; return nil },
		show:  func(c *Config) string { return *field(c) },
	}
}

// list is text with commas between the elements. check says what is wrong with an element.
func list(field func(*Config) *[]string, check func(v string) error) setting {
	return setting{
		parse: func(c *Config, v string) error {
			var all []string
			for _, one := range strings.Split(v, ",") {
				one = strings.TrimSpace(one)
				if err := check(one); err != nil {
					return err
				}
				all = append(all, one)
			}
			*field(c) = all
			return nil
		},
		show: func(c *Config) string { return strings.Join(*field(c), ",") },
	}
}

// hostPort checks one address.
func hostPort(v string) error {
	host, port, err := net.SplitHostPort(v)
	if err != nil || host == "" {
		return fmt.Errorf("%q: HOST:PORT is needed, with brackets around an IPv6 address", v)
	}
	return checkPort(port)
}

func checkPort(v string) error {
	if n, err := strconv.ParseUint(v, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("a port from 1 to 65535 is needed")
	}
	return nil
}

// parseGPU reads GOROVOD_GPU.
func parseGPU(c *Config, v string) error {
	switch g := GPU(v); g {
	case GPUAuto, GPUNCCL, GPUStaged, GPUOff:
		c.GPU = g
		return nil
	}
	return fmt.Errorf("auto, nccl, staged or off is needed")
}

// boolean is 0 or 1.
func boolean(field func(*Config) *bool) setting {
	return setting{
		parse: func(c *Config, v string) error {
			*field(c) = truth(v)
			if !numeric(v) {
				return remark("it is not a number, so it counts as 0, as in Horovod; 1 turns it on")
			}
			return nil
		},
		show: func(c *Config) string {
			if *field(c) {
				return "1"
			}
			return "0"
		},
	}
}

// protection is a boolean that a typing error never turns off: it refuses text that is no number.
func protection(field func(*Config) *bool) setting {
	s := boolean(field)
	s.parse = func(c *Config, v string) error {
		if !numeric(v) {
			return errors.New("1, which turns it on, or 0 is needed")
		}
		*field(c) = truth(v)
		return nil
	}
	return s
}

// hint is 0, 1, or auto, which leaves the choice open.
func hint(field func(*Config) *Hint) setting {
	names := []string{NoHint: "auto", No: "0", Yes: "1"}
	return setting{
		parse: func(c *Config, v string) error {
			switch {
			case v == names[NoHint]:
				*field(c) = NoHint
			case truth(v):
				*field(c) = Yes
			default:
				*field(c) = No
				if !numeric(v) {
					return remark("it is neither auto nor a number, which counts as 0, as in Horovod; 1 turns it on")
				}
			}
			return nil
		},
		show: func(c *Config) string { return names[*field(c)] },
	}
}

// truth follows Horovod: text that begins with a number other than 0 is true, and all other text is false.
func truth(v string) bool {
	n, _ := leadingInt(v)
	return n != 0
}

func numeric(v string) bool {
	_, ok := leadingInt(v)
	return ok
}

// leadingInt is C's strtol. ok: there was a number.
func leadingInt(v string) (n int64, ok bool) {
	v = strings.TrimLeft(v, " \t\n\v\f\r")
	end := 0
	if end < len(v) && (v[end] == '-' || v[end] == '+') {
		end++
	}
	digits := end
	for end < len(v) && '0' <= v[end] && v[end] <= '9' {
		end++
	}
	n, _ = strconv.ParseInt(v[:end], 10, 64) // beyond the range it returns the nearest number
	return n, end > digits
}

// backend is a choice among Horovod's backends. why has the reason for each missing backend, by its name in lower case.
func backend(field func(*Config) *Backend, why map[string]string) setting {
	return setting{
		parse: func(c *Config, v string) error {
			switch name := Backend(strings.ToLower(v)); name {
			case Gloo, MPI:
				*field(c) = name
				return nil
			default:
				if reason, ok := why[string(name)]; ok {
					return fmt.Errorf("%s; leave it unset or set it to gloo, which selects the native "+
						"transports, or mpi", reason)
				}
				return fmt.Errorf("gloo, which selects the native transports, or mpi is needed")
			}
		},
		show: func(c *Config) string { return string(*field(c)) },
	}
}

// refuse is for a variable without a field. It is an error if asks says that the value asks for something that this
// version does not have.
func refuse(asks func(v string) bool, why string) setting {
	return setting{parse: func(_ *Config, v string) error {
		if asks(v) {
			return fmt.Errorf("%s; leave it unset", why)
		}
		return nil
	}}
}

// note is for a variable without a field. There is a warning if asks says that the value asks for something.
func note(asks func(v string) bool, why string) setting {
	return setting{parse: func(_ *Config, v string) error {
		if asks(v) {
			return remark(why)
		}
		return nil
	}}
}

func anything(string) bool { return true }

// logLevel follows Horovod: unknown text means warning.
var logLevel = setting{
	parse: func(c *Config, v string) error {
		c.LogLevel = slog.LevelWarn
		switch strings.ToLower(v) {
		case "trace", "debug":
			c.LogLevel = slog.LevelDebug
		case "info":
			c.LogLevel = slog.LevelInfo
		case "error", "fatal":
			c.LogLevel = slog.LevelError
		case "warning":
		default:
			return remark("there is no such level, which counts as warning; trace, debug, info, warning, error and " +
				"fatal exist")
		}
		return nil
	},
	show: func(c *Config) string {
		switch c.LogLevel {
		case slog.LevelDebug:
			return "debug"
		case slog.LevelInfo:
			return "info"
		case slog.LevelError:
			return "error"
		}
		return "warning"
	},
}

var logFormat = setting{
	parse: func(c *Config, v string) error {
		f, ok := logging.ParseFormat(v)
		if !ok {
			return fmt.Errorf("text or json is needed")
		}
		c.LogFormat = f
		return nil
	},
	show: func(c *Config) string { return string(c.LogFormat) },
}

// printable returns v for a line of text, quoted if necessary.
func printable(v string) string {
	if strings.ContainsFunc(v, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return strconv.Quote(v)
	}
	return v
}

// leastHeartbeat is the least useful value, because ranks ask only after a wait of a second.
const leastHeartbeat = 5 * time.Second

// heartbeat is 0, or at least leastHeartbeat.
var heartbeat = setting{
	parse: func(c *Config, v string) error {
		const need = "0, or a number of seconds from 5 to 1000000,"
		var d Config
		err := duration(func(c *Config) *time.Duration { return &c.Heartbeat }, time.Second, 1e6, true,
			need).parse(&d, v)
		if err == nil && d.Heartbeat > 0 && d.Heartbeat < leastHeartbeat {
			err = fmt.Errorf("%s is needed", need)
		}
		if err == nil {
			c.Heartbeat = d.Heartbeat
		}
		return err
	},
	show: func(c *Config) string { return seconds(c.Heartbeat) },
}
