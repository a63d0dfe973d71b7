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
	for _, try := range []struct{ args, says string }{
		{"-np=x", "-np x: a whole number is needed"},
		{"--num-proc=1.5", "-np 1.5: a whole number is needed"},
		{"--num-proc=99999999999999999999", "-np 99999999999999999999: a whole number that is not so large is needed"},
		{"--num-proc=", `-np "": a whole number is needed`},
		{"--num-proc", `-np "": a whole number is needed`},
		{"--wait=30s", "--wait 30s: a whole number of seconds is needed"},
		{"--wait=1 m", `--wait "1 m": a whole number of seconds is needed`},
		{"--cycle=fast", "--cycle fast: a number of milliseconds is needed"},
		{"--noise=1e999", "--noise 1e999: a number that is not so large is needed"},
		{"--port=ssh", "--port ssh: the number of a port is needed"},
		{"--verbose=maybe", "--verbose=maybe: true or false is needed"},
		{"--check=7", "--check=7: true or false is needed"},
		{"--no-check=7", "--no-check=7: true or false is needed"},
		{"--no-such=7", "unknown option --no-such"},
	} {
		if _, err := c.Parse("try", c.Grammar(), []string{try.args}); err == nil || err.Error() != try.says {
			t.Errorf("%s: %v, want %q", try.args, err, try.says)
		}
	}
	g := &grammar{}
	_, err := c.Parse("try", g, []string{"--num-proc=0x10", "--wait", "-5", "--cycle", "-1e3", "--no-check=false",
		"--verbose=YES"})
	if err != nil || g.NumProc != 16 || *g.Wait != -5 || g.Cycle != -1e3 || !*g.Check || !g.Verbose {
		t.Errorf("%+v, %v", g, err)
	}
}
