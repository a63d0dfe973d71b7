package commandline

import "testing"

func TestValuesThatCannotBeRead(t *testing.T) {
	type grammar struct {
		NumProc int     `onedash:"np" aliases:"np" placeholder:"N"`
		Wait    *int    `placeholder:"SECONDS"`
		Cycle   float64 `placeholder:"MS"`
		Noise   float64
		Port    *int  `short:"p" placeholder:"PORT"`
		Check   *bool `negatable:""`
		Verbose bool
	}
	c := Command{Name: "try", Grammar: func() any { return &grammar{} }}
	for _, try := range []struct {
		args []string
		says string
	}{
		{[]string{"-np=x"}, "-np x: a whole number is needed"},
		{[]string{"--num-proc=1.5"}, "-np 1.5: a whole number is needed"},
		{[]string{"--num-proc=99999999999999999999"},
			"-np 99999999999999999999: a whole number that is not so large is needed"},
		{[]string{"--num-proc="}, "--num-proc: its value is empty: is a variable in the command not set?"},
		{[]string{"--num-proc"}, "--num-proc: a value is missing"},
		{[]string{"--num-proc", "--verbose"}, "--num-proc: a value is missing"},
		{[]string{"--num-proc", "--"}, "--num-proc: a value is missing"},
		{[]string{"-np"}, "-np: a value is missing"},
		{[]string{"--num"}, "--num: a value is missing"},
		{[]string{"-np=0x10"}, "-np 0x10: a whole number is needed"},
		{[]string{"-np=0b11"}, "-np 0b11: a whole number is needed"},
		{[]string{"-np=1_0"}, "-np 1_0: a whole number is needed"},
		{[]string{"--cycle=0x1p4"}, "--cycle 0x1p4: a number of milliseconds is needed"},
		{[]string{"--wait=30s"}, "--wait 30s: a whole number of seconds is needed"},
		{[]string{"--wait=1 m"}, `--wait "1 m": a whole number of seconds is needed`},
		{[]string{"--cycle=fast"}, "--cycle fast: a number of milliseconds is needed"},
		{[]string{"--noise=1e999"}, "--noise 1e999: a number that is not so large is needed"},
		{[]string{"--port=ssh"}, "--port ssh: the number of a port is needed"},
		{[]string{"--verbose=maybe"}, "--verbose=maybe: true or false is needed"},
		{[]string{"--check=7"}, "--check=7: true or false is needed"},
		{[]string{"--no-check=7"}, "--no-check=7: true or false is needed"},
		{[]string{"--no-such=7"}, "unknown option --no-such"},
	} {
		if _, err := c.Parse("try", c.Grammar(), try.args); err == nil || err.Error() != try.says {
			t.Errorf("%s: %v, want %q", try.args, err, try.says)
		}
	}
	g := &grammar{}
	_, err := c.Parse("try", g, []string{"--num-proc=010", "--wait", "-5", "--cycle", "-1e3", "--no-check=false",
		"--verbose=YES"})
	if err != nil || g.NumProc != 10 || *g.Wait != -5 || g.Cycle != -1e3 || !*g.Check || !g.Verbose {
		t.Errorf("%+v, %v", g, err)
	}
}
